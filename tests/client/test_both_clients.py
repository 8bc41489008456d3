"""Both clients have the same interface."""

from __future__ import annotations

import inspect
import re

import pytest

from gleanery.client import (
    AsyncClient,
    AsyncLease,
    AsyncOutputPager,
    AsyncRun,
    AsyncSession,
    Client,
    Lease,
    OutputPager,
    Run,
    Session,
)

_NAMES = {"aclose": "close"}


def interface(kind: type) -> dict[str, str]:
    """Public methods with their signatures, in the words of the synchronous client."""
    return {
        _NAMES.get(name, name): re.sub(
            r"\bAsync(?=[A-Z])|Awaitable\[(\w+)\]", r"\1", str(inspect.signature(member))
        )
        for name, member in inspect.getmembers(kind, callable)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        (AsyncClient, Client),
        (AsyncLease, Lease),
        (AsyncOutputPager, OutputPager),
        (AsyncRun, Run),
        (AsyncSession, Session),
    ],
)
def test_both_clients_have_the_same_methods(other: type, kind: type) -> None:
    assert interface(kind) == interface(other)
    assert len(interface(kind)) >= 2
