"""The handler of the audit log."""

from __future__ import annotations

from gleanery.service.api.context import RequestContext
from gleanery.service.api.response import Response
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditQuery


async def get_audit(context: RequestContext[AuditQuery, None]) -> Response:
    page = await log.read_page(context.database, context.cursor, context.query.limit)
    return Response(encode(page))
