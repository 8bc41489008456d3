"""Calls of a method by the services that run in threads of this process."""

from __future__ import annotations

from typing import Any

import pytest


def note_calls(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> list[tuple[Any, ...]]:
    """Returns a list to which each call adds its arguments, before it runs."""
    calls, original = list[tuple[Any, ...]](), getattr(owner, method)

    def noted(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        return original(*arguments, **named)

    monkeypatch.setattr(owner, method, noted)
    return calls
