"""The handlers of groups and their jobs."""

from __future__ import annotations

from gleanery.service.api.context import (
    AnyContext,
    RequestContext,
    api_url,
    array_response,
    limits_of,
)
from gleanery.service.api.response import Response
from gleanery.service.foundation.json_schema import SchemaValidator
from gleanery.service.foundation.models import PageMetadata
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.fields.reports import read_fields
from gleanery.service.resources.groups import catalog
from gleanery.service.resources.groups.models import (
    FieldsQuery,
    GroupQuery,
    GroupSettings,
    GroupsQuery,
)
from gleanery.service.storage.paging import ListPage, PageLimits

_MAX_JOBS = 1000
_MAX_STORED_BYTES = 1024 * 1024  # a response to a change cannot wait for memory


async def get_groups(context: RequestContext[GroupsQuery, None]) -> Response:
    groups, next_cursor = await catalog.list_groups(context.database, limits_of(context))
    texts = [_encode(context, group, {}) for group in groups]
    return array_response(context, ListPage(texts, next_cursor), "groups")


async def get_group(context: RequestContext[GroupQuery, None]) -> Response:
    limits = limits_of(context)
    group = await catalog.read_group(context.database, context.path["group_id"], limits)
    return Response(_encode(context, group, dict(context.next_page_parameters)))


async def set_group(context: RequestContext[None, GroupSettings]) -> Response:
    services, name = context.services, context.path["group_id"]
    await catalog.set_group(
        context.database,
        services[SchemaValidator],
        name,
        context.body,
        services.clock,
        context.actor,
    )
    max_bytes = min(_MAX_STORED_BYTES, services.settings.max_page_bytes)
    limits = PageLimits(0, _MAX_JOBS, max_bytes)
    return Response(_encode(context, await catalog.read_group(context.database, name, limits), {}))


def _encode(context: AnyContext, group: catalog.Group, query: dict[str, str]) -> bytes:
    """Render a group. ``query`` has the parameters of the next page of its jobs."""
    metadata = PageMetadata(next_url=None, next_cursor=None)
    if (cursor := group.jobs.next_cursor) is not None:
        address = context.services.settings.address
        next_url = api_url(address, "groups", group.name, query=query | {"cursor": cursor})
        metadata = PageMetadata(next_url=next_url, next_cursor=cursor)
    return b'%s,"countries":%s,"has_more_countries":%s,"jobs":[%s],"metadata":%s}' % (
        group.settings.removesuffix(b"}"),
        encode(group.countries.counts),
        encode(group.countries.has_more),
        b",".join(group.jobs.records),
        encode(metadata),
    )


async def get_fields(context: RequestContext[FieldsQuery, None]) -> Response:
    group, job = context.path["group_id"], context.query.job_id
    computations = context.services.computations
    now = context.services.clock()
    return Response(await read_fields(context.database, computations, group, job, now))


async def delete_group(context: RequestContext[None, None]) -> Response:
    group_id, clock = context.path["group_id"], context.services.clock
    deleted = await catalog.delete_group(context.database, group_id, clock, context.actor)
    return Response(b'{"deleted":%d}' % deleted)


async def delete_job(context: RequestContext[None, None]) -> Response:
    group_id, job_id = context.path["group_id"], context.path["job_id"]
    clock = context.services.clock
    deleted = await catalog.delete_job(context.database, group_id, job_id, clock)
    return Response(b'{"deleted":%d}' % deleted)
