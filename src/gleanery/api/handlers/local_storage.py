"""The local-storage operations."""

from __future__ import annotations

from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import LocalStorageDeletion, LocalStorageIn, LocalStorageQuery
from gleanery.storage.sessions import local_storage
from gleanery.values.json_text import encode


async def set_local_storage(call: RequestContext[None, list[LocalStorageIn]]) -> Response:
    s = call.services
    tally = await local_storage.store_entries(
        call.database, s.vault, call.organization_id, call.body, s.clock(), call.by
    )
    return Response(encode(tally))


async def get_local_storage(call: RequestContext[LocalStorageQuery, None]) -> Response:
    s, query = call.services, call.query
    listed = await local_storage.list_entries(
        call.database,
        s.vault,
        s.readings,
        call.organization_id,
        query.domain,
        query.for_group,
        s.clock(),
        call.by,
    )
    return Response(encode(listed))


async def delete_local_storage(call: RequestContext[LocalStorageDeletion, None]) -> Response:
    query, now = call.query, call.services.clock()
    deleted = await local_storage.delete_entries(
        call.database, call.organization_id, query.domain, query.key, now, call.by
    )
    return Response(b'{"deleted":%d}' % deleted)
