"""The audit log over HTTP."""

from __future__ import annotations

from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import AuditQuery
from gleanery.storage import audit
from gleanery.values.json_text import encode


async def get_audit(call: RequestContext[AuditQuery, None]) -> Response:
    page = await audit.read_log(call.database, call.organization_id, call.cursor, call.query.limit)
    return Response(encode(page))
