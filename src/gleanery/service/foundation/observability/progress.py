"""Progress reports of long work."""

from __future__ import annotations

from collections.abc import Callable

Advance = Callable[[int], object]
"""Reports that this many more units are done."""

StartProgress = Callable[[str, int], Advance]
"""Starts a progress report: takes a description and the total number of units."""


def no_progress(description: str, total: int) -> Advance:
    """Report nothing."""
    return lambda _: None
