"""The rows of deliveries: what waits, what an attempt changes, and what clients see of it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import NamedTuple

from gleanery.service.foundation.errors import WebhookConflict, no_delivery, no_webhook
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.events import storing
from gleanery.service.resources.webhooks.endpoints import find_id, hasten
from gleanery.service.resources.webhooks.models import AttemptOut, DeliveriesQuery, DeliveryOut
from gleanery.service.storage.database import Database, Engine, Row, Transaction
from gleanery.service.storage.paging import count_fitting

SCHEDULE = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds after each failed attempt until the next one. There is none after the last."""
_JITTER = 0.1  # a delay is longer by up to this share
MAX_ATTEMPTS_SHOWN = 20
DISABLED_AFTER = 5 * 86_400 * timestamps.SECOND
"""A webhook whose attempts have all failed for this time is disabled."""
_FAILURES_TOGETHER = 36 * 3600 * timestamps.SECOND
"""A failure this long after the one before begins a new series: nothing was tried in between."""
_LONG_FAILURE = 300 * timestamps.SECOND
"""After a series of failures that lasted longer, a success lets the failed deliveries go on."""
_MAX_REST = 300 * timestamps.SECOND
_FIRST_REST = 5 * timestamps.SECOND
_MAX_RETRY_AFTER = 86_400 * timestamps.SECOND
_LOOKED_AT = 500  # deliveries that a page with a filter looks at
_PAGE_BYTES = 2 * 1024 * 1024  # that a page reads: one delivery can have 60 KB of responses
_COLUMNS = "id, delivery_id, event, body, status, created_at, next_attempt_at, attempts"
_PAGE = f"""
SELECT {_COLUMNS} FROM webhook_deliveries
WHERE organization_id = $1 AND webhook_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4
"""
_SIZES = """
SELECT length(attempts) + length(body) FROM webhook_deliveries
WHERE organization_id = $1 AND webhook_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4
"""
_FIND = f"""
SELECT {_COLUMNS} FROM webhook_deliveries
WHERE organization_id = $1 AND delivery_id = $3 AND +webhook_id = $2
"""
_REDELIVER = """
UPDATE webhook_deliveries SET status = 'waiting', attempt_count = 0, next_attempt_at = $3
WHERE organization_id = $1 AND id = $2
"""
_FIND_WEBHOOK = """
SELECT id, disabled_at FROM webhooks WHERE organization_id = $1 AND webhook_id = $2
"""
_END_REST = "UPDATE webhooks SET resume_at = 0 WHERE organization_id = $1 AND id = $2"
_WAITING = """
SELECT id, delivery_id, event, body, attempt_count, attempts, next_attempt_at, group_id, seq
FROM webhook_deliveries
WHERE organization_id = $1 AND webhook_id = $2 AND status = 'waiting'
    AND (next_attempt_at <= $3 OR attempt_count = 0)
ORDER BY id LIMIT $4
"""  # the first attempt is due in any case: another node, with another clock, may store the row
_NEXT_ATTEMPT = """
SELECT min(next_attempt_at) FROM webhook_deliveries
WHERE organization_id = $1 AND webhook_id = $2 AND status = 'waiting'
"""
_SAVE = """
UPDATE webhook_deliveries SET status = $3, attempt_count = $4, next_attempt_at = $5, attempts = $6
WHERE organization_id = $1 AND id = $2 AND status = 'waiting' AND attempt_count = $7
    AND next_attempt_at = $8
"""
_STORE_DOORBELL = """
INSERT INTO webhook_deliveries (organization_id, webhook_id, delivery_id, event, body, group_id,
    seq, status, created_at, attempt_count, next_attempt_at, attempts)
VALUES ($1, $2, $3, 'outputs.changed', $4, $5, $6, $7, $8, $9, $10, $11)
"""
_FORGET_DOORBELLS = """
DELETE FROM webhook_deliveries WHERE organization_id = $1 AND webhook_id = $2 AND id IN (
    SELECT id FROM webhook_deliveries
    WHERE organization_id = $1 AND webhook_id = $2 AND group_id = $3 AND status = 'delivered'
        AND id <> $4)
"""
_SAVE_POSITION = """
INSERT INTO webhook_positions (organization_id, webhook_id, group_id, seq) VALUES ($1, $2, $3, $4)
ON CONFLICT (organization_id, webhook_id, group_id) DO UPDATE SET seq = excluded.seq
WHERE webhook_positions.seq < excluded.seq
"""
_STATE = """
SELECT webhook_id, description, failures, failing_since, failed_at, disabled_at FROM webhooks
WHERE organization_id = $1 AND id = $2
"""
_SAVE_STATE = """
UPDATE webhooks SET failures = $3, failing_since = $4, failed_at = $5, resume_at = $6
WHERE organization_id = $1 AND id = $2
"""
_DISABLE = """
UPDATE webhooks SET disabled_at = $3, disabled_reason = $4
WHERE organization_id = $1 AND id = $2
"""
_PURGE = """
DELETE FROM webhook_deliveries WHERE (organization_id, id) IN (
    SELECT organization_id, id FROM webhook_deliveries
    WHERE created_at < $1 ORDER BY created_at LIMIT $2)
RETURNING id
"""
_ANY_OLD = "SELECT 1 FROM webhook_deliveries WHERE created_at < $1 LIMIT 1"
_PURGED_PER_TRANSACTION = 1000


