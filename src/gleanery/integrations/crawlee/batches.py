"""Batches: the items of concurrent calls, sent in one request."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gleanery.client import PushFailed

Item = Mapping[str, Any]
MAX_ITEMS = 1000


class _Call(NamedTuple):
    """Items of one call, and the future that it waits for."""

    items: Sequence[Item]
    stored: asyncio.Future[None]


class Batches:
    """Sends the items of concurrent calls together (group commit).

    A call returns when its items are stored. While a batch is being sent, the next one collects the
    items of other calls. So no item is only in memory when Crawlee marks its request as handled.
    """

    def __init__(self, send: Callable[[list[Item]], Awaitable[None]]) -> None:
        self._send = send
        self._calls: deque[_Call] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def add(self, items: Sequence[Item]) -> None:
        """Store the items, in their order. Raise the error that has kept them from being stored."""
        for start in range(0, len(items), MAX_ITEMS):
            call = _Call(
                items[start : start + MAX_ITEMS], asyncio.get_running_loop().create_future()
            )
            self._calls.append(call)
            if self._sender is None or self._sender.done():
                self._sender = asyncio.create_task(self._send_all())
            await call.stored

    async def _send_all(self) -> None:
        while calls := self._take():
            try:
                await self._send_together(calls)
            finally:  # the event loop may end
                for call in calls:
                    call.stored.cancel()

    def _take(self) -> list[_Call]:
        """Return the calls of the next batch. A call that was cancelled meanwhile is left out."""
        taken: list[_Call] = []
        count = 0
        while self._calls and (not taken or count + len(self._calls[0].items) <= MAX_ITEMS):
            call = self._calls.popleft()
            if not call.stored.done():
                taken.append(call)
                count += len(call.items)
        return taken

    async def _send_together(self, calls: list[_Call]) -> None:
        try:
            await self._send([item for call in calls for item in call.items])
        except PushFailed as error:
            if len(calls) == 1 or not error.errors:
                _fail(calls, error)
                return
            for call in calls:  # only the calls whose items are invalid fail
                await self._send_together([call])
        except Exception as error:
            _fail(calls, error)
        else:
            for call in calls:
                if not call.stored.done():
                    call.stored.set_result(None)


def _fail(calls: list[_Call], error: Exception) -> None:
    for call in calls:
        if not call.stored.done():
            call.stored.set_exception(error)
