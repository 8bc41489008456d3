"""Measurement of the ASGI adapter on uvicorn, beside the built-in HTTP server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial

from bench import dataset
from bench.deployments import Deployment, Service
from bench.environment import Environment
from bench.measurement import Comparison, MeasureRate

_ASGI, _BUILTIN = "ASGI adapter", "built-in server"


def measure(environment: Environment) -> None:
    deployment = environment.filled_deployment("SQLite")
    for limit in (10, 1000):
        comparison = _compare(deployment, deployment.page_paths(dataset.LARGE_GROUP, limit))
        label = f"{limit}-item page, SQLite, {_ASGI} on uvicorn: ratio to the {_BUILTIN}"
        environment.report.add_ratio(label, None, comparison, _ASGI, _BUILTIN)


def _compare(deployment: Deployment, paths: list[str]) -> Comparison:
    comparison = Comparison()
    with ExitStack() as stack:
        comparison.add(_BUILTIN, partial(_start, stack, deployment.serve, paths))
        comparison.add(_ASGI, partial(_start, stack, deployment.serve_on_uvicorn, paths))
        return comparison.run()


def _start(
    stack: ExitStack, serve: Callable[[], AbstractContextManager[Service]], paths: list[str]
) -> MeasureRate:
    return partial(stack.enter_context(serve()).measure_reads, paths)