# --- what clients see ---------------------------------------------------------------------------


class Deliveries(NamedTuple):
    """A page of deliveries, and the cursor of the next page."""

    deliveries: Sequence[DeliveryOut]
    next_cursor: int | None


class _Attempt(NamedTuple):
    """One element of the column ``attempts``."""

    started_at: int
    duration_ms: int
    status_code: int | None
    response: str | None
    error: str | None


async def read_page(
    database: Database, webhook_id: str, query: DeliveriesQuery, cursor: int
) -> Deliveries:
    """Read a page. It may have fewer deliveries than ``limit``, and still a next cursor."""
    id_ = await find_id(database, webhook_id)
    has_filter = query.status is not None or query.event is not None
    count = max(query.limit, _LOOKED_AT) if has_filter else query.limit
    key = (database.organization_id, id_, cursor)
    sizes = [row[0] for row in await database.read(_SIZES, *key, count + 1)]
    count = count_fitting(sizes[:count], _PAGE_BYTES)
    looked_at = await database.read(_PAGE, *key, count)
    matching = [row for row in looked_at if _matches(row, query)]
    has_more = len(sizes) > count or len(matching) > query.limit
    found = matching[: query.limit]
    last = found[-1] if len(found) == query.limit else looked_at[-1] if looked_at else None
    next_cursor = last[0] if has_more and last is not None else None
    return Deliveries([_to_response(row) for row in found], next_cursor)


def _matches(row: Row, query: DeliveriesQuery) -> bool:
    return query.status in (None, row[4]) and query.event in (None, row[2])


def _to_response(row: Row) -> DeliveryOut:
    _, delivery_id, event, body, status, created_at, next_attempt_at, attempts = row
    is_waiting = status == "waiting"
    return DeliveryOut(
        delivery_id=delivery_id,
        event=event,
        group_id=json.loads(body)["data"].get("group_id"),
        status=status,
        create_date=timestamps.render_microseconds(created_at),
        attempts=[_attempt_to_response(_Attempt(*one)) for one in json.loads(attempts)],
        next_attempt_date=timestamps.render_microseconds(next_attempt_at) if is_waiting else None,
    )


def _attempt_to_response(attempt: _Attempt) -> AttemptOut:
    return AttemptOut(
        date=timestamps.render_microseconds(attempt.started_at),
        status_code=attempt.status_code,
        duration_ms=attempt.duration_ms,
        response=attempt.response,
        error=attempt.error,
    )


