"""The cookie operations."""

from __future__ import annotations

from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import CookieDeletion, CookieIn, DomainQuery
from gleanery.storage.sessions import cookies
from gleanery.values.json_text import encode


async def set_cookies(context: RequestContext[None, list[CookieIn]]) -> Response:
    s = context.services
    tally = await cookies.store_cookies(
        context.database, s.vault, context.body, s.clock(), context.actor
    )
    return Response(encode(tally))


async def get_cookies(context: RequestContext[DomainQuery, None]) -> Response:
    s = context.services
    listed = await cookies.list_cookies(
        context.database,
        s.vault,
        s.read_auditor,
        context.query.domain,
        s.clock(),
        context.actor,
    )
    return Response(encode(listed))


async def delete_cookies(context: RequestContext[CookieDeletion, None]) -> Response:
    query, now = context.query, context.services.clock()
    deleted = await cookies.delete_cookies(
        context.database, query.domain, query.name, now, context.actor
    )
    return Response(b'{"deleted":%d}' % deleted)
