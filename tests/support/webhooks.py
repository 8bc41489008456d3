"""Webhooks as tests use them over HTTP, and the check of a delivery by another library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from standardwebhooks import Webhook

from tests.support.outputs import read_changes
from tests.support.receiver import Received, Receiver
from tests.support.service import Client, Clock
from tests.support.waiting import wait_until

ALLOWED = ("127.0.0.1",)
"""What a service of a test allows: its receiver listens on loopback."""
FAR = "https://receiver.invalid/"
"""A target that is accepted, and has no address."""


def create(client: Client, url: str, *events: str, **members: Any) -> dict[str, Any]:
    """Create a webhook. The response has its secret."""
    body = {"url": url, "events": events or ["test"], **members}
    answer = client.post("/v1/webhooks", json=body)
    assert answer.status_code == 200, answer.text
    created: dict[str, Any] = answer.json()
    return created


def show(client: Client, webhook: dict[str, Any]) -> dict[str, Any]:
    answer = client.get(f"/v1/webhooks/{webhook['id']}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def change(client: Client, webhook: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Change some settings. The others stay."""
    names = ("url", "events", "groups", "description", "format", "headers")
    body = {name: webhook[name] for name in names} | members
    answer = client.put(f"/v1/webhooks/{webhook['id']}", json=body)
    assert answer.status_code == 200, answer.text
    changed: dict[str, Any] = answer.json()
    return changed


def act(client: Client, webhook: dict[str, Any], action: str) -> dict[str, Any]:
    """Call ``test``, ``rotate``, ``enable`` or ``deliveries/{id}/redeliver``."""
    answer = client.post(f"/v1/webhooks/{webhook['id']}/{action}")
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def deliveries(client: Client, webhook: dict[str, Any], **query: Any) -> list[dict[str, Any]]:
    """The deliveries of a webhook, oldest first."""
    answer = client.get(f"/v1/webhooks/{webhook['id']}/deliveries", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["deliveries"]
    return found[::-1]


def wait_for_attempts(
    client: Client, webhook: dict[str, Any], count: int, delivery_id: str | None = None
) -> dict[str, Any]:
    """Return the delivery, or the only one, when so many attempts are stored."""
    found: list[dict[str, Any]] = []

    def has_them() -> bool:
        found[:] = [
            one
            for one in deliveries(client, webhook)
            if delivery_id in (None, one["delivery_id"]) and len(one["attempts"]) >= count
        ]
        return bool(found)

    wait_until(has_them)
    return found[0]


def wait_until_delivered(client: Client, webhook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all deliveries, oldest first, when none of them waits."""
    wait_until(lambda: all(one["status"] != "waiting" for one in deliveries(client, webhook)))
    return deliveries(client, webhook)


def nudge(client: Client) -> None:
    """Let the dispatcher look at the webhooks of the organization, after the clock was moved."""
    webhook = create(client, FAR)
    assert client.delete(f"/v1/webhooks/{webhook['id']}").status_code == 200


def pass_time(client: Client, clock: Clock, seconds: float) -> None:
    clock.move(seconds=seconds)
    nudge(client)


def verify(received: Received, *secrets: str) -> Any:
    """Return the body. The library must accept it with each of the secrets."""
    for secret in secrets:
        Webhook(secret).verify(received.body, received.headers)
    return received.json


def signatures(received: Received) -> Sequence[str]:
    return received.headers["webhook-signature"].split(" ")


def delivered(
    receiver: Receiver, path: str, secret: str, count: int, type_: str | None = None
) -> list[Received]:
    """Wait for so many requests, verify all of them, and return them."""
    found = receiver.wait_for(count, path, type_)
    for one in found:
        verify(one, secret)
    return found


def rings(receiver: Receiver, path: str) -> list[tuple[str, int]]:
    """Group and cursor of each doorbell that has arrived."""
    found = receiver.received(path, "outputs.changed")
    return [(one.data["group_id"], one.data["cursor"]) for one in found]


def position(client: Client) -> int:
    """The cursor behind the last change of the group."""
    return int(read_changes(client, limit=1000)["cursor"])


def wait_for_ring(client: Client, receiver: Receiver, path: str) -> None:
    """Return when a doorbell has the position of the group."""
    wanted = position(client)
    wait_until(lambda: rings(receiver, path)[-1:] == [("group", wanted)])
