"""Shared functions of the handlers of cookies and of local storage."""

from __future__ import annotations

from gleanery.api import lists
from gleanery.api.context import AnyContext, Response
from gleanery.storage.sessions import records
from gleanery.storage.sessions.kinds import In, Out, RecordKind
from gleanery.values.json_text import encode


async def store(context: AnyContext, kind: RecordKind[In, Out]) -> Response:
    services = context.services
    counts = await records.store(
        kind, context.database, services.vault, context.body, services.clock(), context.actor
    )
    return Response(encode(counts))


async def read(
    context: AnyContext, kind: RecordKind[In, Out], filter_: records.Filter, segment: str
) -> Response:
    services = context.services
    page = await records.read(
        kind,
        context.database,
        services.vault,
        services.read_auditor,
        filter_,
        lists.limits_of(context),
        services.clock(),
        context.actor,
    )
    return lists.array_response(context, page, segment)


async def delete(context: AnyContext, kind: RecordKind[In, Out], name: str | None) -> Response:
    domain, now = context.query.domain, context.services.clock()
    deleted = await records.delete(kind, context.database, domain, name, now, context.actor)
    return Response(b'{"deleted":%d}' % deleted)
