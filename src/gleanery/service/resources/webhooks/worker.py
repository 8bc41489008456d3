"""Sends the events of one webhook, one after another; see ``dispatcher``."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from gleanery.service.foundation.errors import GleaneryError
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.events import storing
from gleanery.service.resources.webhooks import deliveries, endpoints, messages
from gleanery.service.resources.webhooks.deliveries import Answer, Outcome, State, Waiting
from gleanery.service.resources.webhooks.endpoints import Target
from gleanery.service.resources.webhooks.mailer import Mailer
from gleanery.service.resources.webhooks.recorder import Counts, Recorder
from gleanery.service.resources.webhooks.sender import Sender
from gleanery.service.storage.database import Engine

_log = logging.getLogger("gleanery")

_RETRY_SECONDS = 1.0  # after an error of the database
_FAILURE_SECONDS = 60.0  # after an error that is not expected
_BATCH = 50  # deliveries of a webhook that are read at once
_DOORBELL_SECONDS = {"standard": (1.0, 10.0)}
"""Times between the first doorbells of a group that goes on changing, by format.

The last time stays. After a pause that is longer, the first one counts again.
"""
_CHAT_DOORBELL_SECONDS = (300.0,)
_POSITIONS = """
SELECT group_id, seq FROM webhook_positions WHERE organization_id = $1 AND webhook_id = $2
"""
_WAITING_DOORBELLS = """
SELECT DISTINCT group_id FROM webhook_deliveries
WHERE organization_id = $1 AND webhook_id = $2 AND status = 'waiting' AND group_id IS NOT NULL
"""


class Webhook(NamedTuple):
    """The settings of an enabled webhook, and whether something is due."""

    organization_id: int
    id: int
    webhook_id: str
    format: str
    events: str
    group_ids: str | None
    created_at: int
    updated_at: int
    failures: int
    resume_at: int
    has_due: bool

    @property
    def has_doorbells(self) -> bool:
        return f" {storing.OUTPUTS_CHANGED} " in self.events

    @property
    def groups(self) -> frozenset[str] | None:
        return None if self.group_ids is None else frozenset(json.loads(self.group_ids))

    @property
    def doorbell_seconds(self) -> tuple[float, ...]:
        return _DOORBELL_SECONDS.get(self.format, _CHAT_DOORBELL_SECONDS)


class Shared(NamedTuple):
    """What all workers use."""

    engine: Engine
    vault: Vault
    address: str
    """The address of the service, for links in messages."""
    clock: Callable[[], int]
    sender: Sender
    mailer: Mailer
    slots: FairSemaphore
    """The connections, which the organizations share fairly."""
    recorder: Recorder
    counts: Counts


class _Rung(NamedTuple):
    """When the last doorbell of a group was sent, and the time until the next one."""

    time: float
    step: int
    seconds: float


class Worker:
    """Sends the events of one webhook, one after another."""

    def __init__(self, shared: Shared, webhook: Webhook) -> None:
        self._shared = shared
        self.webhook = webhook
        self.organization_id = webhook.organization_id
        self._database = shared.engine.for_tenant(webhook.organization_id)
        self._failures = webhook.failures
        self._resume_at = webhook.resume_at
        self._paused_until = 0.0
        """No attempt before this time, by the monotonic clock, after an error of our own."""
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_ending = False
        self._positions: dict[int, int] | None = None
        """The positions that the webhook has accepted, by group; None before they are read."""
        self._unanswered: set[int] = set()
        """Groups with a doorbell that failed and waits for its next attempt."""
        self._latest: dict[int, tuple[str, int]] = {}
        """Name and position of groups that may have changed since the last doorbell."""
        self._rung: dict[int, _Rung] = {}
        """The last doorbells, by group."""
        self._read_at = 0.0
        """When stored events are to be read, by the clock of the service."""
        self._doorbells_first = False
        """A stored event has failed: the receiver may refuse all of them, and accept doorbells."""
        self._target: Target | None = None
        """What attempts need, since the last look at the webhook."""

    @property
    def has_doorbells(self) -> bool:
        return self.webhook.has_doorbells

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def end(self) -> asyncio.Task[None]:
        """Let the task end after its attempt, and return it."""
        assert self._task is not None
        self._is_ending = True
        self._woken.set()
        return self._task

    def change(self, webhook: Webhook, seqs: dict[int, tuple[str, int]]) -> None:
        """Use these settings from the next attempt on."""
        self._target = None
        if webhook.has_due or webhook.updated_at != self.webhook.updated_at:
            self._read_at = 0.0
        if webhook.updated_at != self.webhook.updated_at:
            self._failures, self._resume_at = webhook.failures, webhook.resume_at
            self.webhook = webhook
            self._latest = self._wanted(self._latest)
            self.note_groups(seqs)
            self._woken.set()
        elif webhook.has_due:
            if webhook.failures == self._failures:  # somebody may have ended the rest
                self._resume_at = min(self._resume_at, webhook.resume_at)
            self._woken.set()

    def note_groups(self, changed: dict[int, tuple[str, int]]) -> None:
        """Note the positions of groups that have changed."""
        if not self.has_doorbells:
            return
        new = {
            id_: (name, seq)
            for id_, (name, seq) in self._wanted(changed).items()
            if seq > self._accepted(id_)
        }
        if new.keys() - self._latest.keys():  # the task knows when the others may ring
            self._woken.set()
        self._latest.update(new)

    def _wanted(self, groups: dict[int, tuple[str, int]]) -> dict[int, tuple[str, int]]:
        """Return those of the groups whose events the webhook gets."""
        names = self.webhook.groups
        return {id_: one for id_, one in groups.items() if names is None or one[0] in names}

    def _accepted(self, group_id: int) -> int:
        before_all = self.webhook.created_at - endpoints.BEFORE_CREATION
        return (self._positions or {}).get(group_id, before_all)

    async def _run(self) -> None:
        while not self._is_ending:
            self._woken.clear()
            try:
                seconds = await self._send_due()
            except GleaneryError as error:
                _log.warning("an event of a webhook waits", extra={"reason": str(error)})
                seconds, self._read_at = _RETRY_SECONDS, 0.0
            except Exception:
                _log.exception("an event of a webhook could not be sent, and waits")
                seconds = _FAILURE_SECONDS  # so that it is not sent again and again
                self._read_at = 0.0
                self._paused_until = time.monotonic() + seconds
            if not self._is_ending:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), seconds)

    async def _send_due(self) -> float | None:
        """Send what is due. Return the seconds until there is more; None if that is not known."""
        await self._read_positions()
        while not self._is_ending:
            now = self._shared.clock()
            if (pause := self._paused_until - time.monotonic()) > 0:
                return pause
            if self._resume_at > now:
                return (self._resume_at - now) / timestamps.SECOND
            due = [*await self._read_due(now), *self._due_doorbells()]
            if self._doorbells_first:
                due.sort(key=lambda one: one.id is not None)
            if not due:
                break
            await self._send(due)
        times = [self._seconds_to_doorbell()]
        if self._read_at < math.inf:
            times.append(max(self._read_at - self._shared.clock(), 0) / timestamps.SECOND)
        return min((seconds for seconds in times if seconds is not None), default=None)

    async def _read_due(self, now: int) -> list[Waiting]:
        """Return the stored events that are due, and note when there may be more."""
        if self._read_at > now:
            return []
        id_, self._read_at = self.webhook.id, math.inf  # ``change`` may set it during the reads
        due = await deliveries.read_waiting(self._database, id_, now, _BATCH)
        following: float | None = 0.0
        if not due:
            following = await deliveries.read_next_attempt(self._database, id_)
        self._read_at = min(self._read_at, math.inf if following is None else following)
        return due

    async def _read_positions(self) -> None:
        if self._positions is None:
            key = (self.organization_id, self.webhook.id)
            found = await self._database.read(_POSITIONS, *key)
            self._unanswered = {
                row[0] for row in await self._database.read(_WAITING_DOORBELLS, *key)
            }
            self._positions = {row[0]: row[1] for row in found}
            self._latest = {
                id_: (name, seq)
                for id_, (name, seq) in self._latest.items()
                if seq > self._accepted(id_)
            }

    # --- doorbells -------------------------------------------------------------------------------

    def _due_doorbells(self) -> list[Waiting]:
        """Return doorbells for groups that have changed, and had none for a while."""
        if not self.has_doorbells:
            return []
        due = []
        for id_, (name, seq) in self._latest.items():
            if id_ not in self._unanswered and self._rings_at(id_) <= time.monotonic():
                data = {"group_id": name, "cursor": seq}
                event, now = storing.OUTPUTS_CHANGED, self._shared.clock()
                body = storing.render(event, data, now)
                delivery_id = storing.new_delivery_id()
                due.append(Waiting(None, delivery_id, event, body, group_id=id_, seq=seq))
                if len(due) == _BATCH:
                    break
        return due

    def _rings_at(self, group_id: int) -> float:
        """Return the time before which a group gets no other doorbell."""
        rung = self._rung.get(group_id)
        return rung.time + rung.seconds if rung else 0.0

    def _seconds_to_doorbell(self) -> float | None:
        """Return the seconds until a group that has changed may get its next doorbell."""
        waiting = [self._rings_at(id_) for id_ in self._latest if id_ not in self._unanswered]
        if not waiting or not self.has_doorbells:
            return None
        return max(min(waiting) - time.monotonic(), 0.0)

    def _note_doorbell(self, delivery: Waiting, is_accepted: bool, is_waiting: bool) -> None:
        id_, seq = delivery.group_id, delivery.seq
        if id_ is None or seq is None or self._positions is None:
            return
        self._note_rung(id_)
        self._unanswered.discard(id_)
        if is_waiting:
            self._unanswered.add(id_)
        if is_accepted:
            self._positions[id_] = max(seq, self._accepted(id_))
            if id_ in self._latest and self._latest[id_][1] <= self._positions[id_]:
                del self._latest[id_]

    def _note_rung(self, group_id: int) -> None:
        """Note when the group may get its next doorbell, and forget what has no effect any more."""
        now, times = time.monotonic(), self.webhook.doorbell_seconds
        self._rung = {id_: one for id_, one in self._rung.items() if now < one.time + 2 * times[-1]}
        rung, step = self._rung.get(group_id), 0
        if rung is not None and now - rung.time < 2 * rung.seconds:
            step = min(rung.step + 1, len(times) - 1)
        self._rung[group_id] = _Rung(now, step, times[step])

    # --- attempts --------------------------------------------------------------------------------

    async def _send(self, due: Sequence[Waiting]) -> None:
        """Send deliveries until one fails, and wait until the results are stored."""
        shared, webhook = self._shared, self.webhook
        has_stored = any(one.id is not None for one in due)
        if (target := self._target) is None or not target.keys or has_stored:
            target = await endpoints.read_target(
                self._database, shared.vault, webhook.webhook_id, shared.clock()
            )
            if self.webhook is webhook:  # it was not changed during the reads
                self._target = target
        results: list[asyncio.Future[State | None]] = []
        sent: list[Outcome] = []
        for one in due:
            if self._is_ending or self.webhook is not webhook:
                break
            slots = shared.mailer.slots if target.format == "email" else shared.slots
            async with slots.held_for(self.organization_id):
                outcome = await self._attempt(one, target)
            sent.append(outcome)
            is_failing = self._failures > 0
            results.append(shared.recorder.add(self.organization_id, outcome, is_failing))
            if outcome.error is not None:
                break
        states = await asyncio.gather(*results)
        for outcome in sent:
            self._doorbells_first = outcome.error is not None and outcome.delivery.id is not None
            is_accepted = outcome.error is None
            attempts = outcome.delivery.attempt_count + 1
            is_waiting = not is_accepted and attempts <= len(deliveries.SCHEDULE)
            self._note_doorbell(outcome.delivery, is_accepted, is_waiting)
        if states:
            state = states[-1]
            self._failures = state.failures if state else 0
            self._resume_at = state.resume_at if state else 0
            if state:
                self._read_at = 0.0  # the failed event waits

    async def _attempt(self, waiting: Waiting, target: Target) -> Outcome:
        shared = self._shared
        started_at, started = shared.clock(), time.perf_counter()
        try:
            answer = await self._hand_over(waiting, target)
        except Exception:  # it counts as an attempt, so that the events after it are sent
            _log.exception("an event of a webhook could not be sent")
            answer = Answer(error="the service could not send it; its log says why")
        duration_ms = round(1000 * (time.perf_counter() - started))
        if answer.error is None:
            shared.counts.succeeded += 1
        else:
            shared.counts.failed += 1
        return Outcome(self.webhook.id, waiting, started_at, duration_ms, *answer)

    async def _hand_over(self, waiting: Waiting, target: Target) -> Answer:
        """Send an event to the address, or to the mail server."""
        shared, delivery_id = self._shared, waiting.delivery_id
        if target.format == "email":
            mail = messages.write_mail(waiting.body, shared.address, self.webhook.webhook_id)
            return await shared.mailer.send(target.url, delivery_id, mail)
        body = messages.convert(target.format, waiting.body, shared.address)
        return await shared.sender.send(target, delivery_id, body)
