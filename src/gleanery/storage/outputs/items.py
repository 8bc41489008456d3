"""The JSON text of an output, and its suffix: the members that change without a new value.

An item is rendered once, when its value is stored. An approval or another scrape only replaces the
suffix. A page is a list of items, joined.
"""

from __future__ import annotations

from functools import lru_cache

from gleanery.storage.outputs.preparation import PreparedOutput
from gleanery.values import timestamps


def render(
    output: PreparedOutput, id_: int, created_seq: int, files_json: bytes, suffix: bytes
) -> bytes:
    """Renders an item. The value's hash stands directly before the suffix; see ``history``."""
    return b'%s%d%s,"create_date":"%s","files":[%s],"value_hash":"%s"%s' % (
        output.json_before_id,
        id_,
        output.json_after_id,
        timestamps.render_microseconds(created_seq).encode(),
        files_json,
        output.value_hash,
        suffix,
    )


def mutable_suffix(seq: int, last_scraped_at: int, approved: bool) -> bytes:
    """Renders the end of an item: the members that change without a new value."""
    return _suffix(seq // timestamps.SECOND, last_scraped_at // timestamps.SECOND, approved)


@lru_cache(maxsize=1024)  # most outputs of a batch have the same suffix
def _suffix(update_second: int, scrape_second: int, approved: bool) -> bytes:
    return b'%b%b,"is_approved":%b}' % (
        _update_member(update_second),
        last_scraped_member(scrape_second),
        b"true" if approved else b"false",
    )


def suffix_length(approved: bool) -> int:
    return _SUFFIX_LENGTHS[approved]


def update_member(seq: int) -> bytes:
    return _update_member(seq // timestamps.SECOND)


def _update_member(second: int) -> bytes:
    return b',"update_date":"%b"' % timestamps.render(second).encode()


def last_scraped_member(second: int) -> bytes:
    return b',"last_scraped_date":"%b"' % timestamps.render(second).encode()


def length_from(member: bytes) -> str:
    """Returns the number of bytes from this member to the end of an item, as an SQL expression."""
    suffixes = (mutable_suffix(0, 0, approved) for approved in (True, False))
    return "CASE WHEN approved THEN {} ELSE {} END".format(
        *(len(suffix) - suffix.index(member) for suffix in suffixes)
    )


_SUFFIX_LENGTHS = {approved: len(mutable_suffix(0, 0, approved)) for approved in (True, False)}
