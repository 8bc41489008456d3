"""The change feed over HTTP, with its long poll."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import ChangeQuery
from gleanery.storage import group_lock
from gleanery.storage.notifications import Watch
from gleanery.storage.outputs import changes


async def get_changes(call: RequestContext[ChangeQuery, None]) -> Response:
    feed = await _read(call)
    if not feed.changes and not feed.is_ahead and call.query.wait:
        feed = await _wait(call)
    changes = await call.with_links(feed.changes)
    return Response(b'{"cursor":%d,"changes":[' % feed.cursor, more=(changes, b"]}"))


async def _wait(call: RequestContext[ChangeQuery, None]) -> changes.Feed:
    seconds = min(call.query.wait, call.services.settings.longest_wait)
    deadline = time.monotonic() + seconds
    line = group_lock.line(call.organization_id, call.path["group_id"])
    async with call.services.database.watch(line) as watch, _stopped_when_gone(call, watch):
        while True:
            feed = await _read(call)
            left = deadline - time.monotonic()
            if feed.changes or left <= 0:
                return feed
            with call.slot.parked_in(call.services.waits):
                has_news = await watch.wait(left)
            if not has_news:
                return feed
            await call.services.scheduler.turn(call.slot)


@asynccontextmanager
async def _stopped_when_gone(
    call: RequestContext[ChangeQuery, None], watch: Watch
) -> AsyncIterator[None]:
    """Nobody waits for the sake of a client that has gone."""

    async def look_out() -> None:
        await call.request.gone()
        watch.stop()

    lookout = asyncio.create_task(look_out())
    try:
        yield
    finally:
        lookout.cancel()


async def _read(call: RequestContext[ChangeQuery, None]) -> changes.Feed:
    s, query = call.services, call.query
    return await changes.read_feed(
        call.database,
        call.organization_id,
        call.path["group_id"],
        call.cursor,
        query.limit,
        s.clock(),
    )
