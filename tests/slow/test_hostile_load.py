"""Hostile load beside a well-behaved tenant, on both engines.

Every attack of ``attacks`` runs for some seconds, one after the other, then all of them together;
this is one round. Before each attack there is a pause, which gives the idle values. The test
prints for each attack what the well-behaved tenant noticed. GLEANERY_HOSTILE_SECONDS sets the
duration for both engines together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx2
import pytest

from tests.slow import well_behaved
from tests.slow.attacks import ATTACKS, Attacker, Pace
from tests.slow.well_behaved import Sample
from tests.support.process import PROC, database_options, new_token, served
from tests.support.service import Client
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

SECONDS = float(os.environ.get("GLEANERY_HOSTILE_SECONDS", "1800")) / 2  # for each engine
ROUNDS = 3 if SECONDS >= 150 else 1  # the thirds of the run: each has every attack
IDLE, ALL = "idle", "all together"
CAUGHT_UP_SECONDS = 0.5
MAX_RATIO = 1.5
MIN_SAMPLES = 200  # with fewer, the 99th percentile is an accident
KINDS = {"reads": well_behaved.READS, "writes": well_behaved.WRITES}
MEMORY_SHARE, MEMORY_MIB = 1.1, 16.0  # growth of the last third over the middle one
# The attacks under which the 99th percentile grows by more than MAX_RATIO, and by how much at most:
# about twice of what was measured on two processors, which the attacker uses too.
EXCEPTIONS: dict[tuple[str, str], dict[str, float]] = {
    ("sqlite", "reads"): {
        "slow readers": 15,  # 20 pages of 16 MiB are read and held at the same time
        "10 million values": 5,  # bodies of 31 MB arrive
        "5,000 new jobs": 20,  # the writer and the preparation compute for seconds
        "costly schema": 12,  # two processes compute for seconds
        "filters without match": 6,  # a search takes up to 2,000 steps in the event loop
        "group with many jobs": 6,  # 1,000 jobs are encoded in the event loop
    },
    ("sqlite", "writes"): {
        "slow readers": 25,
        "10 million values": 40,
        "5,000 new jobs": 1500,  # one writer: a write waits for a whole batch of another tenant
        "large pages": 3,
        "pages for everybody": 4,
        "costly schema": 12,
        "filters without match": 7,
        "group with many jobs": 10,
    },
    ("postgres", "reads"): {
        "slow readers": 12,
        "10 million values": 7,
        "large pages": 5,
        "pages for everybody": 4,
        "5,000 new jobs": 600,  # five batches at a time are encoded in the event loop
        "costly schema": 10,
        "filters without match": 6,
        "group with many jobs": 5,
    },
    ("postgres", "writes"): {
        "slow readers": 20,
        "10 million values": 60,
        "large pages": 6,
        "pages for everybody": 4,
        "5,000 new jobs": 700,
        "costly schema": 10,
        "filters without match": 5,
        "group with many jobs": 6,
    },
}
# All attacks at once need more than both processors. What the tenant notices then is only reported.
REPORTED_ONLY = {ALL}
EXPECTED_EVENTS = {"a schema is too costly"}


class Phase(NamedTuple):
    """A part of the run: one attack, or a pause."""

    name: str
    round: int
    start: float
    end: float


class Monitor(threading.Thread):
    """Samples the resident memory of the service, in MiB."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._status = Path(f"/proc/{pid}/status")
        self.stopping = threading.Event()
        self.samples: list[tuple[float, float]] = []

    def run(self) -> None:
        while not self.stopping.wait(0.5):
            kib = self._status.read_text().split("VmRSS:")[1].split()[0]
            self.samples.append((time.monotonic(), int(kib) / 1024))


@contextmanager
def well_behaved_tenant(url: str, token: str) -> Iterator[list[Sample]]:
    """Runs the well-behaved tenant; its samples are complete after the context."""
    samples: list[Sample] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.slow.well_behaved", url, token],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines: Iterable[str] = process.stdout
    reader = threading.Thread(target=lambda: samples.extend(map(well_behaved.parse_sample, lines)))
    reader.start()
    try:
        yield samples
    finally:
        process.terminate()
        process.wait()
        reader.join()


@contextmanager
def memory_monitor(pid: int) -> Iterator[list[tuple[float, float]]]:
    monitor = Monitor(pid)
    monitor.start()
    try:
        yield monitor.samples
    finally:
        monitor.stopping.set()
        monitor.join()


def repeat(attack: Callable[[], None], pause: float, stopping: threading.Event) -> None:
    while True:
        with suppress(httpx2.HTTPError, OSError):  # the service may close the connection
            attack()
        if stopping.wait(pause):
            return


def run_attacks(attacker: Attacker, names: Sequence[str], seconds: float) -> None:
    """Runs these attacks at the same time, and returns when all their requests have ended."""
    stopping = threading.Event()
    threads = []
    for attack, pace in (ATTACKS[name] for name in names):
        assert isinstance(pace, Pace)
        run = (lambda method=attack: method(attacker), pace.pause, stopping)
        threads += [threading.Thread(target=repeat, args=run) for _ in range(pace.threads)]
    for thread in threads:
        thread.start()
    stopping.wait(seconds)
    stopping.set()
    for thread in threads:
        thread.join()


def wait_until_caught_up(samples: Sequence[Sample]) -> None:
    """Waits until the well-behaved tenant has sent what was due during the attack."""
    for kinds in KINDS.values():
        wait_until(
            lambda kinds=kinds: time.monotonic() - last_due(samples, kinds) < CAUGHT_UP_SECONDS
        )


