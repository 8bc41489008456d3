"""Webhook fault: parts are killed while the events of two organizations are delivered.

Most endpoints respond. Others are slow, fail in different ways, or are gone. Each cause of an event
has a number, which the event contains. So the received events tell what is lost, has no cause, or
is not in order.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from faults.deployments import Deployment
from faults.environment import Environment
from faults.organizations import Organization
from faults.processes import wait_until
from faults.results import Result
from faults.webhook_receiver import FAILING, GONE, OK, SLOW, Delivery, Receiver, start_receiver
from faults.workload import CONNECTION_LOST, REFUSED, Client, format_counts

DELIVERED = (
    "each event whose cause was acknowledged is delivered at least once to every endpoint that "
    "responds, in the order of its group; slow, failing and gone endpoints delay no other one, and "
    "no organization another one"
)
ENDPOINTS = {OK: 25, SLOW: 10, FAILING: 10, GONE: 5}
_FEW_ENDPOINTS = {OK: 5}  # of the second organization
_EVENTS = ("outputs.changed", "run.finished", "review.created", "webhook.disabled")
_GROUPS = {"first": 4, "second": 1}
"""Groups of each organization. They have the same names."""
_JOB = "shop"
_PAUSE = 0.02  # seconds between two causes of a group, in a round
_QUIET_PAUSE = 1.0  # and between two rounds, when the time until the delivery is measured
_QUIET_SECONDS = 15
_MAX_PAUSE = 40.0
"""Seconds without a delivery after a kill. A lease ends after 10, and PostgreSQL starts slowly."""
_MAX_P99 = 10.0  # seconds, for a busy machine; one slow endpoint alone needs minutes
_TIMEOUT = 1200.0
_EXPECTED = {"200", "503", REFUSED, CONNECTION_LOST}

Cause = tuple[str, str, int]
"""Organization, group and number."""


class Source(Client):
    """Causes events of one group, one after another, while it is active."""

    def __init__(self, organization: Organization, group: str) -> None:
        super().__init__(organization, group)
        self.is_active = False
        self._lock = threading.Lock()
        self.number = 0
        """Of the last cause that was sent."""
        self.acknowledged: dict[int, float] = {}
        """When a cause was acknowledged, by its number."""

    def prepare(self, organization: Organization) -> None:
        """Store the first output, so that the group exists."""
        wait_until(lambda: self._store(0) is not None)
        self.reconnect(organization)

    def step(self) -> None:
        with self._lock:
            if self.is_active:
                self._cause()

    def pause_causes(self) -> None:
        """Return when the current cause has ended."""
        with self._lock:
            self.is_active = False

    def _cause(self) -> None:
        self.number += 1
        number = self.number
        if number % 3 == 0:
            self._store(number)
        name = f"{self.organization} {number}"
        if number % 5 == 0:
            started = self._post(f"/v1/runs/{self.group}", {"job_id": _JOB})
            url = f"/v1/runs/{self.group}/{started and started['run_id']}/finish"
            done = started and self._post(url, {"status": "failed", "message": name})
        else:
            review = {"job_id": _JOB, "status": "in_review", "comment": name}
            done = self._post(f"/v1/reviews/{self.group}", review)
        if done:
            self.acknowledged[number] = time.monotonic()

    def _store(self, number: int) -> Any:
        output = {"job_id": _JOB, "source_url": "https://a.example/1", "data": {"n": number}}
        return self._post(f"/v1/outputs/{self.group}", [output])

    def _post(self, path: str, body: Any) -> Any:
        response = self.request("POST", path, json=body)
        return response.json() if response is not None and response.status_code == 200 else None


@dataclass
class Findings:
    """Results of the checks."""

    causes: int = 0
    deliveries: int = 0
    healthy: int = 0
    """Events that the endpoints that respond should have, over all of these endpoints."""
    lost: int = 0
    repeated: int = 0
    unknown: int = 0
    """Events without a cause, or of another organization."""
    misplaced: int = 0
    """Events that came after a later one of the same group."""
    wrong_doorbells: int = 0
    """Endpoints and groups whose last doorbell has not the last position."""
    not_disabled: int = 0
    longest_pause: float = 0.0
    delays: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from the acknowledgement to the delivery between two rounds, by organization."""
    statuses: Counter[str] = field(default_factory=Counter)
    errors: str = ""

    @property
    def is_ok(self) -> bool:
        wrong = self.lost or self.unknown or self.misplaced or self.wrong_doorbells
        is_fast = all(_percentile(some, 99) < _MAX_P99 for some in self.delays.values())
        is_complete = not (wrong or self.not_disabled or self.errors)
        has_expected = not self.statuses.keys() - _EXPECTED
        return is_complete and is_fast and has_expected and self.longest_pause < _MAX_PAUSE

    def __str__(self) -> str:
        delays = ", ".join(
            f"{1000 * _percentile(some, 50):.0f} ms and {1000 * _percentile(some, 99):.0f} ms"
            for some in self.delays.values()
        )
        return (
            f"{self.causes:,} causes acknowledged, {self.deliveries:,} requests received; "
            f"of {self.healthy:,} events for endpoints that respond {self.lost} lost, "
            f"{self.repeated:,} repeated, {self.unknown} without a cause, {self.misplaced} not in "
            f"order; {self.wrong_doorbells} last doorbells wrong; {self.not_disabled} endpoints "
            f"that are gone and not disabled; longest pause after a kill {self.longest_pause:.1f} "
            f"s; time to the delivery between kills, p50 and p99 of each organization: {delays}; "
            f"{self.errors or 'integrity check passed'}; {format_counts(self.statuses)}"
        )


