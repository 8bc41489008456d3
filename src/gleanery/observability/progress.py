"""Who is told how far long work has come."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[int], object]
"""Hears of progress: so much more is done."""

Begin = Callable[[str, int], Tell]
"""Hears what is about to be done and how much of it there is; gives whom to tell of progress."""


def silent(words: str, total: int) -> Tell:
    """For when nobody wants to know."""
    return lambda _: None
