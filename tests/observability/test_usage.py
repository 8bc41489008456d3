"""Usage of organizations: metrics, ``gleanery usage`` and the log, on both engines."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gleanery.common.settings import Settings
from gleanery.service.api.context import RequestState
from gleanery.service.foundation.observability.metrics import SharedCounters
from gleanery.service.foundation.observability.telemetry import (
    STORED_BYTES,
    USAGE_METRICS,
    Telemetry,
)
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import storage_bytes
from gleanery.service.storage import metadata
from gleanery.service.storage import usage as stored_usage
from gleanery.service.storage.engines import open_engine
from tests.support.databases import run_script
from tests.support.outputs import output
from tests.support.process import (
    Running,
    database_options,
    gleanery_in_process,
    new_token,
    run_successfully,
    served,
)
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.thorough

NAMES = [metric.name for metric in USAGE_METRICS]
REQUESTS = NAMES[0]


@pytest.fixture
def fresh(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return fresh_settings(engine, request, tmp_path / "data")


def usage(settings: Settings, *options: str) -> dict[str, dict[str, Any]]:
    """What the command prints, by organization."""
    text = run_successfully("usage", "--json", *options, *database_options(settings))
    return {found["organization"]: found for found in json.loads(text)}


def metrics_of(url: str) -> dict[str, list[float]]:
    """Values of the metrics by the label of the organization, in the order of their names."""
    with Client(url, None) as client:
        text = client.get("/metrics").text
    found: dict[str, list[float]] = {}
    for name in NAMES:
        for label, value in re.findall(rf'^{name}{{organization="(\w+)"}} (.*)$', text, re.M):
            found.setdefault(label, []).append(float(value))
    return found


class Counted(Client):
    """A client that counts what the service should count."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token)
        self.headers["Accept-Encoding"] = "identity"
        self.counts = [0, 0, 0, 0]

    def send(self, request: Any, **options: Any) -> Any:
        answer = super().send(request, **options)
        self.counts[0] += 1
        self.counts[1] += len(request.read())
        self.counts[2] += len(answer.content)
        return answer


def test_usage_is_counted_for_each_organization(fresh: Settings) -> None:
    where = database_options(fresh)
    with served(fresh, with_token=False) as (running, url, _):
        with Counted(url, new_token(where, "a")) as a, Counted(url, new_token(where, "b")) as b:
            a.store("g", output("1"), output("2"))
            a.store("g", output("1"), output("2"), output("3", data={"new": True}))
            a.counts[3] = 3  # the first two did not change
            for _ in range(5):
                a.get("/v1/outputs/g?limit=2")
            lines = b"".join(json.dumps(output(str(n))).encode() + b"\n" for n in range(20))
            ndjson = {"Content-Type": "application/x-ndjson"}
            assert b.post("/v1/outputs/n", content=lines, headers=ndjson).status_code == 200
            b.counts[3] = 20
            b.post("/v1/files", content=b"x" * 5000, headers={"Content-Type": "text/plain"})
            b.get("/v1/exports/n")
            b.get("/v1/outputs/missing")
            b.request("HEAD", "/v1/outputs/n")
            with Client(url, "glean_invalid") as nobody:
                assert nobody.get("/v1/groups").status_code == 401
            expected = {"1": a.counts, "2": b.counts, "other": [0] * 4}
            wait_until(lambda: metrics_of(url) == expected)  # they can be a second old
        assert running.stop() == 0  # an orderly stop stores what was counted
    found = usage(fresh)
    for name, client in (("a", a), ("b", b)):
        [day] = found[name]["days"]
        keys = ("requests", "received_bytes", "sent_bytes", "stored_outputs")
        assert [found[name][key] for key in keys] == client.counts
        assert [day[key] for key in keys] == client.counts
    assert usage(fresh, "--organization", "a").keys() == {"a"}
    table = run_successfully("usage", *where)
    assert re.search(rf"^ *1 +a +{a.counts[0]} +{a.counts[1]} ", table, re.M), table


