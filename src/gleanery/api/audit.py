"""The audit log over HTTP."""

from __future__ import annotations

from pydantic import TypeAdapter

from gleanery.api.calls import Answer, Call
from gleanery.records import AuditPage, AuditQuery
from gleanery.store import audit

_PAGE = TypeAdapter(AuditPage)


async def get_audit(call: Call[AuditQuery, None]) -> Answer:
    page = await audit.read_log(call.database, call.organization_id, call.cursor, call.query.limit)
    return Answer(_PAGE.dump_json(page))
