"""The group operations."""

from __future__ import annotations

from gleanery.api.calls import Answer, Call
from gleanery.store import chores


async def delete_group(call: Call[None, None]) -> Answer:
    s = call.services
    deleted = await chores.delete_group(
        s.database, call.organization_id, call.path["group_id"], s.clock
    )
    return Answer(b'{"deleted":%d}' % deleted)


async def delete_job(call: Call[None, None]) -> Answer:
    s, path = call.services, call.path
    deleted = await chores.delete_job(
        s.database, call.organization_id, path["group_id"], path["job_id"], s.clock
    )
    return Answer(b'{"deleted":%d}' % deleted)
