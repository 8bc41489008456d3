"""Stores events for the webhooks that want them, in the transaction of their cause.

Each webhook gets a row of its own in ``webhook_deliveries``. So an event is delivered if its cause
is committed, and only then. ``webhooks.dispatcher`` sends it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple, get_args

from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.storage.database import Row, Transaction

EventName = Literal[
    "outputs.changed",
    "run.finished",
    "review.created",
    "alert.opened",
    "alert.closed",
    "session.invalid",
    "delivery.failed",
    "webhook.disabled",
    "test",
]
EVENT_NAMES: tuple[str, ...] = get_args(EventName)
OUTPUTS_CHANGED: EventName = "outputs.changed"
CHANNEL = "webhooks/"
"""Start of the names of notification channels. The number of the organization follows."""
_WANTING = """
SELECT id, group_ids, format FROM webhooks
WHERE organization_id = $1 AND disabled_at IS NULL AND events LIKE $2
"""
_STORE = """
INSERT INTO webhook_deliveries
    (organization_id, webhook_id, delivery_id, event, body, status, created_at, next_attempt_at)
VALUES ($1, $2, $3, $4, $5, 'waiting', $6, $6)
"""


def channel(organization_id: int) -> str:
    """Name the notification channel of an organization's webhooks."""
    return f"{CHANNEL}{organization_id}"


def as_column(events: Collection[str]) -> str:
    """Return the column ``events``: each name is between two spaces, so that LIKE finds it."""
    return f" {' '.join(events)} "


async def wanting(
    transaction: Transaction, event: EventName, group: str | None = None
) -> list[int]:
    """Return the webhooks of the transaction's organization that want this event of this group."""
    return [row[0] for row in await _find_wanting(transaction, event, group)]


class Wanting(NamedTuple):
    """Webhooks that want an event: those of programs, and those whose messages people read."""

    programs: list[int]
    people: list[int]


async def wanting_by_format(
    transaction: Transaction, event: EventName, group: str | None
) -> Wanting:
    """Do the same for an event that people get in another form."""
    rows = await _find_wanting(transaction, event, group)
    return Wanting(
        [id_ for id_, _, format_ in rows if format_ == "standard"],
        [id_ for id_, _, format_ in rows if format_ != "standard"],
    )


async def _find_wanting(transaction: Transaction, event: EventName, group: str | None) -> list[Row]:
    rows = await transaction.fetch(_WANTING, transaction.organization_id, f"% {event} %")
    return [row for row in rows if _includes(row, group)]


def _includes(row: Row, group: str | None) -> bool:
    return group is None or row[1] is None or group in json.loads(row[1])


async def store(
    transaction: Transaction,
    webhooks: Collection[int],
    event: EventName,
    data: Mapping[str, Any],
    now: int,
) -> list[str]:
    """Store an event for these webhooks. Return the ids of its deliveries."""
    if not webhooks:
        return []
    organization_id, body = transaction.organization_id, render(event, data, now)
    ids = [new_delivery_id() for _ in webhooks]
    rows = [
        (organization_id, webhook, delivery_id, event, body, now)
        for webhook, delivery_id in zip(webhooks, ids, strict=True)
    ]
    await transaction.execute_many(_STORE, rows)
    await transaction.notify(channel(organization_id))
    return ids


def new_delivery_id() -> str:
    return f"msg_{uuid.uuid4().hex}"


def render(event: EventName, data: Mapping[str, Any], now: int) -> str:
    """Return the body of an event."""
    timestamp = timestamps.render_microseconds(now)
    return encode({"type": event, "timestamp": timestamp, "data": data}).decode()