def test_the_usage_of_several_workers_and_starts_is_added(fresh: Settings) -> None:
    for requests in (3, 4):
        with served(fresh, "--workers", "2") as (running, url, token):
            for _ in range(requests):
                with Client(url, token) as client:
                    client.get("/v1/groups")
            wait_until(partial(has_requests, url, requests))
            running.stop()
    assert usage(fresh)["a"]["requests"] == 7


def has_requests(url: str, requests: int) -> bool:
    return metrics_of(url).get("1", [0])[0] == requests


def test_downloads_with_a_signed_link_count_for_their_organization(fresh: Settings) -> None:
    with served(fresh) as (running, url, token):
        with Client(url, token) as client:
            kind = {"Content-Type": "text/plain"}
            file = client.post("/v1/files", content=b"x" * 5000, headers=kind).json()
            client.store("g", output("1") | {"files": [{"field": "f", "id": file["id"]}]})
            [item] = client.items("g")
        wait_until(partial(has_requests, url, 3))
        sent_before = metrics_of(url)["1"][2]
        with Client(url, None) as anybody:
            link = urlsplit(item["files"][0]["blob_url"])
            assert len(anybody.get(f"{link.path}?{link.query}").content) == 5000
        wait_until(partial(has_requests, url, 4))
        assert metrics_of(url)["1"][2] - sent_before == 5000
        running.stop()


def test_stored_bytes_are_added_up_in_steps(fresh: Settings) -> None:
    with served(fresh) as (running, url, token):
        with Client(url, token) as client:
            for start in range(0, 2500, 500):
                client.store("g", *(output(str(n)) for n in range(start, start + 500)))
            client.store("g", *(output(str(n), data={"changed": n}) for n in range(10)))
            kind = {"Content-Type": "text/plain"}
            for source in ("https://a.example", "https://b.example", "https://c.example"):
                query = {"source_url": source}
                client.post("/v1/files", params=query, content=b"x" * 5000, headers=kind)
            client.post("/v1/files", content=b"y" * 7, headers=kind)
            cookie = {"domain": "x.example", "name": "n", "value": "v" * 100}
            client.post("/v1/cookies", json=[cookie])
        running.stop()
    found = usage(fresh, "--storage")["a"]
    assert found["file_bytes"] == 5007
    assert found["database_bytes"] == stored_bytes(fresh)


def test_the_sweep_measures_the_stored_bytes(fresh: Settings) -> None:
    where = database_options(fresh)
    options = ("--workers", "2", "--sweep-seconds", "0.1")
    with served(fresh, *options, with_token=False) as (running, url, _):
        with Client(url, new_token(where, "a")) as a, Client(url, new_token(where, "b")) as b:
            a.store("g", *(output(str(n)) for n in range(10)))
            a.post("/v1/files", content=b"x" * 5000, headers={"Content-Type": "text/plain"})
            b.get("/v1/groups")
        expected = {"1": stored_bytes(fresh) + 5000, "2": 0}
        forget_measurements(fresh)
        wait_until(lambda: storage_of(url) == expected)
        found = usage(fresh)
        assert (found["a"]["database_bytes"], found["a"]["file_bytes"]) == (
            expected["1"] - 5000,
            5000,
        )
        measured_on = found["a"]["measured_on"]
        assert re.search(
            rf"^ *1 .* 5000 +{measured_on} *$", run_successfully("usage", *where), re.M
        )
        now_measured = usage(fresh, "--storage")["a"]
        assert now_measured["database_bytes"] == found["a"]["database_bytes"]
        assert "" < measured_on <= now_measured["measured_on"]
        run_successfully("organization", "delete", "b", "--yes", *where)
        wait_until(lambda: storage_of(url) == {"1": expected["1"]})
        running.stop()


def storage_of(url: str) -> dict[str, float]:
    """The stored bytes in the metrics, by the label of the organization."""
    with Client(url, None) as client:
        text = client.get("/metrics").text
    pairs = re.findall(rf'^{STORED_BYTES.name}{{organization="(\w+)"}} (.*)$', text, re.M)
    assert len(pairs) == len(dict(pairs))
    return {label: float(value) for label, value in pairs}


def forget_measurements(settings: Settings) -> None:
    run_script(
        settings,
        "DELETE FROM metadata WHERE name = 'storage_pass'; "
        "UPDATE organization_usage SET database_bytes = NULL, file_bytes = NULL",
    )


