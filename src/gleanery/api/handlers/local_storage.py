"""The local-storage operations."""

from __future__ import annotations

from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import LocalStorageDeletion, LocalStorageIn, LocalStorageQuery
from gleanery.storage.sessions import local_storage
from gleanery.values.json_text import encode


async def set_local_storage(context: RequestContext[None, list[LocalStorageIn]]) -> Response:
    s = context.services
    tally = await local_storage.store_entries(
        context.database, s.vault, context.body, s.clock(), context.actor
    )
    return Response(encode(tally))


async def get_local_storage(context: RequestContext[LocalStorageQuery, None]) -> Response:
    s, query = context.services, context.query
    listed = await local_storage.list_entries(
        context.database,
        s.vault,
        s.read_auditor,
        query.domain,
        query.for_group,
        s.clock(),
        context.actor,
    )
    return Response(encode(listed))


async def delete_local_storage(context: RequestContext[LocalStorageDeletion, None]) -> Response:
    query, now = context.query, context.services.clock()
    deleted = await local_storage.delete_entries(
        context.database, query.domain, query.key, now, context.actor
    )
    return Response(b'{"deleted":%d}' % deleted)
