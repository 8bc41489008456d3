"""The handler of the change feed, with long polling."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from gleanery.service.api.context import RequestContext, api_url
from gleanery.service.api.response import Response
from gleanery.service.foundation.models import PageMetadata
from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.changes.feed import Feed, read_feed
from gleanery.service.resources.changes.models import ChangeQuery
from gleanery.service.resources.files.links import with_links
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import Database, Subscription


async def get_changes(context: RequestContext[ChangeQuery, None]) -> Response:
    feed = await _read_now(context)
    if not feed.parts and not feed.is_beyond_end and context.query.wait:
        feed = await _wait(context)
    _record_lag(context, feed)
    parts = [await with_links(context, part) for part in feed.parts]
    metadata = json_text.encode(_metadata(context, feed))
    start = b'{"metadata":%s,"cursor":%d,"changes":[' % (metadata, feed.cursor)
    return Response(start, more=(*parts, b"]}"))


async def _read_now(context: RequestContext[ChangeQuery, None]) -> Feed:
    if context.cursor == 0:  # the last purge and restore decide which cursors the client gets
        return await _read(context, context.database)
    return await paging.read_from_replica(
        context.services.database,
        context.organization_id,
        partial(_read, context),
        lambda feed: feed.has_more,
    )


def _record_lag(context: RequestContext[ChangeQuery, None], feed: Feed) -> None:
    now = context.services.clock()
    lag = 0 if feed.first_seq is None else now - feed.first_seq
    context.services.telemetry.record_feed_lag(lag / timestamps.SECOND, feed.has_more)


def _metadata(context: RequestContext[ChangeQuery, None], feed: Feed) -> PageMetadata:
    if not feed.has_more:
        return PageMetadata(next_url=None, next_cursor=None)
    query = dict(context.next_page_parameters) | {"cursor": feed.cursor}
    group = context.path["group_id"]
    next_url = api_url(context.services.settings.address, "changes", group, query=query)
    return PageMetadata(next_url=next_url, next_cursor=feed.cursor)


async def _wait(context: RequestContext[ChangeQuery, None]) -> Feed:
    """Wait until there are changes, the time has expired, or the client has disconnected."""
    seconds = min(context.query.wait, context.services.settings.max_wait_seconds)
    deadline = time.monotonic() + seconds
    channel = group_lock.channel(context.organization_id, context.path["group_id"])
    async with (
        context.services.database.subscribe(channel) as subscription,
        _stop_on_disconnect(context, subscription),
    ):
        while True:
            feed = await _read(context, context.database)
            left = deadline - time.monotonic()
            if feed.parts or left <= 0:
                return feed
            limit = context.services.capacity.long_polls
            with context.slot.parked_in(limit), context.request.state.idle():
                was_notified = await subscription.wait(left)
            if not was_notified:
                return feed
            await context.services.capacity.scheduler.wait_to_continue(context.slot)


@asynccontextmanager
async def _stop_on_disconnect(
    context: RequestContext[ChangeQuery, None], subscription: Subscription
) -> AsyncIterator[None]:
    """End the wait when the client disconnects."""

    async def stop() -> None:
        await context.request.disconnected()
        subscription.stop()

    task = asyncio.create_task(stop())
    try:
        yield
    finally:
        task.cancel()


async def _read(context: RequestContext[ChangeQuery, None], database: Database) -> Feed:
    return await read_feed(
        database,
        context.services.computations,
        context.path["group_id"],
        context.query,
        context.cursor,
        context.services.settings.max_page_bytes,
        context.services.clock(),
        context.hold_response,
    )
