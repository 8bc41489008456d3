"""The handlers of the audit log: for clients oldest first, for the console newest first."""

from __future__ import annotations

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.api.context import RequestContext
from gleanery.service.api.response import Response
from gleanery.service.foundation.field_types import MAX_INT64, Text, WholeNumber
from gleanery.service.foundation.models import Query
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAction, AuditEntry, AuditQuery

_PAGE_SIZE = 50  # of the console


async def get_audit(context: RequestContext[AuditQuery, None]) -> Response:
    page = await log.read_page(context.database, context.cursor, context.query.limit)
    return Response(encode(page))


# --- the console --------------------------------------------------------------------------------


class AuditLogQuery(Query):
    """Which entries the console shows."""

    before: WholeNumber = Field(default=MAX_INT64, ge=1, le=MAX_INT64)
    action: AuditAction | None = None
    token_id: WholeNumber | None = Field(default=None, ge=1, le=MAX_INT64)
    person: Text | None = Field(default=None, max_length=100)


class AuditLogPage(TypedDict):
    """Entries, newest first. A page may be empty before the end: only null is the end."""

    entries: list[AuditEntry]
    next_before: int | None
    token_names: dict[str, str]
    """Names by the id of the token, as far as the tokens of these entries have one."""


async def read_audit_log(context: RequestContext[AuditLogQuery, None]) -> Response:
    query, database = context.query, context.database
    filter_ = log.Filter(query.action, query.token_id, query.person)
    entries, next_before = await log.read_newest(database, query.before, filter_, _PAGE_SIZE)
    names = {}
    for id_ in sorted(_token_ids(entries)):
        name = await log.token_name(database, id_)
        if name is not None:
            names[str(id_)] = name
    page = AuditLogPage(entries=entries, next_before=next_before, token_names=names)
    return Response(encode(page))


def _token_ids(entries: list[AuditEntry]) -> set[int]:
    actors = {entry["token_id"] for entry in entries}
    subjects = {entry["about"].get("token_id") for entry in entries}
    return {id_ for id_ in actors | subjects if id_ is not None}
