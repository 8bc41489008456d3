"""The group operations."""

from __future__ import annotations

from gleanery.api import urls
from gleanery.api.context import Answer, Call
from gleanery.models.requests import GroupSettings, GroupsQuery
from gleanery.storage.groups import catalog
from gleanery.values.json_text import encode


async def get_groups(call: Call[GroupsQuery, None]) -> Answer:
    query = call.query
    page, more = await catalog.list_groups(
        call.database, call.organization_id, call.cursor, query.limit
    )
    body = encode(page)
    if more is None:
        return Answer(body)
    follows = {"limit": query.limit, "cursor": more}
    return Answer(body, headers=urls.next_page(call, "groups", query=follows))


async def get_group(call: Call[None, None]) -> Answer:
    group = await catalog.show_group(call.database, call.organization_id, call.path["group_id"])
    return Answer(encode(group))


async def set_group(call: Call[None, GroupSettings]) -> Answer:
    s = call.services
    group = await catalog.set_group(
        call.database, s.schemas, call.organization_id, call.path["group_id"], call.body, s.clock
    )
    return Answer(encode(group))


async def delete_group(call: Call[None, None]) -> Answer:
    s = call.services
    deleted = await catalog.delete_group(
        call.database, call.organization_id, call.path["group_id"], s.clock
    )
    return Answer(b'{"deleted":%d}' % deleted)


async def delete_job(call: Call[None, None]) -> Answer:
    s, path = call.services, call.path
    deleted = await catalog.delete_job(
        call.database, call.organization_id, path["group_id"], path["job_id"], s.clock
    )
    return Answer(b'{"deleted":%d}' % deleted)
