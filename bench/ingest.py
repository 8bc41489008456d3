"""Storing outputs in batches, new and again, beside the same rows by the bare driver."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any

import apsw
import asyncpg

from bench import dataset
from bench.deployments import Deployment, Service
from bench.environment import ENGINES, ROOT, Environment
from bench.measurement import Notes, Turns
from bench.results import at_least

_OUTPUTS = min(dataset.LARGE_SIZE, 30_000)
_BATCH = 1000
_SCHEMA = ROOT / "src" / "gleanery" / "store" / "schema"
_DRIVER = "the driver"


def measure(environment: Environment) -> None:
    for engine in ENGINES:
        deployment = environment.empty("ingest", engine)
        with deployment.serving() as service:
            turns = _turns(environment, deployment, service)
        _note(environment.notes, engine, turns)


def _turns(environment: Environment, deployment: Deployment, service: Service) -> Turns:
    """In this order: what is sent again, and what the driver writes, has to be there first."""
    outputs = dataset.outputs(_OUTPUTS)
    batches = iter(lambda: list(islice(outputs, _BATCH)), [])
    bodies = [json.dumps(batch).encode() for batch in batches]
    made: list[str] = []

    def created() -> float:
        made.append(f"round-{len(made)}")
        return _stored(service, made[-1], bodies)

    def again() -> float:
        return _stored(service, made[-1], bodies)

    def by_the_driver() -> float:
        if deployment.database is None:
            return _bare_sqlite(environment, deployment, f"driver-{len(made)}")
        return asyncio.run(_bare_postgres(environment, deployment.database, f"driver_{len(made)}"))

    return Turns({"created": created, "again": again, _DRIVER: by_the_driver}).run()


def _stored(service: Service, group: str, bodies: list[bytes]) -> float:
    return _rate(bodies, partial(service.post, f"/v1/outputs/{group}"))


def _rate(batches: Iterable[Any], store: Callable[[Any], Any]) -> float:
    began = time.perf_counter()
    for batch in batches:
        store(batch)
    return _OUTPUTS / (time.perf_counter() - began)


def _note(notes: Notes, engine: str, turns: Turns) -> None:
    work = f"{engine}: ingest in batches of {_BATCH}, of the bare driver"
    notes.ratio(work, at_least(0.4), turns, "created", _DRIVER)
    work = f"{engine}: re-scrape with nothing changed against creating"
    notes.ratio(work, at_least(2), turns, "again", "created")


_FIRST_GROUP = "SELECT * FROM outputs WHERE group_id = (SELECT min(id) FROM groups) ORDER BY id"


def _bare_sqlite(environment: Environment, deployment: Deployment, name: str) -> float:
    source = apsw.Connection(str(deployment.folder / "gleanery.sqlite"))
    rows = source.execute(_FIRST_GROUP).fetchall()
    source.close()
    connection = new_sqlite(environment, name)
    insert = f"INSERT INTO outputs VALUES ({','.join('?' * len(rows[0]))})"

    def store(batch: list[Any]) -> None:
        with connection:
            connection.executemany(insert, batch)

    rate = _rate(_cut(rows), store)
    connection.close()
    return rate


def new_sqlite(environment: Environment, name: str) -> apsw.Connection:
    """An empty database with our tables, as the service itself would open it."""
    connection = apsw.Connection(str(environment.folder(name) / "bare.sqlite"))
    connection.pragma("page_size", 16 * 1024)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL")
    connection.execute((_SCHEMA / "sqlite.sql").read_text())
    return connection


async def _bare_postgres(environment: Environment, database: str, name: str) -> float:
    source = await asyncpg.connect(database)
    found = await source.fetch(_FIRST_GROUP)
    await source.close()
    connection = await asyncpg.connect(environment.database(name))
    await connection.execute((_SCHEMA / "postgres.sql").read_text())
    columns = list(found[0].keys())
    places = ",".join(f"${number + 1}" for number in range(len(columns)))
    insert = f"INSERT INTO outputs ({','.join(columns)}) VALUES ({places})"
    began = time.perf_counter()
    for batch in _cut([tuple(row) for row in found]):
        async with connection.transaction():
            await connection.executemany(insert, batch)
    rate = len(found) / (time.perf_counter() - began)
    await connection.close()
    return rate


def _cut(rows: list[Any]) -> Iterable[list[Any]]:
    return [rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH)]
