"""Types that the responses of several resources have."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict

DateTime = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""Date-time in the one form that the API returns: ``YYYY-MM-DDTHH:MM:SSZ``."""
_JSON_TYPES = ("object", "array", "string", "number", "boolean", "null")
JsonValue = Annotated[
    Any, WithJsonSchema({"type": [*_JSON_TYPES], "additionalProperties": True, "items": {}})
]


class WriteCounts(TypedDict):
    """Result of a write: the number of records of each kind."""

    created: int
    updated: int
    unchanged: int


class PageMetadata(TypedDict):
    """Link to the next page. Both members are null on the last page, and only there."""

    next_url: str | None
    next_cursor: int | None


class Deleted(TypedDict):
    """Number of deleted records."""

    deleted: int


class ErrorDetailOut(TypedDict):
    """One problem of a request. It never contains the value."""

    loc: list[str]
    msg: str
    type: str
