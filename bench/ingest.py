"""Measurement of ingest: batches of new and of unchanged outputs, and the same rows by a driver."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from itertools import count, islice
from typing import Any

import apsw
import asyncpg

from bench import dataset
from bench.deployments import Deployment, Service
from bench.environment import ENGINES, ROOT, Environment
from bench.measurement import OF_BASELINE, Comparison, MeasureRate, Report
from bench.results import at_least

_OUTPUTS = min(dataset.LARGE_SIZE, 30_000)
_BATCH_SIZE = 1000
_SCHEMA = ROOT / "src" / "gleanery" / "service" / "storage" / "schema"
NEW, CHANGED, UNCHANGED = "new outputs", "changed outputs", "unchanged outputs"
_DRIVER = "bare driver"


def measure(environment: Environment) -> None:
    for engine in ENGINES:
        _add_ratios(environment.report, engine, compare(environment, engine))


def compare(environment: Environment, engine: str) -> Comparison:
    """Measure the service, the baseline and the driver."""
    deployments = environment.versions("ingest", engine)
    with ExitStack() as stack:
        candidates = dict[str, MeasureRate]()
        for suffix, deployment in deployments.items():
            rates = _candidates(stack.enter_context(deployment.serve()))
            candidates |= {name + suffix: rate for name, rate in rates.items()}
        candidates[_DRIVER] = _driver(environment, deployments[""])
        return Comparison(candidates).run()


def _candidates(service: Service) -> dict[str, MeasureRate]:
    bodies, groups, versions = request_bodies(0), count(), count(1)
    for group in ("unchanged", "changed"):
        _store(service, group, bodies)
    return {
        NEW: lambda: _store(service, f"new-{next(groups)}", bodies),
        CHANGED: lambda: _store(service, "changed", request_bodies(next(versions))),
        UNCHANGED: lambda: _store(service, "unchanged", bodies),
    }


def _driver(environment: Environment, deployment: Deployment) -> MeasureRate:
    """Insert the rows of the first group into databases without the service."""
    numbers = count()
    if deployment.database is None:
        return lambda: _insert_into_sqlite(environment, deployment, f"driver-{next(numbers)}")
    database = deployment.database
    return lambda: asyncio.run(
        _insert_into_postgres(environment, database, f"driver_{next(numbers)}")
    )


def request_bodies(version: int, size: int = _OUTPUTS) -> list[bytes]:
    outputs = dataset.changed_outputs(size, version)
    batches = iter(lambda: list(islice(outputs, _BATCH_SIZE)), [])
    return [json.dumps(batch).encode() for batch in batches]


def _store(service: Service, group: str, bodies: list[bytes]) -> float:
    return _measure_rate(bodies, partial(service.post, f"/v1/outputs/{group}"))


def _measure_rate(batches: Iterable[Any], store: Callable[[Any], Any]) -> float:
    """Return outputs per second."""
    start = time.perf_counter()
    for batch in batches:
        store(batch)
    return _OUTPUTS / (time.perf_counter() - start)


def _add_ratios(report: Report, engine: str, comparison: Comparison) -> None:
    label = f"ingest in batches of {_BATCH_SIZE}, {engine}: ratio to the bare driver"
    report.add_ratio(label, at_least(0.4), comparison, NEW, _DRIVER, baseline=NEW + OF_BASELINE)
    label = f"ingest of changed outputs, {engine}: ratio to new outputs"
    report.add_ratio(label, None, comparison, CHANGED, NEW, baseline=CHANGED + OF_BASELINE)
    label = f"re-scrape without changes, {engine}: ratio to new outputs"
    target = at_least(2)
    report.add_ratio(label, target, comparison, UNCHANGED, NEW, baseline=UNCHANGED + OF_BASELINE)


_FIRST_GROUP = "SELECT * FROM outputs WHERE group_id = (SELECT min(id) FROM groups) ORDER BY id"


def _insert_into_sqlite(environment: Environment, deployment: Deployment, name: str) -> float:
    source = apsw.Connection(str(deployment.folder / "gleanery.sqlite"))
    rows = source.execute(_FIRST_GROUP).fetchall()
    source.close()
    connection = create_sqlite_database(environment, name)
    insert = f"INSERT INTO outputs VALUES ({','.join('?' * len(rows[0]))})"

    def store(batch: list[Any]) -> None:
        with connection:
            connection.executemany(insert, batch)

    rate = _measure_rate(_batches(rows), store)
    connection.close()
    return rate


def create_sqlite_database(environment: Environment, name: str) -> apsw.Connection:
    """Create an empty database with the tables and the settings of the service."""
    connection = apsw.Connection(str(environment.new_folder(name) / "bare.sqlite"))
    connection.pragma("page_size", 16 * 1024)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL")
    connection.execute((_SCHEMA / "sqlite.sql").read_text())
    return connection


async def _insert_into_postgres(environment: Environment, database: str, name: str) -> float:
    source = await asyncpg.connect(database)
    rows = await source.fetch(_FIRST_GROUP)
    await source.close()
    connection = await asyncpg.connect(environment.new_database(name))
    await connection.execute((_SCHEMA / "postgres.sql").read_text())
    columns = list(rows[0].keys())
    parameters = ",".join(f"${number + 1}" for number in range(len(columns)))
    insert = f"INSERT INTO outputs ({','.join(columns)}) VALUES ({parameters})"
    start = time.perf_counter()
    for batch in _batches([tuple(row) for row in rows]):
        async with connection.transaction():
            await connection.executemany(insert, batch)
    rate = len(rows) / (time.perf_counter() - start)
    await connection.close()
    return rate


def _batches(rows: list[Any]) -> Iterable[list[Any]]:
    return [rows[start : start + _BATCH_SIZE] for start in range(0, len(rows), _BATCH_SIZE)]
