"""Suggestions: the known name that a misspelled name most likely means."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from functools import lru_cache

_MAX_LENGTH = 64  # a longer name is no misspelling, and comparing it takes time
_MIN_SIMILARITY = 0.6


def closest(name: str, known: Collection[str]) -> str | None:
    """Return the most similar known name, or None if none is similar.

    Case, hyphens and underscores do not count: ``jobId`` is similar to ``job_id``.
    """
    if len(name) > _MAX_LENGTH:
        return None
    return _closest(name, frozenset(known))


@lru_cache(maxsize=1024)  # a wrong name usually occurs in every record of a body
def _closest(name: str, known: frozenset[str]) -> str | None:
    by_letters = {_letters(one): one for one in sorted(known)}
    similar = get_close_matches(_letters(name), by_letters, 1, _MIN_SIMILARITY)
    return by_letters[similar[0]] if similar else None


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
