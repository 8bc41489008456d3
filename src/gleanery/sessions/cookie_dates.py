"""Expiries of cookies: dates, as browsers parse them (RFC 6265, 5.1.1), and numbers of tools."""

from __future__ import annotations

import re
from calendar import timegm
from datetime import datetime
from email.utils import formatdate

from gleanery.sessions.model import MAX_EXPIRES

_TOKEN = re.compile(r"[^\t\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?![0-9])")
_DAY = re.compile(r"([0-9]{1,2})(?![0-9])")
_YEAR = re.compile(r"([0-9]{2,4})(?![0-9])")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIRST_YEAR = 1601
_LEAST_MILLISECONDS = 10**12
"""The year 2001 in milliseconds. In seconds it is the year 33658, which no tool writes."""


def parse(text: str) -> int | None:
    """Return seconds since 1970, which are negative before, or None if it is no date."""
    time = day = month = year = None
    for token in _TOKEN.findall(text):
        if time is None and (time := _TIME.match(token)):
            continue
        if day is None and (day := _DAY.match(token)):
            continue
        if month is None and (month := _parse_month(token)):
            continue
        if year is None:
            year = _YEAR.match(token)
    if not time or not day or not month or not year:
        return None
    clock = (int(time[1]), int(time[2]), int(time[3]))
    return _seconds(_full_year(int(year[1])), month, int(day[1]), clock)


def from_number(number: float) -> int | None:
    """Return whole seconds since 1970 of what a tool writes; None for a negative number.

    Tools write -1 for a session cookie, and some write milliseconds. A date after the year 9999
    is as good as the last day.
    """
    if number >= _LEAST_MILLISECONDS:
        number = min(number, MAX_EXPIRES * 1000) // 1000
    return None if number < 0 else int(min(number, MAX_EXPIRES))


def write(seconds: int) -> str:
    """Return the date of an Expires attribute."""
    return formatdate(seconds, usegmt=True)


def _parse_month(token: str) -> int | None:
    start = token[:3].lower()
    return _MONTHS.index(start) + 1 if start in _MONTHS else None


def _full_year(year: int) -> int:
    if year >= 100:
        return year
    return year + (1900 if year >= 70 else 2000)


def _seconds(year: int, month: int, day: int, clock: tuple[int, int, int]) -> int | None:
    try:
        moment = datetime(year, month, day, *clock)
    except ValueError:
        return None
    return timegm(moment.timetuple()) if year >= _FIRST_YEAR else None
