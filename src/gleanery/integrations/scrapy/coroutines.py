"""Coroutines of asyncio in Scrapy: the client's calls, whatever the reactor is."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from gleanery.client import TimedOut

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Timer(Protocol):
    """Call that is not made yet."""

    def cancel(self) -> object: ...


def has_event_loop() -> bool:
    """Return True if Scrapy runs in an event loop of asyncio, as it does by default."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class CoroutineRunner:
    """Awaits coroutines of asyncio. Beside another reactor, they run in a thread of their own."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result, without blocking the reactor."""
        if has_event_loop():
            return await coroutine
        future = asyncio.run_coroutine_threadsafe(coroutine, self._require_loop())
        result: T = await maybe_deferred_to_future(_to_deferred(future))
        return result

    def close(self) -> None:
        """End the thread, if there is one."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(
                target=self._loop.run_forever, name="gleanery-client", daemon=True
            ).start()
        return self._loop


async def within(seconds: float, coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a call of the service. Raise TimedOut if it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await coroutine
    except TimeoutError:
        raise TimedOut(f"The service did not respond within {seconds:.0f} seconds") from None


def _to_deferred(future: Future[T]) -> Deferred[T]:
    from twisted.internet import reactor

    deferred: Deferred[T] = Deferred()

    def finish() -> None:
        error = future.exception()
        if error is not None:
            deferred.errback(error)
        else:
            deferred.callback(future.result())

    call_in_reactor: Any = reactor
    future.add_done_callback(lambda _: call_in_reactor.callFromThread(finish))
    return deferred


def start(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine of Scrapy in the background, and log its failure."""
    deferred_from_coro(coroutine).addErrback(_log_failure)


def _log_failure(failure: Any) -> None:
    details = (failure.type, failure.value, failure.getTracebackObject())
    _log.error("Unexpected error", exc_info=details)


def call_later(seconds: float, function: Callable[[], object]) -> Timer:
    """Call a function in the thread of the reactor."""
    if has_event_loop():
        return asyncio.get_running_loop().call_later(seconds, function)
    from twisted.internet import reactor

    any_reactor: Any = reactor
    timer: Timer = any_reactor.callLater(seconds, function)
    return timer


async def download(crawler: Crawler, request: Request) -> Response:
    """Download a request through the middlewares, without a callback."""
    engine: Any = crawler.engine
    if hasattr(engine, "download_async"):  # Scrapy 2.14 or newer
        coroutine: Coroutine[Any, Any, Response] = engine.download_async(request)
        return await coroutine
    response: Response = await maybe_deferred_to_future(engine.download(request))
    return response


def is_closing(crawler: Crawler) -> bool:
    """Return True if the spider closes, for whatever reason. Scrapy has no signal for it."""
    slot = getattr(crawler.engine, "_slot", None)
    return not crawler.crawling or getattr(slot, "closing", None) is not None


@contextmanager
def held_open(crawler: Crawler) -> Iterator[None]:
    """Let the engine download in this block, even if the spider closes.

    While it closes, the engine waits only for the requests of its slot. A slot without requests
    is closed, and every request after that fails, because the slot would be closed again.
    """
    slot = getattr(crawler.engine, "_slot")  # noqa: B009  # Scrapy has no public name for it
    marker = object()
    slot.add_request(marker)
    try:
        yield
    finally:
        if slot.closing is None or not slot.closing.called:
            slot.remove_request(marker)


def close_spider(crawler: Crawler, reason: str) -> None:
    """Begin to close the spider. The caller must not wait for it, if it handles a request."""
    engine: Any = crawler.engine
    if hasattr(engine, "close_spider_async"):  # Scrapy 2.14 or newer
        start(engine.close_spider_async(reason=reason))
    else:
        engine.close_spider(crawler.spider, reason).addErrback(_log_failure)