# --- what people cause --------------------------------------------------------------------------


async def store_test(database: Database, webhook_id: str, now: int, actor: Actor) -> DeliveryOut:
    """Store a test event for a webhook. Raise NotFound, or WebhookConflict if it is disabled."""

    async def work(transaction: Transaction) -> DeliveryOut:
        id_ = await _find_enabled(transaction, webhook_id)
        key = (transaction.organization_id, id_)
        data = {"webhook_id": webhook_id}
        [delivery_id] = await storing.store(transaction, [id_], "test", data, now)
        await transaction.fetch(_END_REST, *key)
        about = AuditAbout(webhook_id=webhook_id)
        await log.append(transaction, actor, now, "test_webhook", about)
        [row] = await transaction.fetch(_FIND, *key, delivery_id)
        return _to_response(row)

    return await database.write(work)


async def redeliver(
    database: Database, webhook_id: str, delivery_id: str, now: int, actor: Actor
) -> DeliveryOut:
    """Let a delivery begin again, with all attempts. Raise NotFound or WebhookConflict."""

    async def work(transaction: Transaction) -> DeliveryOut:
        id_ = await _find_enabled(transaction, webhook_id)
        key = (transaction.organization_id, id_)
        found = await transaction.fetch(_FIND, *key, delivery_id)
        if not found:
            raise no_delivery()
        await transaction.fetch(_REDELIVER, transaction.organization_id, found[0][0], now)
        await transaction.fetch(_END_REST, *key)
        about = AuditAbout(webhook_id=webhook_id, delivery_id=delivery_id)
        await log.append(transaction, actor, now, "redeliver", about)
        await transaction.notify(storing.channel(transaction.organization_id))
        [row] = await transaction.fetch(_FIND, *key, delivery_id)
        return _to_response(row)

    return await database.write(work)


async def _find_enabled(transaction: Transaction, webhook_id: str) -> int:
    found = await transaction.fetch(_FIND_WEBHOOK, transaction.organization_id, webhook_id)
    if not found:
        raise no_webhook()
    [[id_, disabled_at]] = found
    if disabled_at is not None:
        msg = "This webhook is disabled: enable it first"
        raise WebhookConflict(("path", "webhook_id"), msg)
    return int(id_)


# --- what waits ---------------------------------------------------------------------------------


class Waiting(NamedTuple):
    """A delivery that an attempt is about to send."""

    id: int | None
    """None for a doorbell that is not stored: it is stored with the result of its first attempt."""
    delivery_id: str
    event: str
    body: str
    attempt_count: int = 0
    attempts: str = "[]"
    next_attempt_at: int = 0
    """It differs from the stored one after a redelivery that was asked for during the attempt."""
    group_id: int | None = None
    seq: int | None = None


async def read_waiting(database: Database, id_: int, now: int, limit: int) -> list[Waiting]:
    """Return the deliveries of a webhook whose next attempt is due, oldest first."""
    rows = await database.read(_WAITING, database.organization_id, id_, now, limit)
    return [Waiting(*row) for row in rows]


async def read_next_attempt(database: Database, id_: int) -> int | None:
    """Return the time of the next attempt of a webhook; None if nothing waits."""
    [[time]] = await database.read(_NEXT_ATTEMPT, database.organization_id, id_)
    return None if time is None else int(time)


# --- what an attempt changes --------------------------------------------------------------------


class Answer(NamedTuple):
    """What an attempt has got."""

    status_code: int | None = None
    response: str | None = None
    error: str | None = None
    """Why the attempt failed; None if it succeeded."""
    retry_after: int | None = None
    warning: str | None = None
    """What an attempt that succeeded has not reached."""


