"""The number of changes of a group on each of the last days, in one short text.

The text has the newest day, as days since 1970, and the numbers from that day back. It is in the
row of the group, which every batch reads and writes anyway.
"""

from __future__ import annotations

from gleanery.values import timestamps

DAY = 86_400 * timestamps.SECOND
KEPT_DAYS = 30


def add(stored: str | None, day: int, count: int) -> str:
    """Add changes of a day. If a clock went back, they count for the newest day."""
    if stored is not None and stored.startswith(f"{day} "):  # as in most batches
        newest_day, first, *rest = stored.split(" ", 2)
        return " ".join((newest_day, str(int(first) + count), *rest))
    newest, counts = _decode(stored, day)
    if day > newest:
        counts = [0] * min(day - newest, KEPT_DAYS) + counts
        newest = day
    counts[0] += count
    return " ".join(map(str, (newest, *counts[:KEPT_DAYS])))


def read(stored: str | None, today: int) -> list[int]:
    """Return the numbers of the last days, oldest first; the last one is of today."""
    newest, counts = _decode(stored, today)
    missing = min(max(today - newest, 0), KEPT_DAYS)
    padded = [0] * missing + counts + [0] * KEPT_DAYS
    return padded[:KEPT_DAYS][::-1]


def _decode(stored: str | None, day: int) -> tuple[int, list[int]]:
    if stored is None:
        return day, [0]
    newest, *counts = map(int, stored.split())
    return newest, counts
