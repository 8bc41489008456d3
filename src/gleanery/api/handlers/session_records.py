"""Shared functions of the handlers of cookies and of local storage."""

from __future__ import annotations

from gleanery.api import lists
from gleanery.api.context import AnyContext, Response
from gleanery.http.content import is_not_modified
from gleanery.storage.sessions import records, versions
from gleanery.storage.sessions.kinds import In, Out, RecordKind
from gleanery.values.json_text import encode


async def store(context: AnyContext, kind: RecordKind[In, Out]) -> Response:
    services = context.services
    counts = await records.store(
        kind,
        context.database,
        services.vault,
        context.body,
        services.clock(),
        context.actor,
        context.if_match,
    )
    return Response(encode(counts))


async def read(
    context: AnyContext, kind: RecordKind[In, Out], filter_: records.Filter, segment: str
) -> Response:
    services, database = context.services, context.database
    scope = filter_.scope(kind.table)
    found = await versions.read_etag(database.read, database.organization_id, scope)
    etag = b'"%s"' % found.encode()
    if is_not_modified(context.request.headers, etag):
        return Response(b"", 304, headers=((b"etag", etag),))
    page = await records.read(
        kind,
        database,
        services.vault,
        services.read_auditor,
        filter_,
        lists.limits_of(context),
        services.clock(),
        context.actor,
    )
    response = lists.array_response(context, page, segment)
    return response._replace(headers=(*response.headers, (b"etag", etag)))


async def delete(context: AnyContext, kind: RecordKind[In, Out], name: str | None) -> Response:
    domain, now = context.query.domain, context.services.clock()
    deleted = await records.delete(
        kind, context.database, domain, name, now, context.actor, context.if_match
    )
    return Response(b'{"deleted":%d}' % deleted)