def deliver(
    environment: Environment,
    deploy: Callable[[Environment], Deployment],
    rounds: int,
    causes: int,
    damaged: bool = False,
) -> Result:
    """Kill a part in each round, during the deliveries of this many causes.

    If ``damaged``, one endpoint that responds forgets what it received first.
    """
    deployment = deploy(environment)
    receiver = start_receiver(environment.new_path("received"))
    environment.at_end(receiver.stop)
    organizations = [
        Organization(name, deployment.create_token(name), deployment.nodes) for name in _GROUPS
    ]
    for organization, endpoints in zip(organizations, (ENDPOINTS, _FEW_ENDPOINTS), strict=True):
        _create_webhooks(organization, receiver, endpoints)
    sources = [
        Source(organization, f"group-{number}")
        for organization in organizations
        for number in range(_GROUPS[organization.organization])
    ]
    load = _Load(sources, receiver)
    for source in sources:
        source.prepare(
            next(one for one in organizations if one.organization == source.organization)
        )
    with _started(sources):
        killed = load.run(_kills(deployment, receiver), rounds, causes)
    if damaged:
        load.forget()
    _check_doorbells(organizations, load)
    _check_webhooks(organizations[0], load.findings)
    load.check()
    load.findings.errors = "; ".join(
        [*set().union(*(node.internal_errors() for node in deployment.nodes))]
    )
    load.findings.errors += deployment.integrity_errors()
    return Result(DELIVERED, _describe(deployment, killed), str(load.findings), load.findings.is_ok)


def _create_webhooks(
    organization: Organization, receiver: Receiver, endpoints: dict[str, int]
) -> None:
    with organization.client() as http:
        for kind, count in endpoints.items():
            for number in range(count):
                url = receiver.url(_endpoint(organization.organization, kind, number))
                settings = {"url": url, "events": [*_EVENTS]}
                http.post("/v1/webhooks", json=settings).raise_for_status()


def _endpoint(organization: str, kind: str, number: int) -> str:
    return f"/{kind}/{number}/{organization}"


def _kills(deployment: Deployment, receiver: Receiver) -> dict[str, Callable[[], object]]:
    """Return what is killed: the process that delivers, and the parts of the deployment."""
    return {"the process that delivers": lambda: _kill_sender(deployment, receiver)} | {
        **deployment.kills
    }


def _kill_sender(deployment: Deployment, receiver: Receiver) -> None:
    """Kill the process that has connections to the endpoints. Its supervisor starts another one."""
    found = None
    while found is None:
        time.sleep(0.02)
        found = receiver.sender([pid for node in deployment.nodes for pid in node.workers()])
    os.kill(found, signal.SIGKILL)


