"""Decides when each webhook gets its next event, and which process sends it.

Theory of operation
===================

Causes store events as rows of ``webhook_deliveries``, in their own transactions (``events``). One
process of all nodes delivers: the one that holds the lease, a row of ``metadata``. It renews the
lease every few seconds. If it dies, another process takes over when the lease has expired. A
process that stops in order gives the lease back.

The holder finds out what has changed (``scheduler``). It has a task for each enabled webhook
(``worker``), which sends one event at a time. So
the events of a webhook arrive in the order of their rows while it responds, and a slow webhook
delays no other one. The tasks share a number of connections fairly among the organizations.

The holder learns from notifications that there may be something to send, and looks at everything
from time to time, because a notification can be lost. Without the connection that listens for
them, it looks at everything every few seconds.

- **Events.** A task reads the rows that are due, sends them, and waits until the results are
  stored. If the process dies before that, the events are sent again: each is delivered at least
  once.
- **Doorbells.** ``outputs.changed`` has no row for each change. The task compares the position of a
  group with the last one that the webhook has accepted (``webhook_positions``). While the group
  goes on changing, the time between two doorbells becomes longer. The result of the first attempt
  is stored as a row. If it failed, the row waits for the next attempt like any other, and until
  then there is no other doorbell of that group.
- **Failures.** A failed delivery has its own schedule, and others go on. But after each failure the
  webhook rests, longer with each one in a row, at most for five minutes. So a webhook that does not
  respond costs little. The first retry comes before the events after it, so a short interruption
  does not change the order. When a webhook responds again after more than five minutes, everything
  that failed is sent at once.

Results are stored in groups (``recorder``), in transactions of one organization each. A result
is stored only if the row still has the number of attempts, and the time of the next one, that the
task has read. So a process that
lost the lease without noticing overwrites nothing.

See ``docs/explanation/webhooks.md``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gleanery.common.settings import Settings
from gleanery.service.foundation.errors import GleaneryError
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.webhooks.recorder import Counts
from gleanery.service.resources.webhooks.targets import Targets
from gleanery.service.storage import metadata
from gleanery.service.storage.database import Engine, Transaction

_log = logging.getLogger("gleanery")

LEASE_SECONDS = 10
_RENEW_SECONDS = 3.0
_LOOK_FOR_LEASE_SECONDS = 3.0
_RETRY_SECONDS = 1.0  # after an error of the database
_STOP_SECONDS = 12.0  # for attempts that have begun, and for their results


class _Lease(NamedTuple):
    """The value of the lease: who has it, and until when."""

    holder: str = ""
    until: int = 0

    @classmethod
    def parse(cls, text: str) -> _Lease:
        return cls(**json.loads(text)) if text else cls()

    def is_free(self, now: int) -> bool:
        """Return True if it has expired. One that ends too late was stored by a wrong clock."""
        return self.until <= now or self.until > now + 2 * LEASE_SECONDS * timestamps.SECOND


class Dispatcher:
    """Delivers events to webhooks while this process holds the lease, from start to stop."""

    def __init__(
        self,
        engine: Engine,
        vault: Vault,
        targets: Targets,
        settings: Settings,
        clock: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._vault = vault
        self._targets = targets
        self._settings = settings
        self._clock = clock
        self.counts = Counts()
        self._holder = uuid.uuid4().hex
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._renewed = 0.0
        """When the lease was taken or renewed, by the monotonic clock."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Finish the attempts that have begun, and give the lease back."""
        if self._task is not None:
            self._is_stopping = True
            self._woken.set()
            await asyncio.wait([self._task], timeout=_STOP_SECONDS)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def prepare(self) -> None:
        """Store that there are webhooks. Before that, no process looks for something to send."""
        await metadata.add_webhook_lease(self._engine)

    def wake(self) -> None:
        """Look for the lease now, because there may be the first webhook."""
        self._woken.set()

    @property
    def oldest_due_seconds(self) -> float:
        if self.counts.oldest_due is None:
            return 0.0
        return max(self._clock() - self.counts.oldest_due, 0) / timestamps.SECOND

    async def _run(self) -> None:
        while not self._is_stopping:
            try:
                if await self._take_lease():
                    try:
                        await self._deliver()
                    finally:
                        self.counts.waiting, self.counts.oldest_due = 0, None
                        await asyncio.shield(self._return_lease())
            except GleaneryError as error:
                _log.warning("events of webhooks wait", extra={"reason": str(error)})
            except Exception:
                _log.exception("the delivery of events to webhooks failed, and begins again")
            if not self._is_stopping:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), _LOOK_FOR_LEASE_SECONDS)
                self._woken.clear()

    async def _deliver(self) -> None:
        """Deliver events until the lease is lost, or the service stops."""
        from gleanery.service.resources.webhooks.scheduler import Scheduler  # an HTTP client

        scheduler = Scheduler(
            self._engine, self._vault, self._targets, self._settings, self._clock, self.counts
        )
        await scheduler.run(self._keep_lease)

    # --- the lease -------------------------------------------------------------------------------

    async def _take_lease(self) -> bool:
        stored = await metadata.webhook_lease(self._engine)
        if stored is None or not _Lease.parse(stored).is_free(await self._now()):
            return False
        self._renewed = time.monotonic()
        return await self._store_lease(lambda lease, now: lease.is_free(now))

    async def _keep_lease(self) -> None:
        """Renew the lease, until that fails for too long, or the service stops."""
        while not self._is_stopping and time.monotonic() - self._renewed < LEASE_SECONDS - 1:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _RENEW_SECONDS)
            if not self._is_stopping:
                self._woken.clear()
            started = time.monotonic()
            try:
                async with asyncio.timeout(LEASE_SECONDS / 2):
                    if not await self._store_lease(lambda lease, _: lease.holder == self._holder):
                        return
                self._renewed = started
            except (GleaneryError, TimeoutError):
                await asyncio.sleep(_RETRY_SECONDS)

    async def _store_lease(self, may: Callable[[_Lease, int], bool]) -> bool:
        """Take or renew the lease, if that is possible."""

        async def work(transaction: Transaction) -> bool:
            stored = _Lease.parse(await metadata.lock_webhook_lease(transaction))
            now = await transaction.server_time() or self._clock()
            if not may(stored, now):
                return False
            lease = _Lease(self._holder, now + LEASE_SECONDS * timestamps.SECOND)
            await metadata.set_webhook_lease(transaction, json.dumps(lease._asdict()))
            return True

        return await self._engine.write(work)

    async def _return_lease(self) -> None:
        async def work(transaction: Transaction) -> None:
            stored = _Lease.parse(await metadata.lock_webhook_lease(transaction))
            if stored.holder == self._holder:
                await metadata.set_webhook_lease(transaction, "")

        with suppress(Exception):  # it expires
            await self._engine.write(work)

    async def _now(self) -> int:
        return await self._engine.server_time() or self._clock()
