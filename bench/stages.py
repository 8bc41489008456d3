"""The stages of a batch of 1,000 outputs, and the processor time that each takes in the service.

It stores batches in its own process and measures functions of the service by wrapping them. A stage
does not contain the stages inside it. Wrapping a function that runs once per output adds a third
of a microsecond to it.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from operator import itemgetter
from typing import Any
from unittest.mock import patch

from bench.environment import ENGINES, Environment
from bench.ingest import CHANGED, NEW, UNCHANGED, request_bodies
from gleanery.common.settings import Settings
from gleanery.service.foundation.json_schema import SchemaValidator
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.fields.shapes import FieldTable
from gleanery.service.resources.outputs import apply, batches, ingest, rows
from gleanery.service.resources.outputs.batches import BatchOptions
from gleanery.service.resources.outputs.models import Output
from gleanery.service.storage import engines
from gleanery.service.storage.database import Database
from gleanery.service.storage.sqlite.writer import Writer, _SqliteTransaction

_ROUNDS = 5
_BATCHES = 10
_SIZE = 1000
_KINDS = (NEW, CHANGED, UNCHANGED)
_TOTAL = "processor time of the service"
_WAITING = "waiting for the disk or the server of the database"
_Store = Callable[[str, bytes], Awaitable[None]]

_STAGES: list[tuple[str, Any, str]] = [
    ("split the body, read identifying members, hash the bytes", batches, "from_json"),
    ("hash keys and identities", ingest, "prepare"),
    ("parse", batches.PreparedBatch, "parse"),
    ("find the fields of the values", FieldTable, "classify"),
    ("hash URLs", batches, "url_hash"),
    ("hash and render values", batches, "prepare_output"),
    ("compare with the stored rows, count, answer", ingest, "apply_batch"),
    ("read the stored rows", apply, "_fetch"),
    ("read the rows of unparsed outputs", apply, "_fetch_unparsed"),
    ("field statistics", apply, "_record_statistics"),
    ("render items, bind values", rows, "write"),
    ("history", rows, "_replaced_entries"),
    ("write the date of unchanged outputs", apply, "_write_last_scraped"),
    ("write rows (SQLite)", _SqliteTransaction, "execute_many"),
    ("begin and commit (SQLite)", Writer, "_run_group"),
]


class _Stages:
    """The time of each stage of one batch, in nanoseconds, without the stages inside it."""

    def __init__(self) -> None:
        self.times = Counter[str]()
        self._inner = [0]
        """The time of the stages inside each stage that has begun."""

    def wrap(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def end(start: int) -> None:
            elapsed = time.thread_time_ns() - start
            self.times[label] += elapsed - self._inner.pop()
            self._inner[-1] += elapsed

        async def measured_coroutine(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0)
            start = time.thread_time_ns()
            try:
                return await function(*args, **kwargs)
            finally:
                end(start)

        def measured(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0)
            start = time.thread_time_ns()
            try:
                return function(*args, **kwargs)
            finally:
                end(start)

        return measured_coroutine if inspect.iscoroutinefunction(function) else measured


def measure(environment: Environment) -> None:
    for engine in ENGINES:
        deployment = environment.new_deployment("stages", engine)
        settings = Settings(data=deployment.folder, database=deployment.database)
        with deployment.serve():
            pass  # creates the tables, and the organization
        for kind, times in asyncio.run(_measure(settings)).items():
            print(f"\n{kind} on {engine}: µs per output\n")
            for label in (_TOTAL, _WAITING, *(stage[0] for stage in _STAGES)):
                if (value := times.get(label, 0)) >= 0.05:
                    print(f"| {label} | {value:.1f} |")


async def _measure(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the time of each stage, for each kind of batch."""
    stages = _Stages()
    with ExitStack() as stack:
        for label, owner, name in _STAGES:
            wrapped = stages.wrap(label, getattr(owner, name))
            stack.enter_context(patch.object(owner, name, wrapped))
        async with engines.open_engine(settings) as engine:
            store = partial(_store, engine.for_tenant(1), SchemaValidator(), FairThread())
            return {kind: await _of_kind(kind, store, stages) for kind in _KINDS}


async def _of_kind(kind: str, store: _Store, stages: _Stages) -> dict[str, float]:
    """Return the stages of the fastest batch: the speed of a shared machine varies."""
    measured = list[dict[str, float]]()
    for version in range(-1, _ROUNDS):
        group = f"{kind} {version}" if kind == NEW else kind
        for body in request_bodies(version + 1 if kind == CHANGED else 0, _BATCHES * _SIZE):
            gc.collect()
            stages.times.clear()
            cpu, wall = time.process_time_ns(), time.perf_counter_ns()
            await store(group, body)
            total = time.process_time_ns() - cpu
            waiting = time.perf_counter_ns() - wall - total
            times = {_TOTAL: total, _WAITING: waiting, **stages.times}
            if version >= 0:
                measured.append({label: ns / 1000 / _SIZE for label, ns in times.items()})
    return min(measured, key=itemgetter(_TOTAL))


async def _store(
    database: Database,
    schema_validator: SchemaValidator,
    computations: FairThread,
    group: str,
    body: bytes,
) -> None:
    def parse_strictly() -> Sequence[Output]:
        raise AssertionError("the batch is valid")

    batch = batches.from_json(body, _SIZE, BatchOptions(), parse_strictly)
    await ingest.store_batch(database, schema_validator, computations, group, batch, timestamps.now)
