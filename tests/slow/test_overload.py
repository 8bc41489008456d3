"""Load of three times the capacity, and a neighbour that exceeds its rate limit.

``measure_overload`` and ``measure_neighbour`` print what they find and return it. The service has
one core and the load another, so that figures of one run can be compared with each other.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from gleanery.common.settings import Settings
from tests.support.load import Crowd, Tally, run_load
from tests.support.outputs import output
from tests.support.process import Served, database_options, new_token, served
from tests.support.service import Client
from tests.support.settings import fresh_settings

SECONDS = float(os.environ.get("GLEANERY_SLOW_SECONDS", "5"))
ROUNDS = 7
TOKENS = 8
PAGE = "/v1/outputs/group?limit=50"
SHARE = Settings().max_requests // 2  # slots of one organization alone
MANY = 1000
_SERVER_CORE, _LOAD_CORE = 0, 1


class Overload(NamedTuple):
    capacity: float
    """Requests per second."""
    full: Tally
    """Results at the concurrency limit of one organization."""
    flooded: Tally
    """Results at three times the capacity, by one organization."""
    neighbour: Tally
    """Results of another organization, which requests a tenth of the capacity meanwhile."""
    grown: float
    """MiB of memory, from the first second of the flood to the last."""


class Neighbour(NamedTuple):
    alone: float
    """Milliseconds, the 99th percentile."""
    beside: float
    """The same while another organization asks for ten times its limit."""
    refused: int
    """Requests of the other that got 429."""


@contextmanager
def on_cores(settings: Settings, *options: str) -> Iterator[Served]:
    """A service with a page to read, on one core, while this process has another."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {_SERVER_CORE})
    try:
        with served(settings, *options) as service:
            os.sched_setaffinity(0, {_LOAD_CORE})
            fill(service.url, service.token)
            yield service
    finally:
        os.sched_setaffinity(0, cores)


def fill(url: str, token: str) -> None:
    with Client(url, token) as client:
        client.store("group", *(output(n, data={"number": n}) for n in range(100)))


def resident(pid: int) -> float:
    """Resident memory in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def measure_overload(settings: Settings) -> Overload:
    with on_cores(settings) as service:
        [busy] = run_load(service.url, [Crowd(service.token, PAGE, 16)], SECONDS)
        [full] = run_load(service.url, [Crowd(service.token, PAGE, SHARE)], SECONDS)
        quiet = Crowd(new_token(database_options(settings), "b"), PAGE, 64, busy.rate / 10)
        fill(service.url, quiet.token)
        crowds = [Crowd(service.token, PAGE, MANY, 3 * busy.rate), quiet]
        run_load(service.url, crowds, SECONDS)
        before = resident(service.running.process.pid)
        flooded, neighbour = run_load(service.url, crowds, 2 * SECONDS)
        grown = resident(service.running.process.pid) - before
    print(
        f"\nit can do {busy.rate:.0f} requests/s; with {SHARE} under way all the time the 99th "
        f"percentile is {full.quantile(0.99):.0f} ms\nat {3 * busy.rate:.0f} requests/s it answers "
        f"{flooded.rate:.0f} well, with {flooded.quantile(0.99):.0f} ms; all answers: "
        f"{dict(flooded.statuses)}, kept from sending {flooded.unsent}, broken {flooded.broken}; "
        f"memory {before:.0f} MiB and {grown:+.1f}\nanother organization meanwhile: "
        f"{dict(neighbour.statuses)}, {neighbour.quantile(0.99):.0f} ms"
    )
    return Overload(busy.rate, full, flooded, neighbour, grown)


def measure_neighbour(settings: Settings) -> Neighbour:
    with on_cores(settings) as service:
        [busy] = run_load(service.url, [Crowd(service.token, PAGE, 16)], SECONDS)
    limit = int(busy.rate / 40)
    with on_cores(settings, "--rate-limit", f"{limit}/second") as service:
        tokens = [
            service.token,
            *(new_token(database_options(settings)) for _ in range(TOKENS - 1)),
        ]
        quiet = [Crowd(token, PAGE, 8, limit / 2) for token in tokens]
        loud = Crowd(new_token(database_options(settings), "b"), PAGE, 64, 10 * limit)
        fill(service.url, loud.token)
        alone, beside, refused = [], [], 0
        for _ in range(ROUNDS):
            alone.append(merge(run_load(service.url, quiet, SECONDS)).quantile(0.99))
            *others, culprit = run_load(service.url, [*quiet, loud], SECONDS)
            beside.append(merge(others).quantile(0.99))
            refused += culprit.statuses[429]
    found = Neighbour(statistics.median(alone), statistics.median(beside), refused)
    print(
        f"\n{limit} requests/s allowed of {busy.rate:.0f} possible; the 99th percentile of one "
        f"organization is {found.alone:.2f} ms alone, {found.beside:.2f} ms "
        f"({found.beside / found.alone - 1:+.0%}) beside one at ten times the limit, which got 429 "
        f"for {refused} requests"
    )
    return found


def merge(tallies: Sequence[Tally]) -> Tally:
    """Results of one organization with several tokens; within its limits, no request fails."""
    assert all(set(tally.statuses) == {200} for tally in tallies)
    return Tally(SECONDS, times=[seconds for tally in tallies for seconds in tally.times])


def test_throughput_stays_at_three_times_the_capacity(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    found = measure_overload(fresh_settings(engine, request, tmp_path))
    assert set(found.flooded.statuses) <= {200, 429, 503}
    assert found.flooded.statuses[503]
    assert found.flooded.broken == 0  # a client without a free connection sends nothing
    assert found.flooded.quantile(0.99) < 2 * found.full.quantile(0.99)
    assert found.flooded.rate > found.capacity / 2
    assert (set(found.neighbour.statuses), found.neighbour.unsent) == ({200}, 0)
    assert found.grown < 16


def test_an_organization_above_its_rate_limit_does_not_slow_another(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    found = measure_neighbour(fresh_settings(engine, request, tmp_path))
    assert found.refused
    assert found.beside < 1.2 * found.alone
