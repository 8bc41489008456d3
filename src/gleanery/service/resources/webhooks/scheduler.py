"""What the process with the lease does: it finds out what has changed, and wakes the workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from gleanery.common.settings import Settings
from gleanery.service.foundation.errors import Overloaded, Unavailable
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.events import storing
from gleanery.service.resources.webhooks.mailer import Mailer, MailServer
from gleanery.service.resources.webhooks.recorder import Counts, Recorder
from gleanery.service.resources.webhooks.sender import Sender
from gleanery.service.resources.webhooks.targets import Targets
from gleanery.service.resources.webhooks.worker import Shared, Webhook, Worker
from gleanery.service.storage.database import Engine, Row, Watch
from gleanery.service.storage.group_lock import Clock

_SCAN_SECONDS = 30.0
_PAUSE_SECONDS = 0.1  # between two looks at what has changed
_MAX_PAUSE_SECONDS = 3.0
_PAUSE_FACTOR = 100  # a pause is this many times as long as the look before it
_RETRY_SECONDS = 1.0  # after an error of the database
_STOP_SECONDS = 5.0  # for attempts that have begun
_MAX_CONNECTIONS = 300
_MAX_WAIT_SECONDS = 3600.0
_FEW_GROUPS = 10  # that are read one by one
_RECENT = 600 * timestamps.SECOND
"""Only a scan looks at groups that have not changed for this time."""
_SELECT = """
SELECT organization_id, id, webhook_id, format, events, group_ids, created_at, updated_at,
    failures, resume_at, resume_at <= $1 AND EXISTS (SELECT 1 FROM webhook_deliveries
        WHERE webhook_deliveries.organization_id = webhooks.organization_id
            AND webhook_deliveries.webhook_id = webhooks.id AND status = 'waiting'
            AND (next_attempt_at <= $1 OR attempt_count = 0))
FROM webhooks WHERE disabled_at IS NULL
"""
_OF_ORGANIZATION = f"{_SELECT} AND organization_id = $2"
_GROUPS = "SELECT id, name, last_seq FROM groups WHERE organization_id = $1 AND last_seq > $2"
_GROUP = f"{_GROUPS} AND name = $3"
_BACKLOG = """
SELECT count(*), min(CASE WHEN failures = 0 AND next_attempt_at <= $1 THEN next_attempt_at END)
FROM webhook_deliveries JOIN webhooks
    ON webhooks.organization_id = webhook_deliveries.organization_id
    AND webhooks.id = webhook_deliveries.webhook_id
