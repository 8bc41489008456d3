"""The handler of the audit log."""

from __future__ import annotations

from gleanery.api.context import RequestContext
from gleanery.api.response import Response
from gleanery.service.resources.audit.models import AuditQuery
from gleanery.storage import audit
from gleanery.values.json_text import encode


async def get_audit(context: RequestContext[AuditQuery, None]) -> Response:
    page = await audit.read_page(context.database, context.cursor, context.query.limit)
    return Response(encode(page))
