"""Timestamps: parses the forms that the API accepts and renders the one form that it returns.

Inside the service a timestamp is an integer count since 1970: microseconds for events in the
service, seconds for the expiry of a cookie or of a local-storage entry.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

SECOND = 1_000_000
"""One second in microseconds."""
MAX_CLOCK_DIFFERENCE = 3600 * SECOND
"""Clocks of nodes may differ by this time. A larger difference means that a clock is wrong."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_SECONDS = -62_135_596_800  # 0001-01-01T00:00:00Z
MAX_SECONDS = 253_402_300_799  # 9999-12-31T23:59:59Z

_ISO_8601 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,18}))?(?:([Zz])|([+-])(\d\d):?(\d\d))?)?",
    re.ASCII,
)
_PLUS_DECODED_AS_SPACE = re.compile(r"[Tt][\d:.]+ \d\d:?\d\d\Z", re.ASCII)


def now() -> int:
    """Return the current time in microseconds since 1970."""
    return time.time_ns() // 1000


def is_date_time(text: str) -> bool:
    """Return True if the text has the form of a date-time. The date may not exist."""
    match = _ISO_8601.fullmatch(text)
    return match is not None and match[4] is not None


def parse(text: str) -> int:
    """Parse an ISO 8601 date or date-time into microseconds; without an offset it is UTC.

    Raise ValueError with a message for the client that does not contain the text.
    """
    match = _ISO_8601.fullmatch(text)
    if match is None:
        if _PLUS_DECODED_AS_SPACE.search(text):
            raise ValueError("encode the + of the offset as %2B in a URL")
        raise ValueError("expected YYYY-MM-DD or YYYY-MM-DDTHH:MM:SSZ")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    try:
        whole = datetime(year, month, day, hour, minute, second, tzinfo=_zone(match))
    except ValueError:
        raise ValueError("this date or time does not exist") from None
    seconds = min(max((whole - _EPOCH) // timedelta(seconds=1), _MIN_SECONDS), MAX_SECONDS)
    return seconds * SECOND + int((match[7] or "")[:6].ljust(6, "0"))


def _zone(match: re.Match[str]) -> timezone:
    if match[9] is None:
        return UTC
    hours, minutes = int(match[10]), int(match[11])
    if hours > 23 or minutes > 59:
        raise ValueError("this offset does not exist")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(offset if match[9] == "+" else -offset)


@lru_cache(maxsize=4096)
def render(seconds: int) -> str:
    """Render seconds since 1970 as ``YYYY-MM-DDTHH:MM:SSZ``."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def render_microseconds(microseconds: int) -> str:
    """Render microseconds since 1970, without the fraction of the second."""
    return render(microseconds // SECOND)