def _describe(deployment: Deployment, killed: Counter[str]) -> str:
    parts = ", ".join(f"{count} × {name}" for name, count in killed.items())
    kinds = ", ".join(f"{count} {kind}" for kind, count in ENDPOINTS.items())
    return (
        f"{deployment.title}: {killed.total()} × kill -9 ({parts}), during deliveries to "
        f"{sum(ENDPOINTS.values())} endpoints of one organization ({kinds}) and "
        f"{sum(_FEW_ENDPOINTS.values())} of another one"
    )


@contextmanager
def _started(sources: Sequence[Source]) -> Iterator[None]:
    for source in sources:
        source.start()
    try:
        yield
    finally:
        for source in sources:
            source.stopping.set()
        for source in sources:
            source.join()


class _Load:
    """The sources of events, and what the endpoints have received of them."""

    def __init__(self, sources: Sequence[Source], receiver: Receiver) -> None:
        self._sources, self.receiver = sources, receiver
        self._quiet: list[tuple[float, float]] = []
        self.findings = Findings()
        self.received: dict[str, dict[Cause, float]] = {
            _endpoint(organization, OK, number): {}
            for organization, endpoints in zip(_GROUPS, (ENDPOINTS, _FEW_ENDPOINTS), strict=True)
            for number in range(endpoints[OK])
        }
        """When an endpoint that responds has received an event for the first time."""
        self._read = 0

    def run(self, kills: dict[str, Callable[[], object]], rounds: int, causes: int) -> Counter[str]:
        """Kill in each round. Return how often each part was killed."""
        killed = Counter[str]()
        self._measure_delays()
        for name, kill in itertools.islice(itertools.cycle(kills.items()), rounds):
            with self._running(_PAUSE):
                target = self._acknowledged() + causes
                wait_until(lambda t=target: self._acknowledged() >= t - causes // 2, _TIMEOUT)
                time.sleep(random.uniform(0.1, 1))
                started = time.monotonic()
                kill()
                killed[name] += 1
                wait_until(lambda t=target: self._acknowledged() >= t, _TIMEOUT)
            wait_until(self._is_complete, _TIMEOUT)
            self._note_pause(started)
            self._measure_delays()
            print(f"{killed.total()} kills: {self._progress()}", file=sys.stderr, flush=True)
        return killed

    @contextmanager
    def _running(self, pause: float) -> Iterator[None]:
        """Cause events until the context ends."""
        for source in self._sources:
            source.pause, source.is_active = pause, True
        try:
            yield
        finally:
            for source in self._sources:
                source.pause_causes()

    def _measure_delays(self) -> None:
        start = time.monotonic()
        with self._running(_QUIET_PAUSE):
            time.sleep(_QUIET_SECONDS)
        self._quiet.append((start, time.monotonic()))
        wait_until(self._is_complete, _TIMEOUT)

    def _acknowledged(self) -> int:
        return sum(len(source.acknowledged) for source in self._sources)

    def _progress(self) -> str:
        return f"{self._acknowledged()} causes, {len(self.receiver.deliveries)} requests"

    def _is_complete(self) -> bool:
        """Return True if every endpoint that responds has each acknowledged event."""
        self.update()
        return not any(self._missing())

    def _missing(self) -> Iterator[int]:
        for endpoint, received in self.received.items():
            organization = endpoint.split("/")[3]
            for source in self._sources:
                if source.organization == organization:
                    key = (organization, source.group)
                    yield sum((*key, number) not in received for number in source.acknowledged)

    def update(self) -> None:
        self.receiver.update()
        for delivery in self.receiver.deliveries[self._read :]:
            cause = _cause(delivery)
            if cause is not None and delivery.endpoint in self.received:
                self.received[delivery.endpoint].setdefault(cause, delivery.time)
        self._read = len(self.receiver.deliveries)

    def forget(self) -> None:
        received = next(iter(self.received.values()))
        del received[next(iter(received))]

    def _note_pause(self, start: float) -> None:
        """Note the longest time without a delivery to an endpoint that responds, after a kill."""
        times = sorted(
            delivery.time
            for delivery in self.receiver.deliveries
            if delivery.time > start and delivery.endpoint in self.received
        )
        pauses = [later - earlier for earlier, later in itertools.pairwise([start, *times])]
        self.findings.longest_pause = max(self.findings.longest_pause, *pauses)

    # --- checks ----------------------------------------------------------------------------------

    def check(self) -> None:
        self.update()
        found = self.findings
        found.causes = self._acknowledged()
        found.deliveries = len(self.receiver.deliveries)
        found.lost = sum(self._missing())
        for source in self._sources:
            found.statuses.update(source.log.statuses)
        first = self._first_deliveries()
        found.misplaced = sum(map(_count_misplaced, first.values()))
        found.unknown += sum(map(self._count_unknown, first))
        self._check_delays()

    def _first_deliveries(self) -> dict[tuple[str, str], list[int]]:
        """Return the numbers that an endpoint has received, by endpoint and group."""
        first: dict[tuple[str, str], dict[int, None]] = {}
        ids = set()
        for delivery in self.receiver.deliveries:
            cause = _cause(delivery)
            kind = delivery.endpoint.split("/")[1]
            if cause is None or kind not in (OK, SLOW):
                continue
            organization, group, number = cause
            if organization != delivery.endpoint.split("/")[3]:
                self.findings.unknown += 1
            first.setdefault((delivery.endpoint, group), {})[number] = None
            self.findings.repeated += delivery.delivery_id in ids and kind == OK
            ids.add(delivery.delivery_id)
        self.findings.healthy = sum(map(len, self.received.values()))
        return {key: [*numbers] for key, numbers in first.items()}

    def _count_unknown(self, key: tuple[str, str]) -> int:
        """Count the events of an endpoint and a group that nobody caused."""
        endpoint, group = key
        [source] = [
            source
            for source in self._sources
            if (source.organization, source.group) == (endpoint.split("/")[3], group)
        ]
        numbers = self.received.get(endpoint, {})
        return sum(
            not 0 < number <= source.number for _, group_, number in numbers if group_ == group
        )

    def _check_delays(self) -> None:
        for source in self._sources:
            delays = self.findings.delays.setdefault(source.organization, [])
            for number, acknowledged in source.acknowledged.items():
                if any(start <= acknowledged <= end for start, end in self._quiet):
                    cause = (source.organization, source.group, number)
                    delays += [
                        max(received[cause] - acknowledged, 0.0)
                        for received in self.received.values()
                        if cause in received
                    ]


def _cause(delivery: Delivery) -> Cause | None:
    """Return the cause of an event; None if it has no number."""
    text = delivery.data.get("comment") or delivery.data.get("message")
    if not text or delivery.event not in ("run.finished", "review.created"):
        return None
    organization, number = text.split()
    return organization, delivery.data["group_id"], int(number)


def _count_misplaced(numbers: Iterable[int]) -> int:
    return sum(later < earlier for earlier, later in itertools.pairwise(numbers))


def _check_doorbells(organizations: Sequence[Organization], load: _Load) -> None:
    """Wait until the last doorbells have the last positions, for as long as they may take."""
    expected = {}
    for organization in organizations:
        with organization.client() as http:
            for number in range(_GROUPS[organization.organization]):
                group = f"group-{number}"
                cursor = http.get(f"/v1/groups/{group}").raise_for_status().json()["cursor"]
                expected[organization.organization, group] = cursor

    def wrong() -> int:
        load.update()
        rung = {
            (delivery.endpoint, delivery.data["group_id"]): delivery.data["cursor"]
            for delivery in load.receiver.deliveries
            if delivery.event == "outputs.changed"
        }
        return sum(
            rung.get((endpoint, group)) != cursor
            for endpoint in load.received
            for (organization, group), cursor in expected.items()
            if organization == endpoint.split("/")[3]
        )

    try:
        wait_until(lambda: not wrong(), 60)
    except TimeoutError:
        load.findings.wrong_doorbells = wrong()


def _check_webhooks(organization: Organization, findings: Findings) -> None:
    """The endpoints that are gone are disabled, and no other ones."""
    with organization.client() as http:
        webhooks = http.get("/v1/webhooks").raise_for_status().json()["webhooks"]
    findings.not_disabled = sum(
        (f"/{GONE}/" in webhook["url"]) != (webhook["status"] == "disabled") for webhook in webhooks
    )


def _percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1] if len(values) > 1 else 0.0
