"""Clients that write, read and follow a group during a fault, and the checks afterwards."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol

import httpx2

from faults.processes import wait_until
from faults.service import Service

WRITERS = 3
BATCH_SIZE = 5  # outputs per request
_BATCHES = 8  # batches per writer; each is stored repeatedly with a higher version
REFUSED, CONNECTION_LOST, TIMED_OUT = "connection refused", "connection lost", "timed out"
_EXPECTED = {"200", "503", "404", REFUSED, CONNECTION_LOST}  # 404 until the first write
WRITES_AFTER_FAULT = 20  # batches that must be acknowledged before the checks
_SECONDS_BEFORE_FAULT = (0.1, 0.35)
_PAUSE = 0.03  # seconds between requests, so that clients leave CPU time to the service
_WRITER_PAUSE = 0.005  # short, so that a fault interrupts writes


class RequestRecord(NamedTuple):
    """One finished request. The status of a request without a response is a short text."""

    finished: float
    status: str
    seconds: float

    @property
    def started(self) -> float:
        return self.finished - self.seconds


@dataclass
class RequestLog:
    """Finished requests of a client."""

    statuses: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    without_retry_after: int = 0
    records: list[RequestRecord] = field(default_factory=list)

    def add(self, start: float, status: str, response: httpx2.Response | None) -> None:
        now = time.monotonic()
        self.statuses[status] += 1
        self.slowest = max(self.slowest, now - start)
        self.records.append(RequestRecord(now, status, now - start))
        if response is not None and status == "503" and "Retry-After" not in response.headers:
            self.without_retry_after += 1


@dataclass
class BatchVersions:
    """The last version of a batch that was sent, and the last one that was acknowledged."""

    sent: int = 0
    acknowledged: int = 0


class Connectable(Protocol):
    """A service, or several nodes of one, for the clients of one organization."""

    @property
    def organization(self) -> str: ...

    def client(self) -> httpx2.Client: ...


class Client(threading.Thread):
    """Sends requests until it is stopped, and logs them."""

    pause = _PAUSE

    def __init__(self, service: Connectable, group: str) -> None:
        super().__init__()
        self._http = service.client()
        self.organization = service.organization
        self.group = group
        self.log = RequestLog()
        self.stopping = threading.Event()

    def reconnect(self, service: Connectable) -> None:
        """Open a new connection for requests after the end of the thread."""
        self._http = service.client()

    def run(self) -> None:
        with self._http:
            while not self.stopping.is_set():
                self.step()
                self.stopping.wait(self.pause)

    def step(self) -> None:
        raise NotImplementedError

    def request(self, method: str, path: str, **options: Any) -> httpx2.Response | None:
        """Return the response; None without one. Then the effect of the request is unknown."""
        start, response, status = time.monotonic(), None, REFUSED
        try:
            response = self._http.request(method, path, **options)
            status = str(response.status_code)
        except httpx2.ConnectError:
            pass
        except httpx2.TimeoutException:
            status = TIMED_OUT
        except httpx2.TransportError:
            status = CONNECTION_LOST
        self.log.add(start, status, response)
        return response


class Writer(Client):
    """Stores batches. Each batch has its own keys, and all its outputs have one version."""

    pause = _WRITER_PAUSE

    def __init__(self, service: Service, group: str, name: str, padding: int = 0) -> None:
        super().__init__(service, group)
        self._writer = name
        self._padding = "x" * padding
        self._versions = itertools.count(1)
        self.batches = {f"{name}-{number}": BatchVersions() for number in range(_BATCHES)}
        self._next_batch = itertools.cycle(self.batches.items())

    def step(self) -> None:
        name, versions = next(self._next_batch)
        versions.sent = next(self._versions)
        data = {"batch": name, "version": versions.sent, "padding": self._padding}
        outputs = [
            {"job_id": self._writer, "source_url": f"{name}/{number}", "data": data}
            for number in range(BATCH_SIZE)
        ]
        response = self.request("POST", f"/v1/outputs/{self.group}", json=outputs)
        if response is not None and response.status_code == 200:
            versions.acknowledged = versions.sent


class Reader(Client):
    """Reads the first page of the group."""

    def step(self) -> None:
        self.request("GET", f"/v1/outputs/{self.group}?limit=10")


class Follower(Client):
    """Maintains a replica of the group from the change feed, and never starts over."""

    def __init__(self, service: Service, group: str) -> None:
        super().__init__(service, group)
        self._cursor = 0
        self.replica: dict[str, Any] = {}

    def step(self) -> None:
        self.poll(wait=1)

    def poll(self, wait: int = 0) -> int:
        """Apply one page of changes and return their number."""
        query = {"cursor": self._cursor, "limit": 1000, "wait": wait}
        response = self.request("GET", f"/v1/changes/{self.group}", params=query)
        if response is None or response.status_code != 200:
            return 0
        page = response.json()
        self._cursor = page["cursor"]
        for change in page["changes"]:
            self.replica[change["output"]["output_id"]] = change["output"].get("data")
        return len(page["changes"])

    def catch_up(self) -> dict[str, Any]:
        """Apply all remaining changes and return the replica."""
        while self.poll():
            pass
        return self.replica


@dataclass
class Findings:
    """Results of the checks after the fault, over all rounds."""

    acknowledged: int = 0
    unavailable: int = 0
    interrupted: int = 0
    lost: int = 0
    partial: int = 0
    inconsistencies: int = 0
    unexpected: Counter[str] = field(default_factory=Counter)
    integrity_errors: str = ""

    def __add__(self, other: Findings) -> Findings:
        added = {each.name: _sum(self, other, each.name) for each in fields(Findings)}
        return Findings(**added)

    @property
    def is_ok(self) -> bool:
        errors = self.lost or self.partial or self.inconsistencies or self.unexpected
        return not (errors or self.integrity_errors)

    def __str__(self) -> str:
        integrity = "integrity check passed"
        if self.integrity_errors:
            integrity = f"integrity check failed: {self.integrity_errors[:200]}"
        if self.unexpected:
            integrity += f"; unexpected statuses: {format_counts(self.unexpected)}"
        return (
            f"{self.acknowledged:,} batches acknowledged, {self.unavailable:,} answered with 503, "
            f"{self.interrupted:,} interrupted; {self.lost} lost, {self.partial} partial; "
            f"{self.inconsistencies} inconsistencies between outputs, change feed, follower and "
            f"counts; {integrity}"
        )


def _sum(first: Findings, second: Findings, name: str) -> Any:
    return getattr(first, name) + getattr(second, name)


class Workload:
    """Writers, a reader and a follower of one group."""

    def __init__(self, service: Service, group: str, writers: int, padding: int) -> None:
        self._service, self.group = service, group
        self.writers = [Writer(service, group, f"w{n}", padding) for n in range(writers)]
        self.readers: list[Client] = [Reader(service, group)]
        self.follower = Follower(service, group)

    @property
    def clients(self) -> list[Client]:
        return [*self.writers, *self.readers, self.follower]

    def acknowledged(self) -> int:
        """Return the number of acknowledged batches."""
        return sum(writer.log.statuses["200"] for writer in self.writers)

    def wait_for_writes(self, count: int) -> None:
        """Wait until this many more batches are acknowledged."""
        target = self.acknowledged() + count
        wait_until(lambda: self.acknowledged() >= target)

    def has_responses_since(self, start: float) -> bool:
        """Return True if each writer and each reader has had a response since then."""
        newest = [client.log.records[-1:] for client in (*self.writers, *self.readers)]
        return all(records and records[0].finished > start for records in newest)

    def stop(self) -> None:
        """Stop the clients, the writers last: their writes end the long polls of the others."""
        for clients in ([self.follower, *self.readers], self.writers):
            for client in clients:
                client.stopping.set()
            for client in clients:
                client.join()

    def check(self, findings: Findings) -> None:
        """Compare the stored data with the acknowledged writes. The service must be ready."""
        for client in self.clients:
            statuses = client.log.statuses
            unexpected = {status: statuses[status] for status in statuses.keys() - _EXPECTED}
            findings.unexpected.update(unexpected)
        with self._service.client() as http:
            items = list(items_of(http, self.group))
            group = http.get(f"/v1/groups/{self.group}").json()
        self._check_batches(items, findings)
        stored = {item["output_id"]: item["data"] for item in items}
        self.follower.reconnect(self._service)
        for follower in (Follower(self._service, self.group), self.follower):
            findings.inconsistencies += follower.catch_up() != stored
        findings.inconsistencies += group["outputs"] != len(stored)
        findings.inconsistencies += sum(job["outputs"] for job in group["jobs"]) != len(stored)

    def _check_batches(self, items: list[dict[str, Any]], findings: Findings) -> None:
        stored: dict[str, list[int]] = {}
        for item in items:
            stored.setdefault(item["data"]["batch"], []).append(item["data"]["version"])
        for writer in self.writers:
            findings.acknowledged += writer.log.statuses["200"]
            findings.unavailable += writer.log.statuses["503"]
            findings.interrupted += writer.log.statuses[CONNECTION_LOST]
            for name, versions in writer.batches.items():
                found = stored.pop(name, [])
                newest = max(found, default=0)
                findings.partial += bool(found) and (len(found), min(found)) != (BATCH_SIZE, newest)
                findings.lost += not versions.acknowledged <= newest <= versions.sent
        findings.inconsistencies += bool(stored)  # batches that no writer sent


@contextmanager
def run_workload(
    service: Service, group: str, writers: int = WRITERS, padding: int = 0
) -> Iterator[Workload]:
    """Run a workload. The end of the context stops it, but does not check it."""
    workload = Workload(service, group, writers, padding)
    for client in workload.clients:
        client.start()
    try:
        yield workload
    finally:
        workload.stop()


def vary_timing() -> None:
    """Sleep for a random time, so that the fault hits a different moment in each round."""
    time.sleep(random.uniform(*_SECONDS_BEFORE_FAULT))


def format_counts(statuses: Counter[str]) -> str:
    return ", ".join(f"{count:,} × {status}" for status, count in sorted(statuses.items()))


def items_of(http: httpx2.Client, group: str, query: str = "") -> Iterator[dict[str, Any]]:
    """Read all outputs of a group that match the query."""
    url: str | None = f"/v1/outputs/{group}?limit=1000{query}"
    while url is not None:
        response = http.get(url)
        assert response.status_code == 200, response.text
        yield from response.json()["items"]
        url = response.json()["metadata"]["next_url"]
