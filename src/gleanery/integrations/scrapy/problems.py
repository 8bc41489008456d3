"""What goes wrong in a crawl: the counts of a run, and the middlewares that notice it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from scrapy import signals
from scrapy.exceptions import DropItem, IgnoreRequest
from scrapy.http.request import NO_CALLBACK
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

FAILED_REQUESTS = "gleanery/requests_failed"
FAILED_STARTS = "gleanery/start_failed"


class LostItem(DropItem):
    """The item is dropped, although the project wants to store it."""


@dataclass
class Problems:
    """What a run does not have, although the site may have it."""

    requests: int = 0
    callbacks: int = 0
    items: int = 0
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.requests or self.callbacks or self.items or self.notes)

    def __add__(self, other: Problems) -> Problems:
        return Problems(
            self.requests + other.requests,
            self.callbacks + other.callbacks,
            self.items + other.items,
            [*self.notes, *(note for note in other.notes if note not in self.notes)],
        )

    def __str__(self) -> str:
        parts = [*self.notes]
        if self.requests:
            parts.append(f"{_number(self.requests, 'request')} failed")
        if self.callbacks:
            parts.append(f"{_number(self.callbacks, 'callback')} failed")
        if self.items:
            verb = "was" if self.items == 1 else "were"
            parts.append(f"{_number(self.items, 'item')} {verb} not stored")
        text = ", ".join(parts)
        return text[:1].upper() + text[1:]


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class RunDownloaderMiddleware:
    """Counts requests of the spider that failed, after all other middlewares have given up.

    No middleware sees an error that another one raises for a response, so the downloader is watched
    as well. A middleware of the project that raises IgnoreRequest leaves out a page on purpose.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._seen: WeakSet[Request] = WeakSet()
        """Requests whose error this middleware has seen."""
        crawler.signals.connect(self._watch, signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_exception(
        self, request: Request, exception: Exception, spider: Spider | None = None
    ) -> None:
        self._seen.add(request)
        if not isinstance(exception, IgnoreRequest):
            self._count_failed(request)

    def _watch(self) -> None:
        """Notice each request that fails. Scrapy has no signal for it."""
        engine: Any = self._crawler.engine
        fetch = engine.downloader.fetch

        def fetch_and_watch(request: Request, *arguments: Any) -> Any:
            fetched = fetch(request, *arguments)
            if isinstance(fetched, Deferred):
                fetched.addErrback(self._note_failure, request)
            return fetched

        engine.downloader.fetch = fetch_and_watch

    def _note_failure(self, failure: Any, request: Request) -> Any:
        is_chosen = failure.check(IgnoreRequest) and not _is_raised_by_scrapy(failure)
        if request not in self._seen and not is_chosen:
            self._count_failed(request)
        self._seen.discard(request)  # the spider may yield it again
        return failure

    def _count_failed(self, request: Request) -> None:
        if request.callback is not NO_CALLBACK:  # that of a component, such as robots.txt or a file
            _count(self._crawler, FAILED_REQUESTS)


def _is_raised_by_scrapy(failure: Any) -> bool:
    """Return True for a page that Scrapy gives up, for example after too many redirections."""
    frames = [frame for frame, _ in walk_tb(failure.getTracebackObject())]
    return bool(frames) and str(frames[-1].f_globals.get("__name__")).startswith("scrapy.")


class RunSpiderMiddleware:
    """Notices if a spider fails at its start: before Scrapy 2.19, it is just ``finished``."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        try:
            async for request in start:
                yield request
        except Exception:
            _count(self._crawler, FAILED_STARTS)
            raise

    def process_start_requests(
        self, start_requests: Iterable[Any], spider: Spider
    ) -> Iterator[Any]:
        """Do the same in a project that has other middlewares with this method only."""
        try:
            yield from start_requests
        except Exception:
            _count(self._crawler, FAILED_STARTS)
            raise


def _count(crawler: Crawler, name: str) -> None:
    if crawler.stats is not None:
        crawler.stats.inc_value(name)
