"""The handlers of cookies."""

from __future__ import annotations

from gleanery.api.context import RequestContext
from gleanery.api.handlers import session_records
from gleanery.api.response import Response
from gleanery.models.session_state import Cookie
from gleanery.service.resources.sessions.models import CookieDeletion, DomainQuery
from gleanery.storage.sessions import cookies
from gleanery.storage.sessions.records import Filter


async def set_cookies(context: RequestContext[None, list[Cookie]]) -> Response:
    return await session_records.store(context, cookies.COOKIES)


async def get_cookies(context: RequestContext[DomainQuery, None]) -> Response:
    filter_ = Filter(context.query.domain)
    return await session_records.read(context, cookies.COOKIES, filter_, "cookies")


async def delete_cookies(context: RequestContext[CookieDeletion, None]) -> Response:
    return await session_records.delete(context, cookies.COOKIES, context.query.name)
