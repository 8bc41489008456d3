"""The handlers of local storage."""

from __future__ import annotations

from gleanery.api.context import RequestContext
from gleanery.api.handlers import session_records
from gleanery.api.response import Response
from gleanery.models.session_state import LocalStorageEntry
from gleanery.service.resources.sessions.models import LocalStorageDeletion, LocalStorageQuery
from gleanery.storage.sessions import local_storage
from gleanery.storage.sessions.records import Filter


async def set_local_storage(context: RequestContext[None, list[LocalStorageEntry]]) -> Response:
    return await session_records.store(context, local_storage.LOCAL_STORAGE)


async def get_local_storage(context: RequestContext[LocalStorageQuery, None]) -> Response:
    filter_ = Filter(context.query.domain, context.query.for_group)
    return await session_records.read(
        context, local_storage.LOCAL_STORAGE, filter_, "local-storage"
    )


async def delete_local_storage(context: RequestContext[LocalStorageDeletion, None]) -> Response:
    return await session_records.delete(context, local_storage.LOCAL_STORAGE, context.query.key)
