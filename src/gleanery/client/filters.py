"""Filters of outputs, which several methods of the client take."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal, TypedDict

from gleanery.client.requests import render

View = Literal["full", "approved"]
"""Outputs as they are now, or each output in its last approved version."""


class OutputFilters(TypedDict, total=False):
    """What outputs must have; None is the same as a filter that is left out."""

    job_id: str | None
    created_after: date | str | None
    """Also outputs that were updated since then."""
    url: str | None
    country: str | None
    region: str | None
    approved: bool | None
    view: View | None


def describe(filters: OutputFilters) -> dict[str, Any]:
    """Return the filters that are given, as JSON values."""
    values: dict[str, Any] = dict(filters)
    return {
        name: value if isinstance(value, bool) else render(value)
        for name, value in values.items()
        if value is not None
    }
