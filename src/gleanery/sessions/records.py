"""Checked access to the members of JSON records; errors name the place, never the value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from gleanery.sessions import cookie_dates
from gleanery.sessions.model import InvalidSession, Losses, SameSite

_SAME_SITE: dict[str, SameSite | None] = {
    "strict": "Strict",
    "lax": "Lax",
    "none": "None",
    "no_restriction": "None",
    "unspecified": None,
    "": None,
}
_UNKNOWN_SAME_SITE = "SameSite is omitted, because its value is unknown"
_UNKNOWN_MEMBER = "A member of a {noun} is ignored, because it is unknown"
LOST_PRIORITY = "The priority is lost: it is Chromium's own"

Read = TypeVar("Read")


@contextmanager
def at(place: str) -> Iterator[None]:
    """Add the place of a record, such as ``cookies[3]``, to the errors of the block."""
    try:
        yield
    except InvalidSession as error:
        raise InvalidSession(f"{place}: {error}") from None


def array(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidSession(f"{place}: expected an array")
    return value


def members(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidSession("expected an object")
    return value


def read_each(
    values: list[Any], place: str, read: Callable[[Mapping[str, Any]], Read]
) -> Iterator[Read]:
    """Yield what the function makes of each record; add the place of the record to errors."""
    for index, value in enumerate(values):
        with at(f"{place}[{index}]"):
            result = read(members(value))
        yield result


def count_unknown(
    record: Mapping[str, Any], known: frozenset[str], losses: Losses, noun: str = "record"
) -> None:
    """Count a loss if the record has a member that nobody reads."""
    if not known.issuperset(record):
        losses.add("member", _UNKNOWN_MEMBER.format(noun=noun), noun)


def text(record: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a string; null is the same as absent. Without a default it is required."""
    value = record.get(name)
    if value is None:
        value = default
    if value is None:
        raise InvalidSession(f'"{name}" is missing')
    if not isinstance(value, str):
        raise InvalidSession(f'"{name}" must be a string')
    return value


def flag(record: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = record.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidSession(f'"{name}" must be true or false')
    return value


def expires(record: Mapping[str, Any], name: str) -> int | None:
    """Return whole seconds since 1970; None for absent, null and negative numbers."""
    value = record.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value != value:  # NaN differs from itself
        raise InvalidSession(f'"{name}" must be a number of seconds since 1970')
    return cookie_dates.from_number(value)


def same_site(value: Any, losses: Losses) -> SameSite | None:
    """Return a known value in any case; an unknown value is omitted and counted as a loss."""
    if value is None:
        return None
    if isinstance(value, str) and value.lower() in _SAME_SITE:
        return _SAME_SITE[value.lower()]
    losses.add("same_site", _UNKNOWN_SAME_SITE)
    return None
