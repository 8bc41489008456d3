"""The JSON text of an output, and its end: what changes without a new value.

An item is rendered once, when its value is written. An approval or another scrape replaces its end,
without a look at the rest. A page is items joined.
"""

from __future__ import annotations

from functools import lru_cache

from gleanery.storage.outputs.preparation import PreparedOutput
from gleanery.values import timestamps


def item(value: PreparedOutput, id_: int, created: int, files: bytes, end: bytes) -> bytes:
    return b'%s%d%s,"create_date":"%s","files":[%s]%s' % (
        value.before_id,
        id_,
        value.after_id,
        timestamps.render_moment(created).encode(),
        files,
        end,
    )


def mutable_suffix(seq: int, scraped: int, approved: bool) -> bytes:
    """The end of an item: what changes without a new value."""
    return _end(seq // timestamps.SECOND, scraped // timestamps.SECOND, approved)


@lru_cache(maxsize=1024)  # the outputs of a batch have it in common, mostly
def _end(updated: int, scraped: int, approved: bool) -> bytes:
    return b',"update_date":"%b"%b,"is_approved":%b}' % (
        timestamps.render(updated).encode(),
        scraped_date(scraped),
        b"true" if approved else b"false",
    )


def scraped_date(second: int) -> bytes:
    return b',"last_scraped_date":"%b"' % timestamps.render(second).encode()


def _length_from(beginning: bytes) -> str:
    """How long an item is from there to its end, in SQL: that depends on the approval."""
    ends = (mutable_suffix(0, 0, approved) for approved in (True, False))
    return "CASE WHEN approved THEN {} ELSE {} END".format(
        *(len(end) - end.index(beginning) for end in ends)
    )


UPDATE_SEQ = f"""
UPDATE outputs SET seq = $3, approved = $4, scraped = $5, item = CAST(
    substr(item, 1, length(item) - {_length_from(b',"update_date"')}) || $6 AS BYTEA)
WHERE organization_id = $1 AND identity = $2
"""
# What stays in its place is not written into any index, not even with the same values.
UPDATE_LAST_SCRAPED = f"""
UPDATE outputs SET scraped = $2, item = CAST(
    substr(item, 1, length(item) - {_length_from(b',"last_scraped_date"')}) || $3
    || substr(item, 1 + length(item) - {_length_from(b',"is_approved"')}) AS BYTEA)
WHERE organization_id = $1 AND identity = $4
"""
