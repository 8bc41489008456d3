"""The cookie operations."""

from __future__ import annotations

from gleanery.api.context import Answer, Call
from gleanery.models.requests import CookieDeletion, CookieIn, DomainQuery
from gleanery.storage.sessions import cookies
from gleanery.values.json_text import encode


async def set_cookies(call: Call[None, list[CookieIn]]) -> Answer:
    s = call.services
    tally = await cookies.store_cookies(
        call.database, s.vault, call.organization_id, call.body, s.clock(), call.by
    )
    return Answer(encode(tally))


async def get_cookies(call: Call[DomainQuery, None]) -> Answer:
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
    return Answer(encode(listed))


async def delete_cookies(call: Call[CookieDeletion, None]) -> Answer:
    query, now = call.query, call.services.clock()
    deleted = await cookies.delete_cookies(
        call.database, call.organization_id, query.domain, query.name, now, call.by
    )
    return Answer(b'{"deleted":%d}' % deleted)
