"""Secrets and headers of webhooks under key rotation, in backups, and after a removal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.common.settings import Settings
from gleanery.service.storage.tenancy import TENANT_TABLES
from tests.cli.test_organizations import rows_of
from tests.support.locks import LockHolder
from tests.support.outputs import output
from tests.support.process import new_token, run_successfully
from tests.support.receiver import FAIL, Answer, Receiver
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until
from tests.support.webhooks import (
    ALLOWED,
    act,
    change,
    create,
    deliveries,
    rings,
    show,
    signatures,
    verify,
    wait_for_attempts,
    wait_for_ring,
    wait_until_delivered,
)

HEADERS = {"X-Api-Key": "Xq2mB7fRz0aL"}
TABLES = {name for name in TENANT_TABLES if name.startswith("webhook")}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


@contextmanager
def serving(data: Path, token: str | None = None) -> Iterator[Client]:
    """A client of a service over this folder."""
    settings = Settings(data=data, port=0, log_level="warning", webhook_allow=ALLOWED)
    service = Service(settings)
    with Client(service.url, token or new_token(["--data", str(data)])) as client:
        yield client
    service.stop()


def keys_with_values(where: list[str]) -> list[tuple[int, str]]:
    """Number of values and state of each key that encrypts something."""
    rows = [line.split() for line in run_successfully("keys", "list", *where).splitlines()[1:]]
    return [(int(row[1]), " ".join(row[2:])) for row in rows if row[1] != "0"]


def test_a_key_rotation_encrypts_secrets_and_headers_again(
    tmp_path: Path, receiver: Receiver
) -> None:
    where = ["--data", str(tmp_path)]
    with serving(tmp_path) as client:
        webhook = create(client, receiver.url(), headers=HEADERS | {"X-Other": "other"})
        rotated = act(client, webhook, "rotate")
        assert "Encrypted 4 values again" in run_successfully("keys", "rotate", *where)
        assert keys_with_values(where) == [(4, "available, active")]
        act(client, webhook, "test")
        [received] = receiver.wait_for(1)
        verify(received, webhook["secret"], rotated["secret"])
        assert received.headers["x-api-key"] == HEADERS["X-Api-Key"]
        change(client, webhook, headers={"X-Api-Key": None, "X-Other": "new"})
        token = client.token
    run_successfully("keys", "retire", "--now", *where)
    assert len((tmp_path / "secret.key").read_text().split()) == 1
    with serving(tmp_path, token) as client:
        act(client, webhook, "test")
        received = receiver.wait_for(2)[1]
        verify(received, webhook["secret"], rotated["secret"])
        assert received.headers["x-api-key"] == HEADERS["X-Api-Key"]
        assert received.headers["x-other"] == "new"
        assert "Removed 0 values" in run_successfully("keys", "forget", "--yes", *where)


@pytest.mark.thorough
def test_lost_secrets_are_forgotten_and_replaced_by_a_rotation(
    tmp_path: Path, receiver: Receiver
) -> None:
    where = ["--data", str(tmp_path)]
    with serving(tmp_path) as client:
        token = client.token
        webhook = create(client, receiver.url(), headers=HEADERS)
    (tmp_path / "secret.key").unlink()
    assert keys_with_values(where) == [(2, "missing, active")]
    assert "Removed 2 values" in run_successfully("keys", "forget", "--yes", *where)
    with serving(tmp_path, token) as client:
        act(client, webhook, "test")
        [attempt] = wait_for_attempts(client, webhook, 1)["attempts"]
        assert "rotate" in attempt["error"]
        assert receiver.connections == 0
        new = act(client, webhook, "rotate")
        lost = act(client, webhook, "test")
        found = wait_for_attempts(client, webhook, 1, lost["delivery_id"])["attempts"][-1]
        assert "the header X-Api-Key cannot be decrypted: set it again" in found["error"]
        assert receiver.connections == 0
        body = {"url": webhook["url"], "events": ["test"], "headers": {"X-Api-Key": None}}
        assert client.put(f"/v1/webhooks/{webhook['id']}", json=body).status_code == 422
        assert show(client, webhook)["headers"] == {"X-Api-Key": None}
        change(client, webhook, headers={"X-Api-Key": "new"})
        for one in receiver.wait_for(2):
            verify(one, new["secret"])
            assert one.headers["x-api-key"] == "new"


@pytest.mark.thorough
def test_a_restored_database_has_the_webhooks_and_sends_what_waits(
    tmp_path: Path, receiver: Receiver
) -> None:
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    archive = str(tmp_path / "backup.tar")
    receiver.answer("/", FAIL)
    with serving(origin) as client:
        token = client.token
        webhook = create(client, receiver.url(), "test", "outputs.changed", headers=HEADERS)
        stored = act(client, webhook, "test")
        wait_for_attempts(client, webhook, 1)
    run_successfully("backup", archive, "--with-key", "--data", str(origin))
    run_successfully("restore", archive, "--data", str(copy))
    receiver.answer("/", Answer())
    with serving(copy, token) as client:
        assert show(client, webhook)["url"] == webhook["url"]
        wait_until_delivered(client, webhook)
        [one] = receiver.received()[1:]
        assert one.id == stored["delivery_id"]
        verify(one, webhook["secret"])
        assert one.headers["x-api-key"] == HEADERS["X-Api-Key"]
        client.store("group", output(1))
        wait_for_ring(client, receiver, "/")


@pytest.mark.thorough
def test_a_doorbell_rings_for_what_changed_before_a_restart(
    tmp_path: Path, receiver: Receiver
) -> None:
    with serving(tmp_path) as client:
        token = client.token
        webhook = create(client, receiver.url(), "outputs.changed")
        client.store("group", output(1))
        wait_for_ring(client, receiver, "/")
        wait_until_delivered(client, webhook)
    with serving(tmp_path, token) as client:
        other = create(client, receiver.url("/other"))
        act(client, other, "test")
        receiver.wait_for(1, "/other")
        assert len(rings(receiver, "/")) == 1  # nothing has changed
        receiver.answer("/", FAIL)
        client.store("group", output(2))
        wait_until(lambda: len(deliveries(client, webhook, status="waiting")) == 1)
        [waiting] = deliveries(client, webhook, status="waiting")
        client.store("group", output(3))
    receiver.answer("/", Answer())
    with serving(tmp_path, token) as client:
        wait_for_ring(client, receiver, "/")
        ids = [one.id for one in receiver.received()]
        assert ids.count(waiting["delivery_id"]) >= 2
        assert len(set(ids)) == 3


def test_rotations_on_two_nodes_leave_one_secret_that_does_not_expire(
    request: pytest.FixtureRequest, tmp_path: Path, receiver: Receiver
) -> None:
    """Otherwise a stolen secret would sign until somebody rotates it again."""
    clock = Clock()
    settings = replace(fresh_settings("postgres", request, tmp_path), webhook_allow=ALLOWED)
    first = Service(settings, clock)
    second = Service(replace(first.settings, port=0), clock, is_prepared=True)
    with first.client() as client, Client(second.url, client.token) as other:
        webhook = create(client, receiver.url())
        lock = LockHolder(first, "UPDATE session_revisions SET revision = revision")
        with lock, ThreadPoolExecutor() as threads:
            rotations = [threads.submit(act, one, webhook, "rotate") for one in (client, other)]
            time.sleep(0.5)  # both wait for the lock
            lock.release()
            assert len({one.result()["secret"] for one in rotations}) == 2
        clock.move(seconds=DAY + 60)
        act(client, webhook, "test")
        assert len(signatures(receiver.wait_for(1)[0])) == 1
    first.stop()
    second.stop()


def test_a_removed_organization_leaves_no_rows(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, receiver: Receiver
) -> None:
    settings = replace(fresh_settings(engine, request, tmp_path), webhook_allow=ALLOWED)
    service = Service(settings)
    leaving = service.client(organization="leaving")
    with leaving as client, service.client(organization="staying") as other:
        made: list[dict[str, Any]] = []
        for each in (client, other):
            url, events = receiver.url(f"/{len(made)}"), ("outputs.changed", "test")
            made.append(create(each, url, *events, headers=HEADERS))
            each.store("group", output(1))
            receiver.wait_for(1, f"/{len(made) - 1}")
            wait_for_attempts(each, made[-1], 1)
    found = [rows_of(service.settings, number) for number in (1, 2)]
    assert found[0].keys() >= TABLES
    assert found[1].keys() >= TABLES
    options = ["--data", str(tmp_path)]
    if settings.database is not None:
        options += ["--database", settings.database]
    secret = {} if settings.secret_key is None else {"GLEANERY_SECRET_KEY": settings.secret_key}
    run_successfully("organization", "delete", "leaving", "--yes", *options, **secret)
    left = [rows_of(service.settings, number) for number in (1, 2)]
    service.stop()
    assert not left[0].keys() & TABLES
    assert left[1] == found[1]