def test_the_stored_bytes_are_measured_again_after_a_day(fresh: Settings, clock: Clock) -> None:
    service = Service(replace(fresh, sweep_seconds=0.1), clock)
    with service.client(organization="a") as client:
        client.store("g", output("1"))
        forget_measurements(fresh)
        wait_until(lambda: storage_of(service.url) == {"1": stored_bytes(fresh)})
        client.store("g", *(output(str(n)) for n in range(5)))
        clock.move(seconds=DAY)
        wait_until(lambda: storage_of(service.url) == {"1": stored_bytes(fresh)})
    service.stop()


def test_a_round_measures_a_part_and_the_next_one_continues(
    fresh: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(fresh) as (running, url, token):
        with Client(url, token) as client:
            for group in ("g", "h"):
                client.store(group, *(output(str(n)) for n in range(5)))
            for content in (b"x", b"yy", b"zzz"):
                client.post("/v1/files", content=content, headers={"Content-Type": "text/plain"})
        running.stop()
    forget_measurements(fresh)
    monkeypatch.setattr(storage_bytes, "_STEP_ROWS", 2)
    monkeypatch.setattr(storage_bytes, "_ROUND_STEPS", 6)
    now, today = timestamps.now(), timestamps.now() // stored_usage.DAY

    async def measure() -> tuple[int, Any]:
        async with open_engine(fresh) as engine:
            rounds, found = 0, None
            while found is None:
                await storage_bytes.run_round(engine, now + rounds * 60 * timestamps.SECOND)
                state = await metadata.storage_pass(engine)
                await storage_bytes.run_round(engine, now + rounds * 60 * timestamps.SECOND)
                assert await metadata.storage_pass(engine) == state  # one round in a minute
                rounds += 1
                found = await stored_usage.last_storage(engine.for_tenant(1), today + 1)
            return rounds, found

    rounds, found = asyncio.run(measure())
    # Tables without groups take 4 steps, then each group 1 and its tables 5, and the end one.
    assert rounds == 3
    assert (found.database_bytes, found.file_bytes) == (stored_bytes(fresh), 6)


def stored_bytes(settings: Settings) -> int:
    columns = {"outputs": "item", "output_history": "versions", "cookies": "encrypted_value"}

    async def add_up() -> int:
        async with open_engine(settings) as engine:
            everyone = engine.for_all_tenants()
            total = 0
            for table, column in columns.items():
                [[found]] = await everyone.read(f"SELECT sum(octet_length({column})) FROM {table}")
                total += int(found or 0)
            return total

    return asyncio.run(add_up())


def test_an_unknown_organization_has_no_usage(fresh: Settings) -> None:
    with served(fresh) as (running, _, _):
        running.stop()
    ended = gleanery_in_process("usage", "--organization", "x", *database_options(fresh))
    assert ended.returncode == 2
    assert "There is no organization of this name" in ended.stderr


# --- bounds -------------------------------------------------------------------------------------


class FakeRequest:
    """What the telemetry needs of a request."""

    method, path = "GET", b"/"

    def __init__(self, organization: int) -> None:
        self.state = RequestState(b"")
        self.state.organization = organization


def telemetry_of(shared: SharedCounters, worker: int, organizations: int) -> Telemetry:
    counters = SharedCounters.attach(shared.fileno(), worker)
    return Telemetry(None, ["read"], counters, {}, organizations=organizations)


def record(telemetry: Telemetry, organization: int, requests: int = 1) -> None:
    for _ in range(requests):
        request: Any = FakeRequest(organization)
        telemetry.record(request, "read", b"id", 200, time.perf_counter())


def requests_by_label(telemetry: Telemetry) -> dict[str, float]:
    text = "".join(
        f"{name} {value}\n" for _, samples in telemetry.usage.collect() for name, value in samples
    )
    pairs = re.findall(rf'{REQUESTS}{{organization="(\w+)"}} (\S+)', text)
    return {label: float(value) for label, value in pairs}


def test_the_metrics_and_the_memory_are_bounded_with_many_organizations() -> None:
    telemetry = telemetry_of(SharedCounters.create(1), 1, 3)
    for organization in range(1, 12_001):
        record(telemetry, organization)
    found = requests_by_label(telemetry)
    assert found == {"1": 1, "2": 1, "3": 1, "other": 11_997}
    assert len(telemetry.usage.take()) == 10_000
    assert telemetry.usage.take() == {}


def test_a_busy_organization_takes_the_place_of_the_least_busy_one() -> None:
    telemetry = telemetry_of(SharedCounters.create(1), 1, 2)
    for _ in range(3):
        record(telemetry, 1, 20)
        record(telemetry, 2, 1)
        record(telemetry, 3, 1)
        telemetry.usage.take()
    assert requests_by_label(telemetry) == {"1": 60, "2": 3, "other": 3}
    record(telemetry, 3, 50)
    telemetry.usage.take()
    record(telemetry, 3, 7)
    found = requests_by_label(telemetry)
    assert found == {"1": 60, "3": 7, "other": 53}  # its count starts when it takes the place


def test_a_replaced_worker_continues_its_organizations() -> None:
    shared = SharedCounters.create(2)
    record(first := telemetry_of(shared, 1, 2), 5, 3)
    record(first, 6, 1)
    record(other := telemetry_of(shared, 2, 2), 5, 10)
    first.usage.publish()
    other.usage.publish()
    again = telemetry_of(shared, 1, 2)
    record(again, 6, 4)
    record(again, 7, 1)
    assert requests_by_label(again) == {"5": 13, "6": 5, "other": 1}


def test_the_workers_show_the_same_stored_bytes_and_no_sum() -> None:
    shared = SharedCounters.create(2)
    record(first := telemetry_of(shared, 1, 2), 5)
    record(other := telemetry_of(shared, 2, 2), 5)
    record(other, 6)
    for telemetry in (first, other):
        telemetry.usage.publish()
        telemetry.usage.set_stored_bytes(5, 100)
        telemetry.usage.set_stored_bytes(6, 0)
        telemetry.usage.set_stored_bytes(7, 3)  # has no slot
    assert stored_by_label(first) == stored_by_label(other) == {"5": 100, "6": 0}
    first.usage.set_stored_bytes(5, None)
    assert stored_by_label(first) == stored_by_label(other) == {"5": 100, "6": 0}
    other.usage.set_stored_bytes(5, None)
    assert stored_by_label(first) == stored_by_label(other) == {"6": 0}
    other.usage.set_stored_bytes(5, 200)
    record(other, 8, 60)
    other.usage.take()  # takes a slot of one of them, but not its bytes
    assert requests_by_label(other).keys() >= {"8"}
    assert stored_by_label(other) in ({"5": 200}, {"6": 0})


def stored_by_label(telemetry: Telemetry) -> dict[str, float]:
    [samples] = [found for metric, found in telemetry.usage.collect() if metric == STORED_BYTES]
    return {name.split('"')[1]: value for name, value in samples}


def test_usage_that_could_not_be_stored_is_stored_later() -> None:
    telemetry = telemetry_of(SharedCounters.create(1), 1, 2)
    record(telemetry, 5, 3)
    taken = telemetry.usage.take()
    record(telemetry, 5, 1)
    telemetry.usage.put_back(taken)
    assert telemetry.usage.take() == {5: [4, 0, 0, 0]}


# --- the log ------------------------------------------------------------------------------------


def lines_of(running: Running, event: str) -> list[dict[str, Any]]:
    return [line for text in running.log if (line := json.loads(text))["event"] == event]


def callers(lines: list[dict[str, Any]], operation: str) -> list[tuple[int, Any, Any]]:
    return [
        (line["status"], line.get("organization"), line.get("token"))
        for line in lines
        if line["operation"] == operation
    ]


@pytest.mark.parametrize("format_", ["json", "text"])
def test_a_request_line_names_the_organization_and_the_token(fresh: Settings, format_: str) -> None:
    where = database_options(fresh)
    options = ("--log-level", "info", "--log-format", format_)
    with served(fresh, *options, with_token=False) as (running, url, _):
        token = new_token(where, "a")
        limited = run_successfully(
            "token", "create", "--organization", "b", "--scopes", "outputs:read", *where
        ).strip()
        with Client(url, token) as client:
            client.store("g", output("1"))
            for _ in range(3):
                assert client.items("g")  # the second one repeats the first
        with Client(url, limited) as client:
            assert client.put("/v1/groups/g", json={}).status_code == 403
        with Client(url, "glean_invalid") as client:
            assert client.get("/v1/audit").status_code == 401
        running.stop()
    assert token not in "".join(running.log)
    if format_ == "text":
        assert any("organization=1 token=1 status=200" in line for line in running.log)
        return
    lines = lines_of(running, "request")
    assert callers(lines, "get_outputs") == [(200, 1, 1)] * 3
    assert callers(lines, "store_outputs") == [(200, 1, 1)]
    assert [line.get("organization") for line in lines if line["status"] == 403] == [2]
    assert [line.get("organization") for line in lines if line["status"] == 401] == [None]


def test_a_rejected_request_has_its_organization(fresh: Settings) -> None:
    options = ("--log-level", "info", "--rate-limit", "2/hour", "--token-cache-seconds", "0.01")
    with served(fresh, *options) as (running, url, token):
        with Client(url, token) as client:
            statuses = [client.get("/v1/groups").status_code for _ in range(4)]
        running.stop()
    assert statuses == [200, 200, 429, 429]
    lines = [line for line in lines_of(running, "request") if line["status"] == 429]
    assert [(line["organization"], line["token"]) for line in lines] == [(1, 1)] * 2


ALWAYS = ("--slow-request-seconds", "0.000001")


def test_a_slow_request_has_a_second_line(fresh: Settings) -> None:
    with served(fresh, *ALWAYS) as (running, url, token):
        with Client(url, token) as client:
            client.store("g", output("1"), output("2"))
            size = len(client.get("/v1/outputs/g").content)
        running.stop()
    stored, page = [
        line
        for line in lines_of(running, "slow request")
        if line["operation"] in ("store_outputs", "get_outputs")
    ]
    assert stored["level"] == "warning"
    assert (stored["organization"], stored["token"], stored["status"]) == (1, 1, 200)
    assert (stored["path"], stored["stored_outputs"]) == ("/v1/outputs/g", 2)
    assert stored["received_bytes"] > 50
    assert stored["service_milliseconds"] >= stored["queue_milliseconds"] >= 0
    assert page["request_id"]
    assert 0 < page["sent_bytes"] <= size


def test_the_time_of_the_client_is_not_the_time_of_the_service(fresh: Settings) -> None:
    """How long the service takes is not certain, so the two lines of a request are compared."""
    with served(fresh, "--log-level", "info", *ALWAYS) as (running, url, token):
        with Client(url, token) as client:
            client.store("g", output("1"))
            cursor = client.get("/v1/changes/g").json()["cursor"]
            client.get("/v1/changes/g", params={"cursor": cursor, "wait": 1})
        send_slowly(url, token, b'[{"job_id": "j", "source_url": "https://x.example", "data": {}}]')
        running.stop()
    requests = {line["request_id"]: line for line in lines_of(running, "request")}
    slow = lines_of(running, "slow request")
    for operation in ("get_changes", "store_outputs"):
        line = [found for found in slow if found["operation"] == operation][-1]
        assert line["idle_milliseconds"] > 0
        since_start = requests[line["request_id"]]["milliseconds"]
        both = line["service_milliseconds"] + line["idle_milliseconds"]
        assert both == pytest.approx(line["queue_milliseconds"] + since_start, abs=0.1)


def send_slowly(url: str, token: str, body: bytes) -> None:
    """Sends a request with a pause of a second in its body."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    head = (
        f"POST /v1/outputs/slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    with socket.create_connection((host, port), TIMEOUT_SECONDS) as connection:
        connection.sendall(head.encode() + body[:10])
        time.sleep(1)
        connection.sendall(body[10:])
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_without_the_setting_no_request_is_slow(fresh: Settings) -> None:
    with served(fresh, "--slow-request-seconds", "0") as (running, url, token):
        with Client(url, token) as client:
            client.get("/v1/groups")
        running.stop()
    assert lines_of(running, "slow request") == []
