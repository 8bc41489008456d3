"""The group operations."""

from __future__ import annotations

from gleanery.api import urls
from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import GroupSettings, GroupsQuery
from gleanery.storage.groups import catalog
from gleanery.values.json_text import encode


async def get_groups(context: RequestContext[GroupsQuery, None]) -> Response:
    query = context.query
    page, more = await catalog.list_groups(context.database, context.cursor, query.limit)
    body = encode(page)
    if more is None:
        return Response(body)
    follows = {"limit": query.limit, "cursor": more}
    return Response(body, headers=urls.next_page(context, "groups", query=follows))


async def get_group(context: RequestContext[None, None]) -> Response:
    group = await catalog.show_group(context.database, context.path["group_id"])
    return Response(encode(group))


async def set_group(context: RequestContext[None, GroupSettings]) -> Response:
    s = context.services
    group = await catalog.set_group(
        context.database, s.schemas, context.path["group_id"], context.body, s.clock
    )
    return Response(encode(group))


async def delete_group(context: RequestContext[None, None]) -> Response:
    s = context.services
    deleted = await catalog.delete_group(context.database, context.path["group_id"], s.clock)
    return Response(b'{"deleted":%d}' % deleted)


async def delete_job(context: RequestContext[None, None]) -> Response:
    s, path = context.services, context.path
    deleted = await catalog.delete_job(context.database, path["group_id"], path["job_id"], s.clock)
    return Response(b'{"deleted":%d}' % deleted)
