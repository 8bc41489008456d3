"""Measurement of webhooks: what they cost those who store outputs, and the time to a delivery."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bench import dataset
from bench.deployments import Deployment, Service
from bench.environment import ENGINES, Environment
from bench.load_generator import LOAD_CORE, pin_to_core
from bench.results import at_least, at_most
from faults.webhook_receiver import Receiver, start_receiver

_ENDPOINTS = 50
_EVENTS = ["outputs.changed", "run.finished"]
_STORED = {1000: min(dataset.LARGE_SIZE, 60_000), 1: min(dataset.LARGE_SIZE // 20, 3000)}
"""Outputs of a round, by the size of a batch."""
_PAIRS = 6  # of rounds, one with endpoints and one without, in alternating order
_RATE, _SECONDS = 50, 20
"""Events per second, and for how long."""
_MAX_SECONDS = 1.0  # from the commit to the delivery, for 99 of 100 events
_MANY = 100  # events that are sent to all endpoints
_OPTIONS = ("--webhook-allow", "127.0.0.1")
_WITH, _WITHOUT = "with 50 endpoints", "without"
_QUIET_SECONDS = 2.0  # without a delivery, after which there is no other one
_DOORBELL_SECONDS = 11.0  # the same for doorbells, which come every 10 seconds
_TICKS_PER_SECOND = 100.0


class _Cost(NamedTuple):
    """What a round has cost."""

    seconds: float
    processor_seconds: float
    """Of the service, until the last delivery."""
    deliveries: int


def measure(environment: Environment) -> None:
    for engine in ENGINES:
        receiver = start_receiver(
            environment.new_folder(f"received-{engine}") / "file", pin_to_core(LOAD_CORE)
        )
        try:
            _measure_storing(environment, receiver, engine)
            _measure_delays(environment, receiver, engine)
        finally:
            receiver.stop()


# --- storing -------------------------------------------------------------------------------------


def _measure_storing(environment: Environment, receiver: Receiver, engine: str) -> None:
    """Store outputs in two services in turns. One of them has endpoints."""
    with ExitStack() as stack:
        services = {
            name: stack.enter_context(
                _deployment(environment, engine, f"webhooks_{number}").serve(options=_OPTIONS)
            )
            for number, name in enumerate((_WITHOUT, _WITH))
        }
        for number in range(_ENDPOINTS):
            _create_webhook(services[_WITH], receiver.url(f"/ok/{number}"), _EVENTS)
        for size, count in _STORED.items():
            batches = _batches(count, size)
            costs: dict[str, list[_Cost]] = {name: [] for name in services}
            for number in range(_PAIRS):
                order = [*services] if number % 2 else [*reversed(services)]
                for name in order:
                    group = f"group-{size}-{number}"
                    costs[name].append(_store(services[name], receiver, group, batches))
            _add_costs(environment, engine, size, count, costs)


def _deployment(environment: Environment, engine: str, name: str) -> Deployment:
    return environment.new_deployment(name, engine)


def _add_costs(
    environment: Environment, engine: str, size: int, count: int, costs: dict[str, list[_Cost]]
) -> None:
    what = "ingest in batches of 1000" if size > 1 else "ingest of single outputs"
    label = f"{what} with {_ENDPOINTS} endpoints, {engine}: "
    pairs = [*zip(costs[_WITHOUT], costs[_WITH], strict=True)]
    rates = [f"{name} {_rate(count, some):,.0f}/s" for name, some in costs.items()]
    deliveries = statistics.mean(cost.deliveries for cost in costs[_WITH])
    environment.report.add(
        f"{label}ratio to none",
        at_least(0.97),
        statistics.median(without.seconds / with_.seconds for without, with_ in pairs),
        f"{', '.join(rates)}, {deliveries:,.0f} deliveries; median of {_PAIRS} pairs of rounds",
    )
    used = [
        f"{name} {statistics.median(cost.processor_seconds for cost in some):.2f} s"
        for name, some in costs.items()
    ]
    environment.report.add(
        f"{label}processor time of the service without them, as a share of that with them",
        at_least(0.97),
        statistics.median(
            without.processor_seconds / with_.processor_seconds for without, with_ in pairs
        ),
        ", ".join(used),
    )


def _rate(count: int, costs: Sequence[_Cost]) -> float:
    return count / statistics.median(cost.seconds for cost in costs)


def _store(service: Service, receiver: Receiver, group: str, batches: Sequence[bytes]) -> _Cost:
    """Store the batches, and wait until the doorbells have ended."""
    receiver.update()
    before = len(receiver.deliveries)
    used = _processor_seconds(service.pid)
    with _connection(service) as post:
        start = time.perf_counter()
        for batch in batches:
            post(f"/v1/outputs/{group}", batch)
        seconds = time.perf_counter() - start
    _wait_until_quiet(receiver, _DOORBELL_SECONDS)
    used = _processor_seconds(service.pid) - used
    return _Cost(seconds, used, len(receiver.deliveries) - before)


def _wait_until_quiet(receiver: Receiver, seconds: float = _QUIET_SECONDS) -> None:
    count, since = -1, time.monotonic()
    while time.monotonic() - since < seconds:
        receiver.update()
        if len(receiver.deliveries) != count:
            count, since = len(receiver.deliveries), time.monotonic()
        time.sleep(0.05)


def _processor_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_SECOND


# --- delays --------------------------------------------------------------------------------------


def _measure_delays(environment: Environment, receiver: Receiver, engine: str) -> None:
    deployment = _deployment(environment, engine, "webhook_delays")
    with deployment.serve(options=_OPTIONS) as service, _connection(service) as post:
        for number in range(_ENDPOINTS):
            url = receiver.url(f"/ok/delay-{number}")
            group = f"group-{number}"
            _create_webhook(service, url, ["review.created"], [group])
            _store_one(post, group)
        acknowledged = _review_steadily(post)
        _report_delays(environment, receiver, engine, acknowledged)
        for number in range(_ENDPOINTS):
            _create_webhook(service, receiver.url(f"/ok/many-{number}"), ["review.created"], ["x"])
        _store_one(post, "x")
        _report_throughput(environment, receiver, engine, post)


def _review_steadily(post: Callable[[str, bytes], Any]) -> dict[str, float]:
    """Cause an event of each group in turn. Return when each was acknowledged."""
    acknowledged = {}
    start = time.monotonic()
    for number in range(_RATE * _SECONDS):
        time.sleep(max(start + number / _RATE - time.monotonic(), 0))
        _review(post, f"group-{number % _ENDPOINTS}", str(number))
        acknowledged[str(number)] = time.monotonic()
    return acknowledged


def _report_delays(
    environment: Environment, receiver: Receiver, engine: str, acknowledged: dict[str, float]
) -> None:
    _wait_until_quiet(receiver)
    received = {
        one.data["comment"]: one.time for one in receiver.deliveries if "/delay" in one.endpoint
    }
    delays = [max(received[number] - time_, 0.0) for number, time_ in acknowledged.items()]
    percentiles = statistics.quantiles(delays, n=100)
    environment.report.add(
        f"time from the commit to the delivery at {_RATE} events per second, {engine}, p99: "
        f"ratio to {_MAX_SECONDS:.0f} s",
        at_most(1),
        percentiles[98] / _MAX_SECONDS,
        f"p50 {1000 * percentiles[49]:.0f} ms, p99 {1000 * percentiles[98]:.0f} ms",
    )


def _report_throughput(
    environment: Environment, receiver: Receiver, engine: str, post: Callable[[str, bytes], Any]
) -> None:
    start = time.monotonic()
    for number in range(_MANY):
        _review(post, "x", str(number))
    _wait_until_quiet(receiver)
    times = [one.time for one in receiver.deliveries if "/many" in one.endpoint]
    rate = len(times) / (max(times) - start)
    details = f"{rate:,.0f} deliveries/s to {_ENDPOINTS} endpoints, {len(times):,} in all"
    label = f"deliveries of one process per second, {engine}: ratio to {_RATE} per second"
    environment.report.add(label, None, rate / _RATE, details)


def _store_one(post: Callable[[str, bytes], Any], group: str) -> None:
    output = {"job_id": "shop", "source_url": "https://a.example/1", "data": {}}
    post(f"/v1/outputs/{group}", json.dumps([output]).encode())


def _review(post: Callable[[str, bytes], Any], group: str, comment: str) -> None:
    review = {"job_id": "shop", "status": "in_review", "comment": comment}
    post(f"/v1/reviews/{group}", json.dumps(review).encode())


# --- requests ------------------------------------------------------------------------------------


def _create_webhook(
    service: Service, url: str, events: Sequence[str], groups: Sequence[str] | None = None
) -> None:
    settings = {"url": url, "events": events, "groups": groups}
    service.post("/v1/webhooks", json.dumps(settings).encode())


@contextmanager
def _connection(service: Service) -> Iterator[Callable[[str, bytes], Any]]:
    """Yield a function that sends requests through one connection."""
    connection = HTTPConnection("127.0.0.1", urlsplit(service.url).port)
    headers = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/json"}

    def post(path: str, body: bytes) -> Any:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        content = response.read()
        assert response.status == 200, content
        return json.loads(content)

    try:
        yield post
    finally:
        connection.close()


def _batches(count: int, size: int) -> list[bytes]:
    outputs = ({**output, "job_id": "shop"} for output in dataset.outputs(count))
    batches = iter(lambda: list(islice(outputs, size)), [])
    return [json.dumps(batch).encode() for batch in batches]
