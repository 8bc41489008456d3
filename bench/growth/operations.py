"""Measurement of operation in both sizes: restart, readiness, sizes on the disk and backup."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench import servers
from bench.growth import dataset
from bench.growth.engines import open_engine
from bench.growth.fill import Databases, Filled
from bench.growth.running import LARGE, SMALL, Both, Running, add_cost, compare
from bench.load_generator import ROUNDS, NotMeasured, measure_gets, pin_to_core
from bench.measurement import MeasureRate, Report
from bench.results import at_most

_GIB = 1024**3
_CHUNK = 1024 * 1024
_POSTGRES_SIZES = """
SELECT c.relname AS name, pg_table_size(c.oid) AS bytes FROM pg_class AS c
WHERE c.oid = 'outputs'::regclass
    OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'outputs'::regclass)
"""
_SQLITE_SIZES = """
SELECT name, pgsize AS bytes FROM dbstat WHERE aggregate = TRUE
    AND name IN (SELECT name FROM sqlite_schema WHERE tbl_name = 'outputs')
"""


def measure_start(report: Report, engine: str, filled: dict[str, Filled]) -> None:
    """Compare the times from the start of the service to its readiness."""
    seconds: dict[str, list[float]] = {name: [] for name in filled}
    for _ in range(ROUNDS):
        for name, each in filled.items():
            seconds[name].append(_start_seconds(each))
    small, large = min(seconds[SMALL]), min(seconds[LARGE])
    label = f"restart until /readyz responds, {engine}: time at {LARGE}, ratio to {SMALL}"
    report.add(label, at_most(1.2), large / small, f"{small:.2f} s, {large:.2f} s")


def _start_seconds(filled: Filled) -> float:
    start = time.perf_counter()
    with servers.gleanery(filled.deployment.folder, filled.deployment.database):
        return time.perf_counter() - start


def measure_readiness(report: Report, engine: str, both: Both) -> None:
    comparison = compare(both, _prepare_readiness)
    add_cost(report, f"/readyz, {engine}", at_most(1.2), comparison)


def _prepare_readiness(running: Running) -> MeasureRate:
    return partial(measure_gets, running.service.url, ["/readyz"])


# --- sizes --------------------------------------------------------------------------------------


def add_sizes(report: Report, engine: str, filled: dict[str, Filled]) -> None:
    """Add the bytes per output of the table and of each index."""
    sizes = {name: _sizes(each) for name, each in filled.items()}
    small, large = (sum(sizes[name].values()) for name in (SMALL, LARGE))
    details = ", ".join(f"{name} {size:,.0f}" for name, size in sizes[LARGE].items())
    label = f"bytes per output, {engine}: at {LARGE}, ratio to {SMALL}"
    report.add(label, None, large / small, f"{large:,.0f}: {details}; {small:,.0f} at {SMALL}")


def _sizes(filled: Filled) -> dict[str, float]:
    """Return the bytes per output, largest first."""
    with open_engine(filled.deployment) as engine:
        rows = engine.fetch(_POSTGRES_SIZES if filled.deployment.database else _SQLITE_SIZES)
        [counted] = engine.fetch("SELECT sum(output_count) AS outputs FROM groups")
    rows.sort(key=lambda row: -row["bytes"])
    return {row["name"]: row["bytes"] / int(counted["outputs"]) for row in rows}


# --- backup -------------------------------------------------------------------------------------


class _Backup(NamedTuple):
    database: int
    backup: int
    seconds: float

    def __str__(self) -> str:
        sizes = f"database {self.database / _GIB:.2f} GiB, backup {self.backup / _GIB:.2f} GiB"
        return f"{sizes}, {self.seconds:.1f} s"


def add_backup(
    report: Report, engine: str, databases: Databases, filled: dict[str, Filled]
) -> None:
    """Add the time of a backup and its size. It goes into a pipe, so it needs no disk twice."""
    made = {name: _back_up(databases, each) for name, each in filled.items()}
    small, large = made[SMALL], made[LARGE]
    per_output = (small.seconds / dataset.SMALL, large.seconds / dataset.LARGE)
    label = f"backup, {engine}: time per output at {LARGE}, ratio to {SMALL}"
    details = f"{large}; at {SMALL}: {small}"
    report.add(label, None, per_output[1] / per_output[0], details)


def _back_up(databases: Databases, filled: Filled) -> _Backup:
    deployment = filled.deployment
    variables = {"TMPDIR": str(databases.folder)}
    if deployment.database is None:
        database = (deployment.folder / "gleanery.sqlite").stat().st_size
        command = [sys.executable, "-m", "gleanery", "backup", "-"]
        command += ["--data", str(deployment.folder)]
    else:
        database = _database_bytes(filled)
        command = [str(Path(databases.server.bin_path) / "pg_dump"), "--enable-row-security"]
        command += ["--no-owner", "--no-privileges", deployment.database]
        variables["PGOPTIONS"] = "-c gleanery.organization=-1"
    start = time.perf_counter()
    size = _piped_bytes(command, variables)
    return _Backup(database, size, time.perf_counter() - start)


def _database_bytes(filled: Filled) -> int:
    with open_engine(filled.deployment) as engine:
        [row] = engine.fetch("SELECT pg_database_size(current_database()) AS bytes")
    return int(row["bytes"])


def _piped_bytes(command: Sequence[str], variables: dict[str, str]) -> int:
    """Run the command on any core and count what it writes."""

    environment = {**os.environ, **variables}
    process = subprocess.Popen(pin_to_core(None, *command), stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    size = 0
    while chunk := process.stdout.read(_CHUNK):
        size += len(chunk)
    if process.wait():
        raise NotMeasured(f"{command[0]} ends with status {process.returncode}")
    return size
