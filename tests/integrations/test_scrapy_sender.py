"""The thread that sends items, against a service, without Scrapy."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gleanery.client import ConnectionFailed, ErrorDetail, RateLimited
from gleanery.client.queue.sender import Outage
from gleanery.client.queue.spool import Spool
from tests.support.forwarder import Forwarder
from tests.support.process import gleanery_in_process
from tests.support.scrapy_senders import RunningSender
from tests.support.service import Client, Service

pytestmark = pytest.mark.thorough


def line(number: int, **members: Any) -> bytes:
    """An output as the pipeline makes it."""
    url = f"https://shop.example/{number}"
    output = {"job_id": "shop", "source_url": url, "data": {"url": url, "sku": number}, **members}
    return json.dumps(output).encode()


@pytest.mark.parametrize("names", [("sku",), ("sku", "url")])
def test_a_token_that_cannot_read_the_key_fields_stores_nothing(
    service: Service, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """It cannot know which key makes the same outputs: each item could become a second one."""
    organization = uuid4().hex
    client = service.client(organization=organization)
    client.put("/v1/groups/items", json={"key_fields": names})
    client.store("items", json.loads(line(1)))
    token = service.token(organization, frozenset({"outputs:write"}))
    sender = RunningSender(tmp_path, service.url, token, key_fields=names)
    sender.run(line(1, **({"key": "1"} if len(names) == 1 else {})))
    assert sender.counts == {"failures": 1, "spooled": 1, "left_in_spool": 1}
    assert len(client.items("items")) == 1
    again = RunningSender(tmp_path, service.url, str(client.token), key_fields=names)
    again.run()
    assert (again.counts["sent_from_spool"], again.counts["unchanged"]) == (1, 1)


def test_without_key_fields_a_token_that_can_only_write_is_enough(
    service: Service, tmp_path: Path
) -> None:
    organization = uuid4().hex
    token = service.token(organization, frozenset({"outputs:write"}))
    sender = RunningSender(tmp_path, service.url, token)
    sender.run(line(1))
    assert sender.counts["created"] == 1
    assert len(service.client(organization=organization).items("items")) == 1


def test_the_message_says_which_scope_is_missing(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = service.token(scopes=frozenset({"outputs:write"}))
    RunningSender(tmp_path, service.url, token, key_fields=("sku",)).run(line(1, key="1"))
    assert "the token needs the scope outputs:read" in caplog.text
    assert "remove GLEANERY_KEY_FIELDS" in caplog.text


@pytest.fixture
def gate(service: Service) -> Iterator[Forwarder]:
    """A connection to the service that a test interrupts."""
    made = Forwarder(("127.0.0.1", int(service.url.rsplit(":", 1)[1])))
    made.start()
    yield made
    made.stop()


def gate_url(gate: Forwarder) -> str:
    return f"http://127.0.0.1:{gate.port}"


def spool_lines(folder: Path, *lines: bytes) -> None:
    """Write the spool of an earlier run."""
    spool = Spool(folder / "spool")
    spool.append(lines)
    spool.close()


def test_a_damaged_line_of_the_spool_does_not_stop_the_others(
    service: Service, client: Client, tmp_path: Path
) -> None:
    client.put("/v1/groups/items", json={"key_fields": ["sku"]})
    spool_lines(tmp_path, line(1, key="1"), b'{"source_url":"u"}', b"\0\0\0", line(2, key="2"))
    sender = RunningSender(tmp_path, service.url, client.token, key_fields=("sku",))
    sender.run(line(3, key="3"))
    assert (sender.counts["created"], sender.counts["invalid"]) == (3, 2)
    assert sender.has_ended


def test_an_unexpected_error_is_logged_and_keeps_the_items(
    service: Service,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sender = RunningSender(tmp_path, service.url, client.token)
    monkeypatch.setattr(Spool, "__len__", lambda _: 1 / 0)
    monkeypatch.setattr(sender.spool, "close", lambda: 1 / 0)
    sender.run(line(1))
    assert sender.has_ended
    assert "division by zero" in caplog.text
    monkeypatch.undo()
    assert [
        lines for path in tmp_path.glob("spool/*/*.jsonl") for lines in [path.read_bytes()]
    ] == [line(1)]


def test_the_end_does_not_wait_longer_than_it_may(
    gate: Forwarder, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request of a service that hangs takes its whole timeout."""
    monkeypatch.setattr("gleanery.client.queue.sender._TIMEOUT", 1.5)
    gate.freeze()
    sender = RunningSender(
        tmp_path, gate_url(gate), client.token, max_retries=20, close_seconds=3.0
    )
    started = time.monotonic()
    sender.run(line(1))
    assert 2 < time.monotonic() - started < 5
    assert sender.counts["spooled"] == 1
    gate.thaw()