class Outcome(NamedTuple):
    """The result of one attempt."""

    webhook: int
    delivery: Waiting
    started_at: int
    duration_ms: int
    status_code: int | None = None
    response: str | None = None
    error: str | None = None
    """None if the attempt succeeded."""
    retry_after: int | None = None
    """Seconds that the response asks to wait."""
    warning: str | None = None

    @property
    def ended_at(self) -> int:
        return self.started_at + self.duration_ms * 1000

    @property
    def retry_at(self) -> int:
        """Time before which the response asks not to try again."""
        seconds = self.retry_after or 0
        return self.ended_at + min(seconds * timestamps.SECOND, _MAX_RETRY_AFTER)


class State(NamedTuple):
    """How a webhook responds."""

    failures: int
    """Failed attempts since the last success."""
    failing_since: int | None
    failed_at: int | None
    resume_at: int
    """No attempt begins before this time."""
    disabled_reason: str | None = None

    def after(self, outcome: Outcome) -> State:
        """Return the state after an attempt."""
        now = outcome.ended_at
        if outcome.error is None:
            return State(0, None, None, 0)
        since, last = self.failing_since, self.failed_at
        if since is None or (last is not None and now - last > _FAILURES_TOGETHER):
            since = now
        failures = self.failures + 1
        rest = min(_FIRST_REST << min(failures - 1, 10), _MAX_REST)
        reason = None
        if outcome.status_code == 410:
            reason = "it responded with the status 410: the receiver is gone"
        elif now - since >= DISABLED_AFTER:
            reason = "all attempts have failed for 5 days"
        return State(failures, since, now, max(now + rest, outcome.retry_at), reason)


class _Saved(NamedTuple):
    """What an attempt makes of its delivery."""

    status: str
    attempt_count: int
    next_attempt_at: int
    attempts: str


def _save(outcome: Outcome) -> _Saved:
    delivery = outcome.delivery
    attempt = _Attempt(
        outcome.started_at,
        outcome.duration_ms,
        outcome.status_code,
        outcome.response,
        outcome.error or outcome.warning,
    )
    attempts = [*json.loads(delivery.attempts), [*attempt]][-MAX_ATTEMPTS_SHOWN:]
    count = delivery.attempt_count + 1
    status, next_attempt_at = "delivered", outcome.ended_at
    if outcome.error is not None:
        status = "failed" if count > len(SCHEDULE) else "waiting"
        if status == "waiting":
            delay = SCHEDULE[count - 1] * (1 + random.random() * _JITTER)  # noqa: S311
            planned = outcome.ended_at + int(delay * timestamps.SECOND)
            next_attempt_at = max(planned, outcome.retry_at)
    return _Saved(status, count, next_attempt_at, encode(attempts).decode())


async def record(
    transaction: Transaction, outcomes: Sequence[Outcome], failing: set[int]
) -> dict[int, State]:
    """Store the results of attempts, in their order. Return the new states that are not healthy.

    ``failing`` are the webhooks whose last attempt before these had failed.
    """
    organization_id = transaction.organization_id
    saved = [(outcome, _save(outcome)) for outcome in outcomes]
    await transaction.execute_many(
        _SAVE,
        [
            (organization_id, waiting.id, *new, waiting.attempt_count, waiting.next_attempt_at)
            for waiting, new in ((outcome.delivery, new) for outcome, new in saved)
            if waiting.id is not None
        ],
    )
    await _record_doorbells(transaction, saved)
    for outcome, new in saved:
        if new.status == "failed" and outcome.delivery.event != "delivery.failed":
            await _announce_failure(transaction, outcome)
    states = {}
    for id_ in dict.fromkeys(outcome.webhook for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.webhook == id_]
        if id_ in failing or any(outcome.error is not None for outcome in own):
            state = await _record_state(transaction, id_, own, saved)
            if state is not None:
                states[id_] = state
    return states


