"""The item pipeline: it stores items in batches, without blocking the reactor."""

from __future__ import annotations

import asyncio
import atexit
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from scrapy import version_info
from scrapy.exceptions import DropItem
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from gleanery.client.queue.batches import BatchQueue
from gleanery.client.queue.sender import Events, Sender
from gleanery.integrations.scrapy.coroutines import call_later
from gleanery.integrations.scrapy.items import InvalidItem, ItemEncoder, OutputPusher
from gleanery.integrations.scrapy.runs import runs_of
from gleanery.integrations.scrapy.settings import GleanerySettings

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler


logger = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0


class _HeldLine(NamedTuple):
    """Line for which there is no room yet."""

    line: bytes
    added: Deferred[None]
    """Fires when the line has room."""


class GleaneryPipeline:
    """Item pipeline that stores items as outputs of a group."""

    def __init__(self, settings: GleanerySettings, crawler: Crawler) -> None:
        settings.require_group()
        self._settings = settings
        self._crawler = crawler
        self._encoder = ItemEncoder(settings)
        self._run = runs_of(crawler).open(settings)
        self._pending: BatchQueue[bytes] = BatchQueue(settings.batch_size, settings.batch_seconds)
        self._held: deque[_HeldLine] = deque()
        self._has_paused = False
        self._has_timer = False
        self._stopped_at: float | None = None
        """Time at which the crawl was stopped while no item could be stored."""
        self._has_given_up = False
        self._sender: Sender | None = None  # until the spider is opened
        self._ended: Deferred[None] = Deferred()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(GleanerySettings.from_crawler(crawler), crawler)

    def open_spider(self, spider: Spider | None = None) -> None:
        call = _find_reactor()
        events = Events(
            add=lambda name, number: call(self._count, name, number),
            has_room=lambda: call(self._continue),
            ended=lambda: call(self._ended.callback, None),
        )
        settings = self._settings
        self._sender = Sender(
            self._pending,
            settings.open_spool(),
            settings.open_rejected(),
            events,
            connect=settings.client,
            target=OutputPusher(settings, self._run),
            max_retries=settings.max_retries,
            close_seconds=settings.close_seconds,
            producer="this spider",
        )
        atexit.register(self._keep_unsent)
        self._sender.start()

    def process_item(self, item: Any, spider: Spider | None = None) -> Any:
        """Add the item to the open batch. Return a coroutine if there is no room for it yet."""
        try:
            line = self._encoder.encode(item)
        except InvalidItem:
            self._count("invalid", 1)
            raise
        if self._has_given_up:
            raise self._lose()
        if not self._held and self._pending.add(line, len(line)):
            return item
        held = _HeldLine(line, Deferred())
        self._held.append(held)  # at once, so that no later item overtakes it
        self._pause()
        self._watch()
        return self._wait(item, held)

    def close_spider(self, spider: Spider | None = None) -> Any:
        """Return what Scrapy waits for: in version 2.13, only a Deferred."""
        closing = self._close()
        return closing if version_info >= (2, 14) else deferred_from_coro(closing)

    async def _close(self) -> None:
        if self._sender is None:  # a component has failed at the start, and nothing is to be sent
            return
        self._pending.end(self._stopped_at)
        await maybe_deferred_to_future(self._ended)
        atexit.unregister(self._keep_unsent)

    async def _wait(self, item: Any, held: _HeldLine) -> Any:
        """Hold back the spider until there is room for its item."""
        await maybe_deferred_to_future(held.added)
        return item

    def _keep_unsent(self) -> None:
        """Write everything to the disk: the process ends without the end of the crawl."""
        assert self._sender is not None
        self._sender.keep_unsent([held.line for held in self._held])

    def _pause(self) -> None:
        """Let the engine start no requests: Scrapy alone would collect items of many responses."""
        engine = self._crawler.engine
        if engine is not None and not engine.paused:
            engine.pause()
            self._has_paused = True

    def _continue(self) -> None:
        """Add the lines that wait, in their order, as far as there is room."""
        while self._held and self._pending.add(line := self._held[0].line, len(line)):
            self._held.popleft().added.callback(None)
        if self._has_paused and not self._held and self._crawler.engine is not None:
            self._crawler.engine.unpause()
            self._has_paused = False

    def _watch(self) -> None:
        """Look at the lines that wait every second: Scrapy closes no pipeline before they end."""
        if not self._has_timer:
            self._has_timer = True
            call_later(_CHECK_SECONDS, self._check_held)

    def _check_held(self) -> None:
        self._has_timer = False
        if self._held:
            self._watch()
            if self._must_give_up():
                self._give_up()

    def _must_give_up(self) -> bool:
        """Return True if the crawl was stopped, and neither service nor disk takes items."""
        if self._crawler.crawling or self._sender is None or not self._sender.is_disk_failing:
            self._stopped_at = None
            return False
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
        return time.monotonic() - self._stopped_at >= self._settings.close_seconds

    def _give_up(self) -> None:
        logger.critical("Items are lost: neither Gleanery nor the disk takes them")
        self._has_given_up = True
        while self._held:
            self._held.popleft().added.errback(self._lose())

    def _lose(self) -> DropItem:
        self._count("lost", 1)
        return DropItem("Neither Gleanery nor the disk takes it")

    def _count(self, name: str, number: int) -> None:
        if name == "lost":
            self._run.note_lost(number)
        elif name == "left_in_spool":
            self._run.note_left(number)
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(f"gleanery/{name}", number)


def _find_reactor() -> Callable[..., object]:
    """Return a function with which another thread calls a function in the reactor's thread."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # a reactor without asyncio
        from twisted.internet import reactor

        return reactor.callFromThread  # type: ignore[no-any-return]

    def call(function: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process is ending
            loop.call_soon_threadsafe(function, *arguments)

    return call
