"""The handlers of groups and their jobs."""

from __future__ import annotations

from gleanery.api import urls
from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import GroupSettings, GroupsQuery
from gleanery.storage.groups import catalog
from gleanery.values.json_text import encode


async def get_groups(context: RequestContext[GroupsQuery, None]) -> Response:
    limit = context.query.limit
    groups, next_cursor = await catalog.list_groups(context.database, context.cursor, limit)
    body = encode(groups)
    if next_cursor is None:
        return Response(body)
    query = {"limit": limit, "cursor": next_cursor}
    return Response(body, headers=urls.next_page(context, "groups", query=query))


async def get_group(context: RequestContext[None, None]) -> Response:
    group = await catalog.read_group(context.database, context.path["group_id"])
    return Response(encode(group))


async def set_group(context: RequestContext[None, GroupSettings]) -> Response:
    services, group_id = context.services, context.path["group_id"]
    group = await catalog.set_group(
        context.database, services.schema_validator, group_id, context.body, services.clock
    )
    return Response(encode(group))


async def delete_group(context: RequestContext[None, None]) -> Response:
    group_id, clock = context.path["group_id"], context.services.clock
    deleted = await catalog.delete_group(context.database, group_id, clock, context.actor)
    return Response(b'{"deleted":%d}' % deleted)


async def delete_job(context: RequestContext[None, None]) -> Response:
    group_id, job_id = context.path["group_id"], context.path["job_id"]
    clock = context.services.clock
    deleted = await catalog.delete_job(context.database, group_id, job_id, clock)
    return Response(b'{"deleted":%d}' % deleted)
