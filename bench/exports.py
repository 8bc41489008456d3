"""Measurement of exports: beside bare ASGI, beside other requests, and by tools that read them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import dataset, servers
from bench.deployments import Deployment, Service
from bench.environment import Environment
from bench.export_readers import READERS
from bench.load_generator import LOAD_CORE, NotMeasured, download, measure_p99, pin_to_core
from bench.measurement import Comparison, Report, print_progress
from bench.results import at_least, at_most

_RATIO_TARGETS = {"SQLite": at_least(0.35), "PostgreSQL": at_least(0.15)}
_PATH = f"/v1/exports/{dataset.LARGE_GROUP}"
_PIECE_BYTES = 512 * 1024
_SAMPLE_SECONDS, _SAMPLES = 0.05, 100
_READER_OUTPUTS = min(dataset.LARGE_SIZE, 100_000)
_READER_GROUP = "readers"


def measure(environment: Environment) -> None:
    for engine, deployment in environment.filled_deployments().items():
        with deployment.serve() as service:
            _measure_memory(environment.report, engine, service)
            _measure_throughput(environment, engine, service)
            _measure_latency(environment.report, engine, deployment, service)
    _measure_readers(environment)


def _measure_throughput(environment: Environment, engine: str, service: Service) -> None:
    """Compare with bare ASGI that sends as many bytes, in pieces of the same size."""
    piece = environment.new_folder(f"export-{engine}") / "piece.ndjson"
    page = json.loads(service.get(f"/v1/outputs/{dataset.LARGE_GROUP}?limit=1000"))
    lines = "".join(json.dumps(item) + "\n" for item in page["items"])
    piece.write_text(lines[:_PIECE_BYTES])
    size = download(service.url + _PATH, service.token).size
    gleanery = f"Gleanery on {engine}"
    with servers.bare_asgi_stream(piece, size) as url:
        comparison = Comparison(
            {
                gleanery: partial(_megabytes_per_second, service.url + _PATH, service.token),
                "bare ASGI": partial(_megabytes_per_second, url, None),
            }
        ).run()
    label = f"export of {dataset.LARGE_SIZE:,} outputs, {engine}: ratio to bare ASGI"
    suffix = f" (megabytes, of {size / 1e6:,.0f})"
    target = _RATIO_TARGETS[engine]
    environment.report.add_ratio(label, target, comparison, gleanery, "bare ASGI", suffix)


def _megabytes_per_second(url: str, token: str | None) -> float:
    size, seconds = download(url, token)
    return size / 1e6 / seconds


# --- memory and other requests ------------------------------------------------------------------


def _measure_memory(report: Report, engine: str, service: Service) -> None:
    """Compare the memory during exports of the large group with exports of the small one."""
    small = _largest_memory(service, dataset.SMALL_GROUP)
    large = _largest_memory(service, dataset.LARGE_GROUP)
    label = f"memory during an export of {dataset.LARGE_SIZE:,} outputs, {engine}: ratio to "
    label += f"{dataset.SMALL_SIZE:,} outputs"
    report.add(label, at_most(1.2), large / small, f"{large:.0f} MiB, {small:.0f} MiB")


def _largest_memory(service: Service, group: str) -> float:
    used = []
    with _exports(service, group) as failed:
        while not failed.wait(_SAMPLE_SECONDS) and len(used) < _SAMPLES:
            used.append(_memory(service))
    return max(used)


def _memory(service: Service) -> float:
    """Return the anonymous memory of the process in mebibytes."""
    status = Path(f"/proc/{service.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def _measure_latency(report: Report, engine: str, deployment: Deployment, service: Service) -> None:
    """Compare small pages of a light load during exports with those before."""
    paths = deployment.page_paths(dataset.SMALL_GROUP, 10)
    measure = partial(measure_p99, service.url, paths, service.token)
    alone = measure()
    with _exports(service, dataset.LARGE_GROUP):
        beside = measure()
    label = f"p99 of 10-item pages during an export, {engine}: ratio to none"
    details = f"during {beside * 1000:.2f} ms, none {alone * 1000:.2f} ms"
    report.add(label, at_most(1.5), beside / alone, details)


@contextmanager
def _exports(service: Service, group: str) -> Iterator[threading.Event]:
    """Run one export of the group after the other. The event is set when an export has failed."""
    stopped, failed = threading.Event(), threading.Event()

    def run() -> None:
        while not stopped.is_set():
            try:
                download(f"{service.url}/v1/exports/{group}", service.token)
            except NotMeasured:
                failed.set()
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failed
    finally:
        stopped.set()
        thread.join()
    if failed.is_set():
        raise NotMeasured("an export failed")


# --- tools --------------------------------------------------------------------------------------


def _measure_readers(environment: Environment) -> None:
    """Measure time and memory of the tools. DuckDB reads a file: its extension may be missing."""
    print_progress(f"Storing {_READER_OUTPUTS:,} outputs for the tools …")
    deployment = environment.new_deployment("readers")
    with deployment.serve() as service:
        service.store_outputs(_READER_GROUP, dataset.outputs(_READER_OUTPUTS))
        link = service.post(f"/v1/exports/{_READER_GROUP}/links", b"")["url"]
        file = deployment.folder / "outputs.ndjson"
        seconds = download(link, None, file).seconds
        for name in READERS:
            source = str(file) if name == "DuckDB" else link
            _measure_reader(environment.report, name, source, seconds)


def _measure_reader(report: Report, name: str, source: str, download_seconds: float) -> None:
    """Compare the time with that of a download. The time of DuckDB includes its download."""
    command = pin_to_core(LOAD_CORE, sys.executable, "-m", "bench.export_readers", name, source)
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    count, seconds, mebibytes = map(float, run.stdout.split())
    if count != _READER_OUTPUTS:
        raise NotMeasured(f"{name} has read {count:.0f} outputs")
    seconds += download_seconds if name == "DuckDB" else 0
    label = f"{name} reads an export of {_READER_OUTPUTS:,} outputs, SQLite: ratio to a download"
    details = f"{seconds:.2f} s, {mebibytes:.0f} MiB of memory, download {download_seconds:.2f} s"
    report.add(label, None, seconds / download_seconds, details)
