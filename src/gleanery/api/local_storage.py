"""The local-storage operations."""

from __future__ import annotations

from pydantic import TypeAdapter

from gleanery.api.calls import Answer, Call
from gleanery.records import DomainQuery, LocalStorageIn, LocalStorageOut, Tally
from gleanery.store import local_storage

_LIST = TypeAdapter(list[LocalStorageOut])
_TALLY = TypeAdapter(Tally)


async def set_local_storage(call: Call[None, list[LocalStorageIn]]) -> Answer:
    s = call.services
    tally = await local_storage.store_entries(
        s.database, s.vault, call.organization_id, call.body, s.clock()
    )
    return Answer(_TALLY.dump_json(tally))


async def get_local_storage(call: Call[DomainQuery, None]) -> Answer:
    s = call.services
    listed = await local_storage.list_entries(
        s.database, s.vault, call.organization_id, call.query.domain
    )
    return Answer(_LIST.dump_json(listed))
