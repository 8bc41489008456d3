"""The group operations."""

from __future__ import annotations

from gleanery.api import urls
from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import GroupSettings, GroupsQuery
from gleanery.storage.groups import catalog
from gleanery.values.json_text import encode


async def get_groups(call: RequestContext[GroupsQuery, None]) -> Response:
    query = call.query
    page, more = await catalog.list_groups(
        call.database, call.organization_id, call.cursor, query.limit
    )
    body = encode(page)
    if more is None:
        return Response(body)
    follows = {"limit": query.limit, "cursor": more}
    return Response(body, headers=urls.next_page(call, "groups", query=follows))


async def get_group(call: RequestContext[None, None]) -> Response:
    group = await catalog.show_group(call.database, call.organization_id, call.path["group_id"])
    return Response(encode(group))


async def set_group(call: RequestContext[None, GroupSettings]) -> Response:
    s = call.services
    group = await catalog.set_group(
        call.database, s.schemas, call.organization_id, call.path["group_id"], call.body, s.clock
    )
    return Response(encode(group))


async def delete_group(call: RequestContext[None, None]) -> Response:
    s = call.services
    deleted = await catalog.delete_group(
        call.database, call.organization_id, call.path["group_id"], s.clock
    )
    return Response(b'{"deleted":%d}' % deleted)


async def delete_job(call: RequestContext[None, None]) -> Response:
    s, path = call.services, call.path
    deleted = await catalog.delete_job(
        call.database, call.organization_id, path["group_id"], path["job_id"], s.clock
    )
    return Response(b'{"deleted":%d}' % deleted)
