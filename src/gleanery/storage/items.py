"""The suffix of an item: the members of an output that change without a new value.

An item is the JSON text of an output. It is rendered once, when its value is stored. An approval or
another scrape only replaces the suffix. A page is a list of items, joined.
"""

from __future__ import annotations

from functools import lru_cache

from gleanery.values import timestamps


def mutable_suffix(seq: int, last_scraped_at: int, approved: bool) -> bytes:
    """Render the end of an item: the members that change without a new value."""
    return _suffix(seq // timestamps.SECOND, last_scraped_at // timestamps.SECOND, approved)


@lru_cache(maxsize=1024)  # most outputs of a batch have the same suffix
def _suffix(update_second: int, scrape_second: int, approved: bool) -> bytes:
    return b'%b%b,"is_approved":%b}' % (
        _update_member(update_second),
        last_scraped_member(scrape_second),
        b"true" if approved else b"false",
    )


def update_member(seq: int) -> bytes:
    return _update_member(seq // timestamps.SECOND)


def _update_member(second: int) -> bytes:
    return b',"update_date":"%b"' % timestamps.render(second).encode()


def last_scraped_member(second: int) -> bytes:
    return b',"last_scraped_date":"%b"' % timestamps.render(second).encode()


def length_from(member: bytes) -> str:
    """Return the number of bytes from this member to the end of an item, as an SQL expression."""
    suffixes = (mutable_suffix(0, 0, approved) for approved in (True, False))
    return "CASE WHEN approved THEN {} ELSE {} END".format(
        *(len(suffix) - suffix.index(member) for suffix in suffixes)
    )


SUFFIX_LENGTHS = {approved: len(mutable_suffix(0, 0, approved)) for approved in (True, False)}
