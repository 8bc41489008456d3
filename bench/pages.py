"""Measurement of pages beside bare ASGI, nginx and the peers, and with two workers."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import dataset, peers, servers
from bench.deployments import Deployment, Service
from bench.environment import ENGINES, Environment
from bench.load_generator import measure_gets
from bench.measurement import OF_BASELINE, Comparison, MeasureRate, Report
from bench.results import at_least

_BARE_ASGI_TARGETS = {
    (10, "SQLite"): at_least(0.45),
    (10, "PostgreSQL"): at_least(0.20),
    (1000, "SQLite"): at_least(0.30),
    (1000, "PostgreSQL"): at_least(0.20),
}
_BEST_PEER_TARGET = at_least(20)
PAGE = "page"


def measure(environment: Environment) -> None:
    for limit in (10, 1000):
        comparison = _compare(environment, limit)
        fastest_first = sorted(comparison.best.items(), key=lambda pair: -pair[1])
        environment.report.rates[f"{limit} items per page"] = dict(fastest_first)
        _add_ratios(environment.report, limit, comparison)


def _compare(environment: Environment, limit: int) -> Comparison:
    comparison, folder = Comparison(), environment.new_folder(f"web-{limit}")
    with ExitStack() as stack:
        for engine in ENGINES:
            for suffix, deployment in environment.filled_versions(engine).items():
                service = stack.enter_context(deployment.serve())
                prepare = partial(_prepare_gleanery, deployment, service, limit, folder)
                comparison.add(_gleanery(engine) + suffix, prepare)
        comparison.add("bare ASGI", partial(_start_bare_asgi, stack, folder))
        comparison.add("nginx", partial(_start_nginx, stack, folder))
        for peer in peers.PEERS:
            database = environment.new_database(f"{peer.name.split()[0].lower()}_{limit}")
            comparison.add(peer.name, partial(_start_peer, stack, peer, folder, database, limit))
        return comparison.run()


def compare_versions(environment: Environment, limit: int) -> Comparison:
    """Measure only this version and the baseline, on SQLite."""
    comparison, folder = Comparison(), environment.new_folder(f"versions-{limit}")
    with ExitStack() as stack:
        for suffix, deployment in environment.filled_versions("SQLite").items():
            service = stack.enter_context(deployment.serve())
            prepare = partial(_prepare_gleanery, deployment, service, limit, folder)
            comparison.add(PAGE + suffix, prepare)
        return comparison.run()


def _gleanery(engine: str) -> str:
    return f"Gleanery on {engine}"


def _prepare_gleanery(
    deployment: Deployment, service: Service, limit: int, folder: Path
) -> MeasureRate:
    """Check the records, and save a page in the folder for bare ASGI and nginx."""
    path = deployment.page_paths(dataset.SMALL_GROUP, limit)[0]
    items = json.loads(service.get(path))["items"]
    peers.check_records([item | {"job_id": item["root_job_id"]} for item in items], 1, limit)
    paths = deployment.page_paths(dataset.LARGE_GROUP, limit)
    (folder / "page.json").write_bytes(service.get(paths[0]))
    return partial(service.measure_reads, paths)


def _start_bare_asgi(stack: ExitStack, folder: Path) -> MeasureRate:
    url = stack.enter_context(servers.bare_asgi(folder / "page.json"))
    return partial(measure_gets, url, ["/"])


def _start_nginx(stack: ExitStack, folder: Path) -> MeasureRate:
    url = stack.enter_context(servers.nginx(folder))
    return partial(measure_gets, url, ["/page.json"])


def _start_peer(
    stack: ExitStack, peer: peers.Peer, folder: Path, database: str, limit: int
) -> MeasureRate:
    url = stack.enter_context(peer.serve(folder, database))
    return peer.prepare(url, limit)


def _add_ratios(report: Report, limit: int, comparison: Comparison) -> None:
    page = f"{limit}-item page"
    for engine in ENGINES:
        target = _BARE_ASGI_TARGETS[limit, engine]
        label = f"{page}, {engine}: ratio to bare ASGI"
        name = _gleanery(engine)
        report.add_ratio(label, target, comparison, name, "bare ASGI", baseline=name + OF_BASELINE)
    peer_names = [peer.name for peer in peers.PEERS]
    for name in ("nginx", *peer_names):
        label = f"{page}, SQLite: ratio to {name}"
        report.add_ratio(label, None, comparison, _gleanery("SQLite"), name)
    _add_best_peer(report, f"{page}, SQLite: ratio to the best peer", comparison, peer_names)


def _add_best_peer(
    report: Report, label: str, comparison: Comparison, peer_names: list[str]
) -> None:
    measured = [name for name in peer_names if name in comparison.best]
    reasons = comparison.failure_reasons(peer_names)
    if not measured:
        report.add(label, _BEST_PEER_TARGET, None, reasons)
        return
    best = max(measured, key=lambda name: comparison.best[name])
    suffix = f"; without {reasons}" if reasons else ""
    report.add_ratio(label, _BEST_PEER_TARGET, comparison, _gleanery("SQLite"), best, suffix)


def measure_workers(environment: Environment) -> None:
    """Compare two workers with one. They run on all cores and share these with wrk."""
    deployment = environment.filled_deployment("SQLite")
    paths = deployment.page_paths(dataset.LARGE_GROUP, 10)
    with deployment.serve(core=None) as one, deployment.serve(workers=2, core=None) as two:
        comparison = Comparison(
            {
                "two workers": partial(two.measure_reads, paths, 32),
                "one worker": partial(one.measure_reads, paths, 32),
            }
        ).run()
    label = "10-item page, SQLite, two workers: ratio to one worker"
    environment.report.add_ratio(label, at_least(1), comparison, "two workers", "one worker")