def last_due(samples: Sequence[Sample], kinds: tuple[str, ...]) -> float:
    return max((sample.due for sample in samples[-500:] if sample.kind in kinds), default=0.0)


def run_phases(
    attacker: Attacker, samples: Sequence[Sample]
) -> tuple[list[Phase], dict[str, Counter[int]]]:
    """Runs all rounds; returns their phases, and the statuses that each attack got."""
    names = [[name] for name in ATTACKS] + [[*ATTACKS]]
    slice_ = SECONDS / ROUNDS / len(names)
    phases, statuses = [], defaultdict[str, Counter[int]](Counter)
    for round_ in range(ROUNDS):
        for together in names:
            wait_until_caught_up(samples)
            start = time.monotonic()
            time.sleep(slice_ / 5)  # the pause is the idle phase
            middle = time.monotonic()
            attacker.statuses.clear()
            run_attacks(attacker, together, slice_ * 4 / 5)
            name = together[0] if len(together) == 1 else ALL
            statuses[name] += attacker.statuses
            phases.append(Phase(IDLE, round_, start, middle))
            phases.append(Phase(name, round_, middle, time.monotonic()))
            print(f"round {round_ + 1}: {name}, {phases[-1].end - middle:.0f} s", flush=True)
    return phases, statuses


def quantile(seconds: Sequence[float], part: float) -> float:
    """Percentile in milliseconds."""
    return sorted(seconds)[int(len(seconds) * part)] * 1000 if seconds else 0.0


def times_by_phase(
    samples: Sequence[Sample], phases: Sequence[Phase], kinds: tuple[str, ...]
) -> dict[str, list[float]]:
    times = defaultdict[str, list[float]](list)
    own = [sample for sample in samples if sample.kind in kinds]
    for phase in phases:
        times[phase.name] += [s.seconds for s in own if phase.start <= s.due < phase.end]
    return times


def print_report(
    title: str, times: dict[str, list[float]], statuses: dict[str, Counter[int]]
) -> dict[str, float]:
    """Prints a line per phase; returns the ratios of the 99th percentile to the idle one."""
    idle = quantile(times[IDLE], 0.99)
    ratios = {name: quantile(seconds, 0.99) / idle for name, seconds in times.items()}
    print(f"\n{title} of the well-behaved tenant, in milliseconds, and what the attacker got")
    for name, seconds in times.items():
        print(
            f"{name:24} {len(seconds):6} requests  p50 {quantile(seconds, 0.5):7.2f}  "
            f"p99 {quantile(seconds, 0.99):8.2f}  ratio {ratios[name]:6.2f}  "
            f"{dict(sorted(statuses.get(name, Counter()).items()))}"
        )
    attacked = [second for name in times if name != IDLE for second in times[name]]
    print(f"{'under attack':24} p99 {quantile(attacked, 0.99):.2f}, idle {idle:.2f}")
    return ratios


def memory_by_round(
    memory: Sequence[tuple[float, float]], phases: Sequence[Phase]
) -> list[list[float]]:
    rounds = []
    for number in range(ROUNDS):
        own = [phase for phase in phases if phase.round == number]
        rounds.append([mib for at, mib in memory if own[0].start <= at < own[-1].end])
    return rounds


def unexpected_log_lines(lines: Sequence[str]) -> list[str]:
    """Lines of the service's log that no attack explains."""
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:  # a traceback, or the message of a library
            found.append(line)
            continue
        if entry["event"] not in EXPECTED_EVENTS or "exception" in entry:
            found.append(line)
    return found


@PROC
def test_a_hostile_tenant_does_not_disturb_another(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings(engine, request, tmp_path)
    scale = min(1.0, SECONDS / 900)
    with served(settings) as service:
        token = new_token(database_options(settings), "well-behaved")
        jobs = max(5000, int(100_000 * scale))
        attacker = Attacker(service.url, service.token, jobs=jobs, outputs=jobs)
        pid = service.running.process.pid
        with (
            well_behaved_tenant(service.url, token) as samples,
            memory_monitor(pid) as memory,
        ):
            wait_until(lambda: len(samples) > well_behaved.READS_PER_SECOND)  # its group exists
            phases, statuses = run_phases(attacker, samples)
        attacker.close()
        acknowledged = sum(s.kind == "store" and s.status == 200 for s in samples)
        with Client(service.url, token) as client:
            stored = client.get(f"/v1/groups/{well_behaved.GROUP}").json()["outputs"]
        unexpected = unexpected_log_lines(service.running.log)
    times = {name: times_by_phase(samples, phases, kinds) for name, kinds in KINDS.items()}
    ratios = {n: print_report(f"{engine}: {n}", times[n], statuses) for n in KINDS}
    rounds = memory_by_round(memory, phases)
    print(
        "memory in MiB by round: "
        + ", ".join(f"median {median(r):.0f} most {max(r):.0f}" for r in rounds)
    )
    failed = Counter((s.kind, s.status) for s in samples if s.status != 200)
    print(f"requests of the well-behaved tenant that failed: {dict(failed)}")
    print("".join(unexpected[:20]))
    assert unexpected == []
    assert {status for _, status in failed} <= {429, 503}  # both with Retry-After
    assert stored >= acknowledged
    if ROUNDS == 3:  # a short run has no thirds
        for measure in (median, max):
            assert measure(rounds[2]) <= measure(rounds[1]) * MEMORY_SHARE + MEMORY_MIB
    for kind in KINDS:
        for name, ratio in ratios[kind].items():
            if len(times[kind][name]) >= MIN_SAMPLES and name not in REPORTED_ONLY:
                assert ratio <= EXCEPTIONS.get((engine, kind), {}).get(name, MAX_RATIO), (
                    kind,
                    name,
                )
