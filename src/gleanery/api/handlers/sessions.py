"""The handlers of sessions: the records of one host and profile."""

from __future__ import annotations

from gleanery.api import urls
from gleanery.api.context import RequestContext
from gleanery.api.response import Response
from gleanery.http import Header
from gleanery.service.resources.sessions.models import SessionDeletion, SessionsQuery
from gleanery.storage.sessions import summaries
from gleanery.values.json_text import encode


async def list_sessions(context: RequestContext[SessionsQuery, None]) -> Response:
    query = context.query
    host = None if query.domain is None else query.domain.removeprefix(".")
    page = await summaries.list_sessions(
        context.database,
        summaries.SummaryFilter(host, query.profile),
        query.cursor,
        query.limit,
        context.services.clock(),
    )
    headers: tuple[Header, ...] = ()
    if page.next_cursor is not None:
        parameters = dict(context.next_page_parameters) | {"cursor": page.next_cursor}
        headers = urls.next_page(context, "sessions", query=parameters)
    return Response(encode(page.sessions), headers=headers)


async def delete_session(context: RequestContext[SessionDeletion, None]) -> Response:
    query, now = context.query, context.services.clock()
    host = query.domain.removeprefix(".")
    deleted = await summaries.delete_session(
        context.database, host, query.profile, now, context.actor, context.if_match
    )
    return Response(b'{"deleted":%d}' % deleted)
