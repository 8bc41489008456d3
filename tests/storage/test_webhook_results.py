"""What the results of attempts store, as the process that delivers stores them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from gleanery.common.settings import Settings
from gleanery.service.resources.webhooks import deliveries
from gleanery.service.resources.webhooks.deliveries import Outcome, Waiting
from gleanery.service.storage.engines import open_engine
from tests.support.service import Service

WEBHOOK, GROUP = 1, 1
_FAR_FUTURE = 2**60
_STORE = """
INSERT INTO webhook_deliveries
    (organization_id, webhook_id, delivery_id, event, body, status, created_at, next_attempt_at,
        attempt_count)
VALUES ($1, $2, $3, 'test', '{}', 'waiting', $4, $4, $5)
"""


def doorbell(seq: int) -> Outcome:
    waiting = Waiting(None, uuid.uuid4().hex, "outputs.changed", "{}", group_id=GROUP, seq=seq)
    return Outcome(WEBHOOK, waiting, started_at=seq, duration_ms=1, status_code=200)


def record(settings: Settings, organization_id: int, outcomes: Sequence[Outcome]) -> int:
    """Store results together. Return the position that the webhook has accepted."""

    async def run() -> int:
        async with open_engine(settings) as engine:
            database = engine.for_tenant(organization_id)
            await database.write(
                lambda transaction: deliveries.record(transaction, outcomes, failing=set())
            )
            sql = "SELECT seq FROM webhook_positions WHERE organization_id = $1"
            [[seq]] = await database.read(sql, organization_id)
            return int(seq)

    return asyncio.run(run())


def test_many_doorbells_of_a_group_are_stored_together(service: Service) -> None:
    """They were sent again on request, and the group has changed at the same time."""
    assert record(service.settings, 101, [doorbell(seq) for seq in range(1, 101)]) == 100


def test_a_process_that_was_replaced_does_not_set_the_position_back(service: Service) -> None:
    assert record(service.settings, 102, [doorbell(2)]) == 2
    assert record(service.settings, 102, [doorbell(1)]) == 2


def test_a_first_attempt_is_due_whatever_the_clock_says(service: Service) -> None:
    """The clock of the process that delivers may be behind that of the one that has the event."""

    async def run() -> list[str]:
        async with open_engine(service.settings) as engine:
            database = engine.for_tenant(103)
            rows = [
                (103, WEBHOOK, name, _FAR_FUTURE, count) for name, count in (("a", 0), ("b", 1))
            ]
            await database.write(lambda transaction: transaction.execute_many(_STORE, rows))
            due = await deliveries.read_waiting(database, WEBHOOK, now=0, limit=10)
            return [one.delivery_id for one in due]

    assert asyncio.run(run()) == ["a"]
