"""The handlers of session records: a list without values, and one value at a time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.api.context import RequestContext
from gleanery.service.api.response import Response
from gleanery.service.console.values import Node
from gleanery.service.foundation.errors import NotFound
from gleanery.service.foundation.field_types import (
    MAX_INT64,
    Domain,
    ListLimit,
    StoredName,
    WholeNumber,
)
from gleanery.service.foundation.models import Input, Query
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.audit.log import ReadAuditor
from gleanery.service.resources.sessions import record_listing
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.kinds import RecordKind
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.record_listing import ListedRecord, ListedText
from gleanery.service.resources.sessions.state_models import DEFAULT_PROFILE

Kind = Literal["cookies", "local_storage"]
_KINDS: dict[Kind, RecordKind[Any, Any]] = {"cookies": COOKIES, "local_storage": LOCAL_STORAGE}
_MAX_VALUE = 65_536
"""Characters of a value that a browser shows. An export has longer ones."""
_NO_RECORD = "This record does not exist any more: load the page again"


class SessionRecordsQuery(Query):
    """The session, and the part of its records."""

    domain: Domain
    profile: StoredName = DEFAULT_PROFILE
    kind: Kind
    limit: ListLimit = 100
    cursor: WholeNumber = Field(default=0, ge=0, le=MAX_INT64)


class Reveal(Input):
    """The record whose value a person wants to see."""

    kind: Kind
    id: int = Field(ge=0, le=MAX_INT64)


class SessionRecord(TypedDict):
    """A record without its value. Flags are of a cookie, origin and group of an entry."""

    id: int
    domain: str
    name: Node
    path: Node
    value_bytes: int
    expires: str | None
    update_date: str
    secure: bool
    http_only: bool
    host_only: bool
    same_site: str | None
    partition_site: str | None
    origin: str | None
    group_id: int | None


class SessionRecords(TypedDict):
    """Records in the order of their creation; null is the end."""

    records: list[SessionRecord]
    next_cursor: int | None


class RevealedValue(TypedDict):
    """A value, truncated if it is longer than a browser shows."""

    value: str
    length: int
    is_truncated: bool


async def list_session_records(context: RequestContext[SessionRecordsQuery, None]) -> Response:
    query = context.query
    page = await record_listing.list_records(
        _KINDS[query.kind],
        context.database,
        query.domain.removeprefix("."),
        query.profile,
        context.cursor,
        query.limit,
    )
    records = [_to_response(record) for record in page.records]
    return Response(encode(SessionRecords(records=records, next_cursor=page.next_cursor)))


def _to_response(record: ListedRecord) -> SessionRecord:
    expires = record.expires
    return SessionRecord(
        id=record.id,
        domain=record.domain,
        name=_node(record.name),
        path=_node(record.path),
        value_bytes=record.value_bytes,
        expires=None if expires is None else timestamps.render(expires),
        update_date=timestamps.render_microseconds(record.updated_at),
        secure=record.secure,
        http_only=record.http_only,
        host_only=record.host_only,
        same_site=record.same_site,
        partition_site=record.partition_site,
        origin=record.origin,
        group_id=record.group_id,
    )


def _node(text: ListedText) -> Node:
    is_whole = len(text.beginning) == text.length
    return ["s", text.beginning] if is_whole else ["s", *text]


async def reveal_value(context: RequestContext[None, Reveal]) -> Response:
    services, body = context.services, context.body
    value = await record_listing.reveal(
        _KINDS[body.kind],
        context.database,
        services.vault,
        services[ReadAuditor],
        body.id,
        services.clock(),
        context.actor,
    )
    if value is None:
        raise NotFound(("body", "id"), _NO_RECORD)
    return Response(encode(_shown(value)))


def _shown(value: str) -> RevealedValue:
    length = len(value)
    return RevealedValue(value=value[:_MAX_VALUE], length=length, is_truncated=length > _MAX_VALUE)
