"""Lists of session records, and the JSON text of records to store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class RecordList(list[T]):
    """Records of all pages of a list, and the version of the list."""

    def __init__(self, records: Iterable[T], etag: str) -> None:
        super().__init__(records)
        self.etag = etag
        """Version for ``if_match``: a write then fails if the list has changed since."""


def to_json(records: Any) -> bytes:
    """Return the JSON text of records. An error does not contain a value."""
    from msgspec.json import encode

    try:
        return encode(records)
    except UnicodeEncodeError:  # its representation has the whole text
        raise ValueError("A record has a text that is not valid Unicode") from None


def write_headers(if_match: str | None) -> dict[str, str]:
    """Return the headers of a write of JSON, which can have a condition."""
    return {"content-type": "application/json"} | condition(if_match)


def condition(if_match: str | None) -> dict[str, str]:
    """Return the header that makes a write conditional, if a version is given."""
    return {} if if_match is None else {"if-match": if_match}
