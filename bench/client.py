"""Measurement of the client: speed beside apify-client and its HTTP library, memory, and import."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench import dataset, servers, stand_in
from bench.environment import Environment
from bench.load_generator import LOAD_CORE, NotMeasured, pin_to_core
from bench.measurement import Comparison, Report, print_progress
from bench.results import at_least, at_most

_OUTPUTS = 200_000
"""Outputs that one round reads."""
_DIFFERENT_PAGES = 20
_MEMORY_OUTPUTS = tuple(
    int(count) for count in os.environ.get("GLEANERY_BENCH_EXPORTED", "1000000 3000000").split()
)
_PEER, _LIBRARY = "apify-client", "httpx2"
_PUSH, _PEER_PUSH = "push", "apify-client, push"
_TARGETS = {
    "iteration": at_least(2),
    "JSONL": at_least(4),
    "Parquet json": at_least(1.4),
    "Parquet columns": at_least(0.9),
    "CSV": None,
}
_MEBIBYTES = {"JSONL": 64, "Parquet json": 256, "Parquet columns": 256, "CSV": 256}
_LIMITED = ("JSONL", "Parquet json", "Parquet columns")
_IMPORT = "import time; start = time.process_time(); from gleanery import Client; "
_IMPORT += "print(time.process_time() - start)"
_IMPORT_MILLISECONDS = 60
_IMPORTS = 21


class _Run(NamedTuple):
    """Cost of a task in a process of its own."""

    seconds: float
    mebibytes: float


def measure(environment: Environment) -> None:
    _measure_import(environment.report)
    folder = environment.new_folder("client")
    with _stand_in(environment) as url:
        _measure_speed(environment.report, url, folder)
        for count in _MEMORY_OUTPUTS:
            _measure_memory(environment.report, url, count, folder)


@contextmanager
def _stand_in(environment: Environment) -> Iterator[str]:
    """Serve pages that a service has sent."""
    folder = environment.new_folder("stand-in")
    (folder / "pages").mkdir()
    with environment.new_deployment("client").serve() as service:
        outputs = dataset.outputs(_DIFFERENT_PAGES * stand_in.PAGE_SIZE)
        service.store_outputs(dataset.SMALL_GROUP, outputs)
        group = service.get(f"/v1/groups/{dataset.SMALL_GROUP}")
        (folder / "group.json").write_bytes(group)
        path, cursor = f"/v1/outputs/{dataset.SMALL_GROUP}?limit={stand_in.PAGE_SIZE}", 0
        for number in range(_DIFFERENT_PAGES):
            page = service.get(f"{path}&cursor={cursor}")
            cursor = json.loads(page)["metadata"]["next_cursor"]
            (folder / "pages" / f"{number:02}").write_bytes(stand_in.prepare_page(page))
    port = servers.free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "bench.stand_in", str(port), str(folder)]
    with servers.run_server(command, f"{url}/v1/groups/1"):
        yield url


def _measure_speed(report: Report, url: str, folder: Path) -> None:
    names = (_PEER, _LIBRARY, *_TARGETS)
    comparison = Comparison({name: partial(_rate, name, url, folder) for name in names}).run()
    suffix = f" (outputs per second of processor time, of {_OUTPUTS:,})"
    for name, target in _TARGETS.items():
        label = f"client, {name}: ratio to {_PEER}"
        report.add_ratio(label, target, comparison, name, _PEER, suffix)
    pushes = Comparison(
        {name: partial(_rate, name, url, folder) for name in (_PEER_PUSH, _PUSH)}
    ).run()
    label = f"client, push of dicts: ratio to {_PEER}"
    report.add_ratio(label, at_least(1.3), pushes, _PUSH, _PEER_PUSH, suffix)
    label = f"client, JSONL: ratio to {_LIBRARY} that reads and discards"
    report.add_ratio(label, at_least(0.5), comparison, "JSONL", _LIBRARY, suffix)


def _rate(task: str, url: str, folder: Path) -> float:
    return _OUTPUTS / _run("library", task, url, str(_OUTPUTS), folder).seconds


def _measure_memory(report: Report, url: str, count: int, folder: Path) -> None:
    for name, most in _MEBIBYTES.items():
        print_progress(f"Exporting {count:,} outputs, {name} …")
        seconds, used = _run("command", name, url, f"{count}-mixed", folder)
        label = f"memory of `gleanery export` of {count:,} outputs, {name}: ratio to {most} MiB"
        details = f"{used:.0f} MiB, {seconds:.0f} s of processor time"
        report.add(label, at_most(1) if name in _LIMITED else None, used / most, details)


def _run(kind: str, task: str, url: str, group: str, folder: Path) -> _Run:
    python = servers.peer_program("python") if task.startswith(_PEER) else sys.executable
    file = folder / "outputs"
    command = [str(python), "-m", "bench.client_tasks", kind, task, url, group, str(file)]
    run = subprocess.run(
        pin_to_core(LOAD_CORE, *command), capture_output=True, text=True, check=False
    )
    file.unlink(missing_ok=True)
    if run.returncode:
        raise NotMeasured(f"{task}: {' '.join(run.stderr.split())[-200:]}")
    return _Run(*map(float, run.stdout.split()))


def _measure_import(report: Report) -> None:
    command = pin_to_core(LOAD_CORE, sys.executable, "-c", _IMPORT)
    seconds = [float(subprocess.check_output(command)) for _ in range(_IMPORTS)]
    milliseconds = statistics.median(seconds) * 1000
    label = "client, processor time of `from gleanery import Client`"
    label += f": ratio to {_IMPORT_MILLISECONDS} ms"
    ratio = milliseconds / _IMPORT_MILLISECONDS
    report.add(label, at_most(1), ratio, f"{milliseconds:.0f} ms")
