"""Deliveries of webhooks, as ``gleanery webhooks`` shows them, and the wait for a result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gleanery.cli.data.command import join_sentences, shorten, show_date

if TYPE_CHECKING:
    from gleanery.client import Client, Delivery

DELIVERY_COLUMNS = ("Date", "Event", "Group", "Status", "Attempts", "Result", "Next", "Delivery")
WAIT_SECONDS = 20.0
"""Longest wait for the result of a test. An attempt takes at most 15 seconds."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # seconds between two looks at the result
_LOOKED_AT = 100  # deliveries


def delivery_row(delivery: Delivery) -> tuple[str, ...]:
    return (
        show_date(delivery.create_date),
        delivery.event,
        delivery.group_id or "",
        delivery.status,
        str(len(delivery.attempts)),
        describe_result(delivery),
        show_date(delivery.next_attempt_date),
        delivery.delivery_id,
    )


def describe_result(delivery: Delivery) -> str:
    """Return the result of the last attempt."""
    if not delivery.attempts:
        return ""
    last = delivery.attempts[-1]
    return last.error or f"status {last.status_code} after {last.duration_ms:,} ms"


def wait_for_attempt(client: Client, webhook_id: str, sent: Delivery) -> Delivery:
    """Return a delivery after its first attempt, or as it is when the time is over."""
    deadline, pause = time.monotonic() + WAIT_SECONDS, _FIRST_PAUSE
    delivery = sent
    while not delivery.attempts and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
        recent = client.deliveries(webhook_id, event=sent.event, limit=_LOOKED_AT)
        matching = (one for one in recent if one.delivery_id == sent.delivery_id)
        delivery = next(matching, delivery)
    return delivery


def describe_failure(delivery: Delivery, webhook_id: str) -> str:
    more = f"gleanery webhooks deliveries {webhook_id} shows the next attempts."
    if not delivery.attempts:
        return f"There is no result after {WAIT_SECONDS:.0f} seconds: other events wait. {more}"
    response = delivery.attempts[-1].response
    answer = [f"The response was {shorten(response)}"] if response else []
    result = f"The receiver did not accept the event: {describe_result(delivery)}"
    return join_sentences(result, *answer, more)
