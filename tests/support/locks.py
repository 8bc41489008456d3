"""A database lock that a test holds from outside the service."""

from __future__ import annotations

import asyncio
import threading

from gleanery.service.storage.database import Transaction
from gleanery.service.storage.engines import open_engine
from tests.support.service import Service
from tests.support.waiting import TIMEOUT_SECONDS

GROUP_LOCK = "UPDATE groups SET name = name WHERE name = 'group'"


class LockHolder:
    """Holds a lock in its own thread, as another node would; by default the lock on a group."""

    def __init__(self, service: Service, lock: str = GROUP_LOCK) -> None:
        self._service = service
        self._lock = lock
        self._held, self._released = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._hold()))

    async def _hold(self) -> None:
        async with open_engine(self._service.settings) as database:
            await database.for_all_tenants().write(self._wait)

    async def _wait(self, transaction: Transaction) -> None:
        await transaction.fetch(self._lock)
        self._held.set()
        self._released.wait(TIMEOUT_SECONDS)  # blocks the thread on purpose: it has no other work

    def __enter__(self) -> LockHolder:
        self._thread.start()
        assert self._held.wait(TIMEOUT_SECONDS)
        return self

    def release(self) -> None:
        self._released.set()
        self._thread.join()

    def __exit__(self, *_: object) -> None:
        self.release()