WHERE status = 'waiting' AND disabled_at IS NULL
"""


class Scheduler:
    """Everything that the holder of the lease does, until it loses the lease or stops."""

    def __init__(
        self,
        engine: Engine,
        vault: Vault,
        targets: Targets,
        settings: Settings,
        clock: Clock,
        counts: Counts,
    ) -> None:
        self._engine = engine
        # Looks belong to no organization, so none that is busy delays those for the others.
        self._everyone = engine.for_all_tenants()
        self._clock = clock
        self._shared = Shared(
            engine=engine,
            vault=vault,
            address=settings.address,
            clock=clock,
            sender=Sender(targets, clock),
            mailer=Mailer(MailServer.from_settings(settings)),
            slots=FairSemaphore(_MAX_CONNECTIONS, _MAX_WAIT_SECONDS, "no free connection"),
            recorder=Recorder(engine),
            counts=counts,
        )
        self._workers: dict[int, dict[int, Worker]] = {}
        """By organization and number of the webhook."""
        self._group_seqs: dict[int, dict[int, tuple[str, int]]] = {}
        """Name and last position of each group, by organizations whose webhooks have doorbells."""
        self._scanned = 0.0

    async def run(self, keep_lease: Callable[[], Coroutine[Any, Any, None]]) -> None:
        keeping = asyncio.create_task(keep_lease())
        try:
            while not keeping.done():
                try:
                    async with self._engine.watch() as watch:
                        await self._look_while(keeping, watch)
                except Unavailable:  # perhaps only the connection that listens: look without it
                    started = time.monotonic()
                    with suppress(Unavailable):
                        await self._look(None)
                    await asyncio.sleep(max(_pause_after(started), _RETRY_SECONDS))
        finally:
            keeping.cancel()
            await self._end_workers()
            await self._shared.recorder.drain(_STOP_SECONDS)
            await asyncio.gather(keeping, return_exceptions=True)
            self._shared.sender.close()
            self._shared.mailer.close()

    async def _look_while(self, keeping: asyncio.Task[None], watch: Watch) -> None:
        """Look at what has changed, until the lease is lost."""
        while not keeping.done():
            changed, started = watch.take(), time.monotonic()
            try:
                await self._look(changed)
            except BaseException:
                watch.note(None)
                raise
            pause = _pause_after(started)
            waiting = asyncio.create_task(watch.wait(_SCAN_SECONDS))
            both: list[asyncio.Task[Any]] = [keeping, waiting]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            [result] = await asyncio.gather(waiting, return_exceptions=True)
            if isinstance(result, Unavailable):
                raise result
            await asyncio.sleep(pause)

    async def _end_workers(self) -> None:
        tasks = [worker.end() for workers in self._workers.values() for worker in workers.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what has changed ------------------------------------------------------------------------

    async def _look(self, changed: set[str] | None) -> None:
        """Wake the workers that have something to send. ``changed`` are channels, or None."""
        is_scan = time.monotonic() - self._scanned > _SCAN_SECONDS
        if changed is None or is_scan:
            rows = await self._everyone.read(_SELECT, self._clock())
            found: dict[int, list[Row]] = {id_: [] for id_ in self._workers}
            for row in rows:
                found.setdefault(row[0], []).append(row)
            for organization_id, some in found.items():
                self._update(organization_id, some)
            await self._look_at_all_groups(0 if is_scan else self._clock() - _RECENT)
            if is_scan:
                await self._measure_backlog()
                self._scanned = time.monotonic()
            return
        groups: dict[int, set[str]] = {}
        for channel in changed:
            if channel.startswith(storing.CHANNEL):
                await self._look_at_webhooks(int(channel.removeprefix(storing.CHANNEL)))
                continue
            organization, _, group = channel.partition("/")
            if organization.isdecimal() and int(organization) in self._group_seqs:
                groups.setdefault(int(organization), set()).add(group)
        for organization_id, names in groups.items():
            await self._look_at_groups(organization_id, names)

    async def _look_at_webhooks(self, organization_id: int) -> None:
        rows = await self._everyone.read(_OF_ORGANIZATION, self._clock(), organization_id)
        self._update(organization_id, rows)
        if organization_id not in self._group_seqs and self._has_doorbells(organization_id):
            await self._look_at_groups(organization_id)

    def _update(self, organization_id: int, rows: Sequence[Row]) -> None:
        """Begin, change, wake and end the workers of an organization."""
        found = {row[1]: Webhook(*row) for row in rows}
        workers = self._workers.setdefault(organization_id, {})
        seqs = self._group_seqs.get(organization_id, {})
        for id_ in workers.keys() - found.keys():
            workers.pop(id_).end().cancel()
        for id_, webhook in found.items():
            worker = workers.get(id_)
            if worker is None:
                worker = workers[id_] = Worker(self._shared, webhook)
                worker.note_groups(seqs)
                worker.start()
            else:
                worker.change(webhook, seqs)
        if not workers:
            del self._workers[organization_id]

    def _has_doorbells(self, organization_id: int) -> bool:
        return any(one.has_doorbells for one in self._workers.get(organization_id, {}).values())

    async def _look_at_all_groups(self, since: int) -> None:
        wanting = [*filter(self._has_doorbells, self._workers)]
        for organization_id in self._group_seqs.keys() - wanting:
            del self._group_seqs[organization_id]
        for organization_id in wanting:
            is_new = organization_id not in self._group_seqs
            await self._look_at_groups(organization_id, since=0 if is_new else since)

    async def _look_at_groups(
        self, organization_id: int, names: Collection[str] = (), since: int = 0
    ) -> None:
        """Look at the groups with these names, or at all that have changed since then."""
        read, key = self._everyone.read, (organization_id, since)
        if 0 < len(names) <= _FEW_GROUPS:
            rows = [row for name in names for row in await read(_GROUP, *key, name)]
        else:
            rows = [*await read(_GROUPS, *key)]
        self._note_groups(organization_id, rows)

    def _note_groups(self, organization_id: int, rows: Sequence[Row]) -> None:
        known = self._group_seqs.setdefault(organization_id, {})
        changed = {id_: (name, seq) for id_, name, seq in rows if known.get(id_) != (name, seq)}
        if changed:
            known.update(changed)
            for worker in self._workers.get(organization_id, {}).values():
                worker.note_groups(changed)

    async def _measure_backlog(self) -> None:
        with suppress(Overloaded):
            [[count, oldest]] = await self._everyone.read_large(_BACKLOG, self._clock())
            self._shared.counts.waiting, self._shared.counts.oldest_due = count, oldest


def _pause_after(started: float) -> float:
    """Return the seconds between a look that has begun then, and the next one."""
    pause = _PAUSE_FACTOR * (time.monotonic() - started)
    return min(max(pause, _PAUSE_SECONDS), _MAX_PAUSE_SECONDS)
