"""Metrics of several workers in one file without a name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gleanery.service.foundation.observability.metrics import NodeMetrics, SharedCounters
from gleanery.service.foundation.observability.telemetry import Telemetry
from tests.support.process import environment
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

WORKER = """
import os, sys
from pathlib import Path
from gleanery.service.api.context import RequestState
from gleanery.service.foundation.observability.metrics import SharedCounters
from gleanery.service.foundation.observability.telemetry import Telemetry

class Request:
    method, path, state = "GET", b"/", RequestState(b"")

number, requests, fallbacks = map(int, sys.argv[2:])
telemetry = Telemetry(None, ["read"], SharedCounters.attach(int(sys.argv[1]), number), {})
telemetry.worker.observe("gleanery_redis_fallbacks_total", lambda: fallbacks)
telemetry.worker.observe("gleanery_connections_open", lambda: 7)
for _ in range(requests):
    telemetry.record(Request(), "read", b"id", 200, 0.0)
telemetry.worker.publish()
os._exit(0)  # as if it were killed
"""


def run_worker(shared: SharedCounters, number: int, requests: int, fallbacks: int) -> None:
    arguments = map(str, (shared.fileno(), number, requests, fallbacks))
    subprocess.run(
        [sys.executable, "-c", WORKER, *arguments],
        pass_fds=[shared.fileno()],
        env=environment(),
        timeout=TIMEOUT_SECONDS,
        check=True,
    )


def observer(shared: SharedCounters, **folders: Path) -> Telemetry:
    """Metrics as the second worker sees them."""
    telemetry = Telemetry(None, ["read"], SharedCounters.attach(shared.fileno(), 2), folders)
    telemetry.worker.observe("gleanery_redis_fallbacks_total", lambda: 100)
    telemetry.worker.observe("gleanery_connections_open", lambda: 3)
    return telemetry


def samples(telemetry: Telemetry) -> dict[str, float]:
    lines = telemetry.exposition().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


COUNT = 'gleanery_request_seconds_count{operation="read",status="200"}'


def test_counters_of_a_replaced_worker_continue() -> None:
    shared = SharedCounters.create(2)
    for requests, fallbacks in ((5, 2), (4, 1)):
        run_worker(shared, 1, requests, fallbacks)
    found = samples(observer(shared))
    assert found[COUNT] == 9
    assert found["gleanery_redis_fallbacks_total"] == 103


def test_gauges_have_one_sample_for_each_worker_that_runs() -> None:
    shared = SharedCounters.create(3)
    run_worker(shared, 1, 0, 0)
    found = samples(observer(shared))
    name = "gleanery_connections_open"
    assert {one: found[one] for one in found if one.startswith(name)} == {
        f'{name}{{worker="1"}}': 7,
        f'{name}{{worker="2"}}': 3,
    }
    shared.count_restart(1)
    found = samples(observer(shared))
    assert [one for one in found if one.startswith(name)] == [f'{name}{{worker="2"}}']
    assert found["gleanery_worker_restarts_total"] == 1


def test_a_worker_number_must_exist() -> None:
    shared = SharedCounters.create(2)
    for number in (0, 3):
        with pytest.raises(ValueError, match="from 1 to 2"):
            SharedCounters.attach(shared.fileno(), number)


def test_a_system_without_memory_files_uses_a_file_in_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shared = SharedCounters.create(2)
    assert [*tmp_path.iterdir()] == []
    run_worker(shared, 1, 2, 0)
    assert samples(observer(shared))[COUNT] == 2


def test_the_metrics_of_the_process_and_the_program() -> None:
    found = samples(observer(SharedCounters.create(2)))
    assert [name for name in found if re.fullmatch(r'gleanery_info\{version="[0-9.]+"\}', name)]
    assert 1_000_000 < found['process_resident_memory_bytes{worker="2"}'] < 10**10
    assert 3 < found['process_open_fds{worker="2"}'] <= found['process_max_fds{worker="2"}']
    assert found['process_start_time_seconds{worker="2"}'] > 1_700_000_000


def test_a_certificate_has_its_expiry() -> None:
    telemetry = observer(SharedCounters.create(2))
    name = "gleanery_tls_certificate_expiry_timestamp_seconds"
    telemetry.worker.observe(name, lambda: 1_800_000_000)
    assert samples(telemetry)[f'{name}{{worker="2"}}'] == 1_800_000_000


def test_a_file_system_that_does_not_answer_has_no_sample_and_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, read = threading.Event(), os.statvfs

    def slow_statvfs(folder: Path) -> os.statvfs_result:
        answer.wait(TIMEOUT_SECONDS)
        return read(folder)

    monkeypatch.setattr(os, "statvfs", slow_statvfs)
    metrics = NodeMetrics(SharedCounters.private(), {"data": tmp_path, "none": tmp_path / "none"})

    def disk_samples() -> list[str]:
        return [
            sample
            for metric, found in metrics.collect()
            if metric.name == "gleanery_disk_free_bytes"
            for sample, _ in found
        ]

    for _ in range(3):
        metrics.refresh()
        assert disk_samples() == []
    answer.set()
    wait_until(disk_samples)
    assert disk_samples() == ['gleanery_disk_free_bytes{folder="data"}']
