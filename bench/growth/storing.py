"""Measurement of writes in both sizes: new, unchanged and changed outputs, and the feed of them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.growth import dataset
from bench.growth.engines import open_engine
from bench.growth.running import Both, Running, add_cost, compare
from bench.load_generator import NotMeasured
from bench.measurement import MeasureRate, Report
from bench.results import Target, at_most

_BATCH = 1000  # as the client sends
_GROUPS_PER_ROUND = min(20, dataset.GROUPS)
_SMALL_GROUPS_PER_ROUND = min(100, dataset.GROUPS)
_RESCRAPED = max(dataset.SMALL // dataset.GROUPS - 2 * dataset.MATCHES, 1)
"""Outputs of a group that are stored again: as many as a small group has without special ones."""

Batch = tuple[int, list[dict[str, Any]]]
"""A group and the outputs to store in it."""
MakeBatches = Callable[[Running, random.Random], Iterator[Batch]]


def measure(report: Report, engine: str, both: Both) -> None:
    label = f"storing new outputs, each batch in another group, {engine}"
    _add(report, label, at_most(1.5), both, _new_batches, "created")
    _add(
        report, f"storing unchanged outputs, {engine}", None, both, _unchanged_batches, "unchanged"
    )
    _add(report, f"storing changed outputs, {engine}", None, both, _changed_batches, "updated")
    for running in both.values():
        _check_feed(running)


def _add(
    report: Report, label: str, target: Target | None, both: Both, batches: MakeBatches, change: str
) -> None:
    wal: dict[int, list[float]] = {dataset.SMALL: [], dataset.LARGE: []}
    comparison = compare(both, partial(_prepare, make_batches=batches, change=change, wal=wal))
    add_cost(report, label, target, comparison, _describe_wal(wal))


def _describe_wal(wal: dict[int, list[float]]) -> str:
    """Return the bytes of PostgreSQL's log per output; empty on SQLite."""
    if not wal[dataset.SMALL]:
        return ""
    small, large = (sum(wal[size]) / len(wal[size]) for size in (dataset.SMALL, dataset.LARGE))
    return f"; WAL {small:,.0f} and {large:,.0f} bytes per output"


def _prepare(
    running: Running,
    make_batches: MakeBatches,
    change: str,
    wal: dict[int, list[float]],
) -> MeasureRate:
    generator = random.Random(1)  # both sizes use the same groups

    def store() -> float:
        batches = [
            (group, json.dumps(outputs).encode(), len(outputs))
            for group, outputs in make_batches(running, generator)
        ]
        count = sum(size for _, _, size in batches)
        with _log_bytes(running, count, wal):
            start = time.perf_counter()
            changed = sum(_post(running, group, body)[change] for group, body, _ in batches)
            seconds = time.perf_counter() - start
        if changed != count:
            raise NotMeasured(f"{changed} of {count} outputs are {change}")
        return count / seconds

    return store


def _post(running: Running, group: int, body: bytes) -> Any:
    return running.client(group).post(f"/v1/outputs/{dataset.group_name(group)}", body)


@contextmanager
def _log_bytes(running: Running, outputs: int, wal: dict[int, list[float]]) -> Iterator[None]:
    """Record the bytes of PostgreSQL's log per output.

    A checkpoint comes first, so each page that the outputs change is logged whole, as at worst.
    """
    if running.filled.deployment.database is None:
        yield
        return
    with open_engine(running.filled.deployment) as engine:
        engine.fetch("CHECKPOINT")
        [before] = engine.fetch("SELECT pg_current_wal_insert_lsn() - '0/0' AS bytes")
        yield
        [after] = engine.fetch("SELECT pg_current_wal_insert_lsn() - '0/0' AS bytes")
    wal[running.filled.size].append(float(after["bytes"] - before["bytes"]) / outputs)


# --- batches ------------------------------------------------------------------------------------


def _new_batches(running: Running, generator: random.Random) -> Iterator[Batch]:
    first = int(time.time()) * _BATCH  # no earlier run has used these numbers
    for group in generator.sample(range(dataset.GROUPS), _GROUPS_PER_ROUND):
        yield group, [dataset.output(first + number) for number in range(_BATCH)]


def _unchanged_batches(running: Running, generator: random.Random) -> Iterator[Batch]:
    for group in generator.sample(range(dataset.GROUPS), _SMALL_GROUPS_PER_ROUND):
        yield group, dataset.common_outputs(running.filled.group_size)[:_RESCRAPED]


def _changed_batches(running: Running, generator: random.Random) -> Iterator[Batch]:
    """Change the last outputs of groups, so that a later run finds the first ones unchanged."""
    version = int(time.time())
    for group in generator.sample(range(dataset.GROUPS), _SMALL_GROUPS_PER_ROUND):
        yield group, dataset.common_outputs(running.filled.group_size, version)[-_RESCRAPED:]


# --- the feed -----------------------------------------------------------------------------------


def _check_feed(running: Running) -> None:
    """Check that the feed of a group has exactly the outputs that are stored after a cursor."""
    group = dataset.GROUPS // 2
    client, name = running.client(group), dataset.group_name(group)
    cursor = json.loads(client.get(f"/v1/groups/{name}"))["cursor"]
    [(_, outputs), *_] = _new_batches(running, random.Random(1))
    results = _post(running, group, json.dumps(outputs).encode())["results"]
    seen = []
    while cursor is not None:
        page = json.loads(client.get(f"/v1/changes/{name}?limit=1000&cursor={cursor}"))
        seen += [change["output"]["output_id"] for change in page["changes"]]
        cursor = page["metadata"]["next_cursor"]
    if seen != [result["output_id"] for result in results]:
        raise NotMeasured(f"the feed at {running.filled.size:,} outputs differs from the results")
