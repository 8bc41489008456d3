"""The audit log over HTTP."""

from __future__ import annotations

from gleanery.api.context import Answer, Call
from gleanery.models.requests import AuditQuery
from gleanery.storage import audit
from gleanery.values.json_text import encode


async def get_audit(call: Call[AuditQuery, None]) -> Answer:
    page = await audit.read_log(call.database, call.organization_id, call.cursor, call.query.limit)
    return Answer(encode(page))
