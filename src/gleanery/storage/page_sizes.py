"""Limits of pages in bytes: how many items fit, and how a large page is split into parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from gleanery.storage.database import Row

LINK_GROWTH = 4
"""Links to files make the text of a page at most this many times longer."""
ITEM_SIZE = "octet_length(item) + 64 * octet_length(file_ids)"
"""SQL expression: the bytes of an item with links. ``file_ids`` has 16 bytes for each file."""
UNLIMITED = 2**31 - 1
"""A maximum that no item reaches."""
Hold = Callable[[int], None]
"""Holds memory for so many bytes of a response. Called before each part of a large one is read.

Raises if there is no memory now, or if nobody would read the response.
"""
_SMALL_ITEM_BYTES = 16 * 1024
_PART_BYTES = 1024 * 1024


def hold_nothing(size: int) -> None:
    """Hold no memory: a ``Hold`` for reads whose caller counts the bytes afterwards."""


def max_item_bytes(max_bytes: int, limit: int) -> int:
    """Return the maximum length of an item on a page that is read at once."""
    return max(max_bytes // limit, _SMALL_ITEM_BYTES)


def count_fitting(sizes: Sequence[int], max_bytes: int) -> int:
    """Return how many of the first items fit into the page: at least one, if there is one."""
    fitting = sum(total <= max_bytes for total in accumulate(sizes))
    return max(fitting, min(len(sizes), 1))


def split(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Split rows of sequence number and size into parts of about a megabyte.

    A larger item is a part of its own.
    """
    start = size = 0
    for number, (_, item_size) in enumerate(rows):
        if size and size + item_size > _PART_BYTES:
            yield rows[start:number]
            start, size = number, 0
        size += item_size
    if rows:
        yield rows[start:]
