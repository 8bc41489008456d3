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


async def get_changes(context: RequestContext[ChangeQuery, None]) -> Response:
    feed = await _read(context)
    if not feed.changes and not feed.is_ahead and context.query.wait:
        feed = await _wait(context)
    changes = await context.with_links(feed.changes)
    return Response(b'{"cursor":%d,"changes":[' % feed.cursor, more=(changes, b"]}"))


async def _wait(context: RequestContext[ChangeQuery, None]) -> changes.Feed:
    seconds = min(context.query.wait, context.services.settings.longest_wait)
    deadline = time.monotonic() + seconds
    channel = group_lock.channel(context.organization_id, context.path["group_id"])
    async with (
        context.services.database.watch(channel) as watch,
        _stopped_when_gone(context, watch),
    ):
        while True:
            feed = await _read(context)
            left = deadline - time.monotonic()
            if feed.changes or left <= 0:
                return feed
            with context.slot.parked_in(context.services.waits):
                has_news = await watch.wait(left)
            if not has_news:
                return feed
            await context.services.scheduler.turn(context.slot)


@asynccontextmanager
async def _stopped_when_gone(
    context: RequestContext[ChangeQuery, None], watch: Watch
) -> AsyncIterator[None]:
    """Nobody waits for the sake of a client that has gone."""

    async def look_out() -> None:
        await context.request.disconnected()
        watch.stop()

    lookout = asyncio.create_task(look_out())
    try:
        yield
    finally:
        lookout.cancel()


async def _read(context: RequestContext[ChangeQuery, None]) -> changes.Feed:
    s, query = context.services, context.query
    return await changes.read_feed(
        context.database,
        context.organization_id,
        context.path["group_id"],
        context.cursor,
        query.limit,
        s.clock(),
    )
