"""Queues of the writers in this process that change the same rows."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Literal
from weakref import WeakValueDictionary

from gleanery.errors import Unavailable

_QUEUE_SECONDS = 20.0  # maximum wait of a writer for earlier writers


class _QueueLock(asyncio.Lock):
    """Serialises the writers of one queue key; a writer waits for a limited time."""

    async def acquire(self) -> Literal[True]:
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                return await super().acquire()
        except TimeoutError:
            raise Unavailable("Too many requests write here at once; try again") from None


class WriterQueues:
    """The queues, which exist while somebody uses them."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[int, Hashable], _QueueLock] = WeakValueDictionary()

    def turn(self, organization_id: int, queue_key: Hashable) -> AbstractAsyncContextManager[None]:
        """Wait until the earlier writers with this key are done; None is no key."""
        if queue_key is None:
            return nullcontext()
        key = (organization_id, queue_key)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = _QueueLock()
        return lock
