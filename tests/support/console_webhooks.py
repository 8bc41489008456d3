"""Webhooks for the tests of the console."""

from __future__ import annotations

from typing import Any

from tests.support.receiver import GONE, OK, Answer, Receiver, receiver
from tests.support.service import Client
from tests.support.waiting import wait_until

ALLOWED = ("127.0.0.1",)
"""For ``--webhook-allow`` of a service: where the receivers of tests are."""


def create_webhook(client: Client, url: str, **members: Any) -> str:
    """Creates a webhook, by default one that gets only tests. Returns its id."""
    answer = client.post("/v1/webhooks", json={"url": url, "events": ["delivery.failed"]} | members)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def deliveries(client: Client, webhook_id: str) -> list[dict[str, Any]]:
    """The newest deliveries of a webhook."""
    answer = client.get(f"/v1/webhooks/{webhook_id}/deliveries")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["deliveries"]
    return found


def send_test(client: Client, webhook_id: str) -> dict[str, Any]:
    """Sends a test, and waits for its first attempt. Returns the delivery."""
    answer = client.post(f"/v1/webhooks/{webhook_id}/test")
    assert answer.status_code == 200, answer.text
    delivery_id = answer.json()["delivery_id"]

    def find() -> dict[str, Any]:
        [found] = [
            one for one in deliveries(client, webhook_id) if one["delivery_id"] == delivery_id
        ]
        return found

    wait_until(lambda: find()["attempts"])
    return find()


def store_webhooks(client: Client, **members: Any) -> str:
    """Stores a webhook that responds, and one that the service disables. Returns the first's id."""
    with receiver() as made:
        webhook_id = answered_webhook(client, made, OK, **members)
        answered_webhook(client, made, GONE, **members)
    return webhook_id


def answered_webhook(client: Client, made: Receiver, answer: Answer, **members: Any) -> str:
    """Creates a webhook that has answered a test like this."""
    made.answer(f"/{answer.status}", answer)
    webhook_id = create_webhook(client, made.url(f"/{answer.status}"), **members)
    send_test(client, webhook_id)
    return webhook_id