def test_a_request_is_retried_before_its_items_go_to_the_disk(
    gate: Forwarder, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    gate.stop()
    sender = RunningSender(
        tmp_path, gate_url(gate), client.token, max_retries=20, close_seconds=30.0
    )
    threading.Timer(1.2, gate.start).start()
    sender.run(line(1))
    assert sender.counts["retries"] >= 1
    assert (sender.counts["created"], sender.counts["spooled"], sender.counts["failures"]) == (
        1,
        0,
        0,
    )
    assert "WARNING" not in caplog.text


def test_every_cause_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A second cause of the same kind is not hidden by the first one."""
    caplog.set_level("INFO")
    outage = Outage(max_retries=1)
    for cause in ("refused", "refused", "refused", "reset", "reset"):
        outage.note_failure(ConnectionFailed(cause), "the spool")
    outage.note_success()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"Gleanery does not store items: {cause}. They are written to the spool until it does"
        for cause in ("refused", "reset")
    ]
    assert caplog.messages[-1] == "Gleanery responds again"


def test_a_service_can_ask_for_a_longer_wait() -> None:
    outage = Outage(max_retries=1)
    outage.note_failure(RateLimited(429, [ErrorDetail((), "Too many", "rate")], None, 60.0), "")
    assert 50 < outage.seconds_to_wait() <= 60
    assert not outage.is_down


def test_every_invalid_item_is_kept(
    service: Service, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A response of the service explains only the first 100 errors."""
    schema = {"properties": {"sku": {"not": {"multipleOf": 2}}}}
    client.put("/v1/groups/items", json={"schema": schema})
    lines = [line(number) for number in range(500)]
    lines[400:400] = [b"{}", b"no JSON"]
    sender = RunningSender(tmp_path, service.url, client.token)
    sender.run(*lines)
    assert (sender.counts["created"], sender.counts["invalid"]) == (250, 252)
    assert (sender.counts["batches"], sender.counts["unchanged"]) == (1, 0)
    kept = sender.rejected.path.read_bytes().splitlines()
    assert kept == [*lines[0:400:2], *lines[400:402], *lines[402::2]]
    assert "252 invalid items are not stored" in caplog.text
    assert f"gleanery push items {sender.rejected.path}" in caplog.text


def test_messages_about_one_item_are_in_the_singular(
    service: Service, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client.put("/v1/groups/items", json={"schema": {"required": ["price"]}})
    sender = RunningSender(tmp_path, service.url, client.token)
    sender.run(line(1))
    assert (
        f"1 invalid item is not stored. It is in {sender.rejected.path}. When it is" in caplog.text
    )
    RunningSender(tmp_path, service.url, "unknown").run(line(1))
    assert "1 item could not be sent: " in caplog.text
    assert (
        f"It is in {sender.spool.folder}. The next run of this spider begins with it" in caplog.text
    )


def test_items_that_are_left_are_counted_apart_from_those_of_earlier_runs(
    gate: Forwarder, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunningSender(tmp_path, gate_url(gate), "unknown").run(line(1), line(2), line(3))
    sender = RunningSender(tmp_path, gate_url(gate), client.token)
    remove_first = sender.spool.remove_first

    def remove_and_interrupt() -> None:
        remove_first()
        gate.stop()

    monkeypatch.setattr(sender.spool, "remove_first", remove_and_interrupt)
    sender.run(line(4))
    counted = {
        name: sender.counts[name] for name in ("sent_from_spool", "spooled", "left_in_spool")
    }
    assert counted == {"sent_from_spool": 3, "spooled": 1, "left_in_spool": 1}


def test_kept_items_can_be_pushed_when_they_are_valid(
    service: Service, client: Client, tmp_path: Path
) -> None:
    client.put("/v1/groups/items", json={"schema": {"required": ["price"]}, "key_fields": ["sku"]})
    sender = RunningSender(tmp_path, service.url, client.token, key_fields=("sku",))
    sender.run(line(1, key="1"), line(2, key="2"))
    client.put("/v1/groups/items", json={"key_fields": ["sku"]})
    client.store("items", json.loads(line(1)))
    done = gleanery_in_process(
        *("push", "items", str(sender.rejected.path)),
        GLEANERY_URL=service.url,
        GLEANERY_TOKEN=str(client.token),
    )
    assert done.returncode == 0, done.stderr
    assert [item["data"]["sku"] for item in client.items("items")] == [1, 2]
