"""Calls of the service that go on while the crawl runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from gleanery.client import ApiError, ClientError
from gleanery.client.retries import backoff, is_temporary
from gleanery.integrations.scrapy.coroutines import CoroutineRunner, is_closing

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

T = TypeVar("T")

_STEP_SECONDS = 1.0

_log = logging.getLogger(__name__)


class PatientCalls:
    """Calls of the service, each repeated until it succeeds.

    When the spider closes, they end if no call succeeds for ``close_seconds``.
    """

    def __init__(self, crawler: Crawler, runner: CoroutineRunner, close_seconds: float) -> None:
        self._crawler = crawler
        self._runner = runner
        self._close_seconds = close_seconds
        self._closes_at: float | None = None
        self._is_waiting = False

    async def call(self, send: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result. Raise ClientError if it can never succeed, or the crawl has ended."""
        retries = 0
        while True:
            try:
                result = await self._runner.run(send())
            except ClientError as error:
                if not is_temporary(error) or not self._may_wait():
                    raise
                self._note_outage(error)
                await self._pause(_delay(error, retries))
                retries += 1
            else:
                self._is_waiting = False
                self._closes_at = None
                return result

    def _may_wait(self) -> bool:
        """Return True while the crawl runs, and for some time after the last success."""
        if not is_closing(self._crawler):
            return True
        if self._closes_at is None:
            self._closes_at = time.monotonic() + self._close_seconds
        return time.monotonic() < self._closes_at

    def _note_outage(self, error: ClientError) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            _log.warning("%s. Files wait until Gleanery responds", str(error).rstrip("."))

    async def _pause(self, seconds: float) -> None:
        """Wait for the next attempt. Return earlier if the crawl ends."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._may_wait():
            await self._runner.run(asyncio.sleep(min(left, _STEP_SECONDS)))


def _delay(error: ClientError, retries: int) -> float:
    asked = error.retry_after if isinstance(error, ApiError) else None
    return max(asked or 0.0, backoff(retries))
