"""The records of a session for people: listed without values, and one value at a time."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

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
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.security.vault import Vault, encrypted_length
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.log import ReadAuditor
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.kinds import In, Out, RecordKind
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.records import decrypter
from gleanery.service.resources.sessions.state_models import DEFAULT_PROFILE
from gleanery.service.storage.database import Database, Row, indexed

Kind = Literal["cookies", "local_storage"]
_KINDS: dict[Kind, RecordKind[Any, Any]] = {"cookies": COOKIES, "local_storage": LOCAL_STORAGE}
_MAX_VALUE = 65_536
"""Characters of a value that a browser shows. An export has longer ones."""
_NO_RECORD = "This record does not exist any more: load the page again"
MAX_TEXT = 500
"""Characters of a name or a path that are listed."""
# The position is an expression, because PostgreSQL would otherwise search all records of the
# organization in the order of their ids.
_LIST = """
SELECT id, domain, substr({name}, 1, $6), length({name}), substr(path, 1, $6), length(path),
    octet_length(encrypted_value), expires, updated_at, {others}
FROM {{{table}}}
WHERE organization_id = $1 AND host = $2 AND profile = $3 AND id + 0 > $4
ORDER BY id + 0 LIMIT $5
"""
_COOKIE_COLUMNS = "secure, http_only, host_only, same_site, partition_site, NULL, NULL"
_ENTRY_COLUMNS = "NULL, NULL, NULL, NULL, NULL, origin, group_id"
_LIST_COOKIES = indexed(
    _LIST.format(table="cookies", name="name", others=_COOKIE_COLUMNS), cookies="cookies_by_host"
)
_LIST_ENTRIES = indexed(
    _LIST.format(table="local_storage", name="key", others=_ENTRY_COLUMNS),
    local_storage="local_storage_by_host",
)
# A range in an order is always found by the primary key, also while the table is empty.
_FIND = """
SELECT identity, encrypted_value, {columns} FROM {table}
WHERE organization_id = $1 AND id > $2 AND id <= $3 ORDER BY id
"""
_FIND_COOKIE = _FIND.format(table="cookies", columns=", ".join(COOKIES.columns))
_FIND_ENTRY = _FIND.format(table="local_storage", columns=", ".join(LOCAL_STORAGE.columns))


# --- handlers -----------------------------------------------------------------------------------


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
    page = await list_records(
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
    value = await reveal(
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


# --- the records and one value ------------------------------------------------------------------


class ListedText(NamedTuple):
    """The beginning of a text, and its length in characters."""

    beginning: str
    length: int


class ListedRecord(NamedTuple):
    """A record without its value."""

    id: int
    domain: str
    name: ListedText
    path: ListedText
    value_bytes: int
    expires: int | None
    updated_at: int
    secure: bool
    http_only: bool
    host_only: bool
    same_site: str | None
    partition_site: str | None
    origin: str | None
    group_id: int | None


class RecordPage(NamedTuple):
    """Records in the order of their first insertion, and the cursor of the next page."""

    records: list[ListedRecord]
    next_cursor: int | None


async def list_records(
    kind: RecordKind[In, Out], database: Database, host: str, profile: str, cursor: int, limit: int
) -> RecordPage:
    """List the records of a host and profile with ids above the cursor."""
    sql = _LIST_COOKIES if kind.table == COOKIES.table else _LIST_ENTRIES
    key = (database.organization_id, host, profile, cursor, limit + 1, MAX_TEXT)
    # Other requests run meanwhile: one host can have many records.
    rows = await database.read_large(sql, *key)
    records = [_to_record(row) for row in rows[:limit]]
    return RecordPage(records, records[-1].id if len(rows) > limit else None)


def _to_record(row: Row) -> ListedRecord:
    id_, domain, name, name_length, path, path_length, size, expires, updated_at, *others = row
    secure, http_only, host_only, same_site, partition_site, origin, group_id = others
    return ListedRecord(
        id_,
        domain,
        ListedText(name, name_length),
        ListedText(path, path_length),
        size - encrypted_length(""),
        expires,
        updated_at,
        bool(secure),
        bool(http_only),
        bool(host_only),
        same_site,
        partition_site,
        origin,
        group_id,
    )


async def reveal(
    kind: RecordKind[In, Out],
    database: Database,
    vault: Vault,
    read_auditor: log.ReadAuditor,
    id_: int,
    now: int,
    actor: Actor,
) -> str | None:
    """Return the value of a record after an entry in the audit log; None without a record."""
    sql = _FIND_COOKIE if kind.table == COOKIES.table else _FIND_ENTRY
    rows = await database.read(sql, database.organization_id, id_ - 1, id_)
    if not rows:
        return None
    [row] = rows
    columns: dict[str, Any] = dict(zip(kind.columns, row[2:], strict=True))
    about = AuditAbout(records=1, domains=[columns["domain"]], profile=columns["profile"])
    await read_auditor.record(database, log.Entry(actor, now, "reveal_value", about))
    return decrypter(kind, database, vault)(row)