async def _record_doorbells(
    transaction: Transaction, saved: Sequence[tuple[Outcome, _Saved]]
) -> None:
    """Store doorbells that are not stored yet. Of the delivered ones, the last of a group stays."""
    organization_id = transaction.organization_id
    rung = [(outcome, new) for outcome, new in saved if outcome.delivery.group_id is not None]
    delivered = {  # the last one of each webhook and group
        (organization_id, outcome.webhook, outcome.delivery.group_id): outcome.delivery
        for outcome, new in rung
        if new.status == "delivered"
    }
    await transaction.execute_many(
        _FORGET_DOORBELLS, [(*key, one.id or 0) for key, one in delivered.items()]
    )
    await transaction.execute_many(
        _SAVE_POSITION, [(*key, one.seq) for key, one in delivered.items()]
    )
    await transaction.execute_many(
        _STORE_DOORBELL,
        [
            (
                organization_id,
                outcome.webhook,
                outcome.delivery.delivery_id,
                outcome.delivery.body,
                outcome.delivery.group_id,
                outcome.delivery.seq,
                new.status,
                outcome.started_at,
                new.attempt_count,
                new.next_attempt_at,
                new.attempts,
            )
            for outcome, new in rung
            if outcome.delivery.id is None
        ],
    )


async def _announce_failure(transaction: Transaction, outcome: Outcome) -> None:
    """Store the event that all attempts of a delivery have failed."""
    wanting = await storing.wanting(transaction, "delivery.failed")
    rows = await transaction.fetch(_STATE, transaction.organization_id, outcome.webhook)
    if wanting and rows:
        data = {
            "webhook_id": rows[0][0],
            "description": rows[0][1],
            "delivery_id": outcome.delivery.delivery_id,
            "event": outcome.delivery.event,
            "error": outcome.error,
        }
        await storing.store(transaction, wanting, "delivery.failed", data, outcome.ended_at)


async def _record_state(
    transaction: Transaction,
    id_: int,
    outcomes: Sequence[Outcome],
    saved: Sequence[tuple[Outcome, _Saved]],
) -> State | None:
    """Store how a webhook responds. Return None if it is healthy, or is gone."""
    key = (transaction.organization_id, id_)
    rows = await transaction.fetch(_STATE, *key)
    if not rows:
        return None
    [[webhook_id, description, failures, failing_since, failed_at, disabled_at]] = rows
    state = before = State(failures, failing_since, failed_at, 0)
    for outcome in outcomes:
        state = state.after(outcome)
    if state.failures:
        # The first retry comes before the events after it.
        last = next(new for outcome, new in reversed(saved) if outcome is outcomes[-1])
        if last.attempt_count == 1:
            state = state._replace(resume_at=max(state.resume_at, last.next_attempt_at))
    await transaction.fetch(_SAVE_STATE, *key, *state[:4])
    now = outcomes[-1].ended_at
    if state.disabled_reason is not None and disabled_at is None:
        await transaction.fetch(_DISABLE, *key, now, state.disabled_reason)
        wanting = await storing.wanting(transaction, "webhook.disabled")
        data = {
            "webhook_id": webhook_id,
            "description": description,
            "reason": state.disabled_reason,
        }
        await storing.store(transaction, wanting, "webhook.disabled", data, now)
        await transaction.notify(storing.channel(transaction.organization_id))
    is_long = before.failing_since is not None and now - before.failing_since > _LONG_FAILURE
    if state.failures == 0 and is_long:
        await hasten(transaction, id_, now)
    return state if state.failures else None


# --- removal ------------------------------------------------------------------------------------


async def delete_old(engine: Engine, before: int) -> None:
    """Delete the deliveries that were stored before this time."""
    database = engine.for_all_tenants()

    async def delete_some(transaction: Transaction) -> int:
        return len(await transaction.fetch(_PURGE, before, _PURGED_PER_TRANSACTION))

    if await database.read(_ANY_OLD, before):
        while await database.write(delete_some) == _PURGED_PER_TRANSACTION:
            pass
