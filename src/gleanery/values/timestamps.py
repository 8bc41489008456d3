"""Points in time: read from the forms the contract takes, written in the one form it gives.

Inside the service an instant is an integer: microseconds since 1970 for what happens in the
service, seconds for the expiry of a cookie or of a local-storage entry.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = -62_135_596_800  # 0001-01-01T00:00:00Z
LAST = 253_402_300_799  # 9999-12-31T23:59:59Z

_FORM = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,18}))?(?:([Zz])|([+-])(\d\d):?(\d\d))?)?",
    re.ASCII,
)
_LOST_PLUS = re.compile(r"[Tt][\d:.]+ \d\d:?\d\d\Z", re.ASCII)


def now() -> int:
    """The wall clock in microseconds."""
    return time.time_ns() // 1000


def parse(text: str) -> int:
    """Microseconds of an ISO 8601 date or date-time; no zone means UTC.

    Raises ValueError with a sentence for the caller that does not repeat the text.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        if _LOST_PLUS.search(text):
            raise ValueError("a + in the offset must be written %2B in a URL")
        raise ValueError("expected YYYY-MM-DD or YYYY-MM-DDTHH:MM:SSZ")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    try:
        whole = datetime(year, month, day, hour, minute, second, tzinfo=_zone(match))
    except ValueError:
        raise ValueError("no such day or time in the calendar") from None
    seconds = min(max((whole - _EPOCH) // timedelta(seconds=1), _FIRST), LAST)
    return seconds * SECOND + int((match[7] or "")[:6].ljust(6, "0"))


def _zone(match: re.Match[str]) -> timezone:
    if match[9] is None:
        return UTC
    hours, minutes = int(match[10]), int(match[11])
    if hours > 23 or minutes > 59:
        raise ValueError("no such offset")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(offset if match[9] == "+" else -offset)


@lru_cache(maxsize=4096)
def render(seconds: int) -> str:
    """``YYYY-MM-DDTHH:MM:SSZ`` of a count of seconds since 1970."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def render_moment(microseconds: int) -> str:
    """The same of a count of microseconds."""
    return render(microseconds // SECOND)
