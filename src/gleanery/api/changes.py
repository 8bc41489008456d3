"""The change feed over HTTP, with its long poll."""

from __future__ import annotations

import time

from gleanery.api.calls import Answer, Call
from gleanery.records import ChangeQuery
from gleanery.store import changes, groups


async def get_changes(call: Call[ChangeQuery, None]) -> Answer:
    feed = await _read(call)
    if not feed.changes and not feed.is_ahead and call.query.wait:
        feed = await _wait(call)
    return Answer(b'{"cursor":%d,"changes":[%s]}' % (feed.cursor, b",".join(feed.changes)))


async def _wait(call: Call[ChangeQuery, None]) -> changes.Feed:
    seconds = min(call.query.wait, call.services.settings.longest_wait)
    deadline = time.monotonic() + seconds
    line = groups.line(call.organization_id, call.path["group_id"])
    async with call.services.database.watch(line) as watch:
        while True:
            feed = await _read(call)
            left = deadline - time.monotonic()
            if feed.changes or left <= 0 or not await watch.wait(left):
                return feed


async def _read(call: Call[ChangeQuery, None]) -> changes.Feed:
    s, query = call.services, call.query
    return await changes.read_feed(
        s.database,
        call.organization_id,
        call.path["group_id"],
        query.cursor,
        query.limit,
        s.clock(),
    )
