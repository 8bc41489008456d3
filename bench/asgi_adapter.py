"""Measurement of the ASGI adapter on uvicorn, beside the built-in HTTP server."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from bench import dataset, servers
from bench.deployments import Deployment
from bench.environment import Environment
from bench.measurement import Comparison, MeasureRate

_OPTIONS = ("--server", "asgi")
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
        comparison.add(_BUILTIN, partial(_start, stack, deployment, paths))
        comparison.add(_ASGI, partial(_start_adapter, stack, deployment, paths))
        return comparison.run()


def _start_adapter(stack: ExitStack, deployment: Deployment, paths: list[str]) -> MeasureRate:
    servers.require_options(*_OPTIONS)
    return _start(stack, deployment, paths, *_OPTIONS)


def _start(
    stack: ExitStack, deployment: Deployment, paths: list[str], *options: str
) -> MeasureRate:
    service = stack.enter_context(deployment.serve(options=options))
    return partial(service.measure_reads, paths)
