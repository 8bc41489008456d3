"""Measurement of growth: the service with ten million outputs, beside one with few."""

from __future__ import annotations

from contextlib import ExitStack

from bench.environment import ENGINES, Environment
from bench.growth import dataset, operations, reading, storing
from bench.growth.fill import Databases, Filled, open_databases
from bench.growth.positions import Positions
from bench.growth.running import LARGE, SMALL, Running


def measure(environment: Environment) -> None:
    with open_databases(environment) as databases:
        for engine in ENGINES:
            _measure_engine(environment, databases, engine)


def _measure_engine(environment: Environment, databases: Databases, engine: str) -> None:
    report = environment.report
    sizes = {SMALL: dataset.SMALL, LARGE: dataset.LARGE}
    filled = {name: databases.filled(engine, size) for name, size in sizes.items()}
    operations.add_sizes(report, engine, filled)
    operations.measure_start(report, engine, filled)
    with ExitStack() as stack:
        both = {name: _run(stack, each) for name, each in filled.items()}
        operations.measure_readiness(report, engine, both)
        reading.measure(report, engine, both)
        storing.measure(report, engine, both)
    operations.add_backup(report, engine, databases, filled)


def _run(stack: ExitStack, filled: Filled) -> Running:
    positions = Positions(filled)
    return Running(filled, stack.enter_context(filled.deployment.serve()), positions)
