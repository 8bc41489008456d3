"""The cookie operations."""

from __future__ import annotations

from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import CookieDeletion, CookieIn, DomainQuery
from gleanery.storage.sessions import cookies
from gleanery.values.json_text import encode


async def set_cookies(call: RequestContext[None, list[CookieIn]]) -> Response:
    s = call.services
    tally = await cookies.store_cookies(
        call.database, s.vault, call.organization_id, call.body, s.clock(), call.by
    )
    return Response(encode(tally))


async def get_cookies(call: RequestContext[DomainQuery, None]) -> Response:
    s = call.services
    listed = await cookies.list_cookies(
        call.database,
        s.vault,
        s.readings,
        call.organization_id,
        call.query.domain,
        s.clock(),
        call.by,
    )
    return Response(encode(listed))


async def delete_cookies(call: RequestContext[CookieDeletion, None]) -> Response:
    query, now = call.query, call.services.clock()
    deleted = await cookies.delete_cookies(
        call.database, call.organization_id, query.domain, query.name, now, call.by
    )
    return Response(b'{"deleted":%d}' % deleted)
