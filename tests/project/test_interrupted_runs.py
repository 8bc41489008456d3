"""A run of the tests that is interrupted leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.processes import is_alive
from tests.support.process import PROC, children, environment
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.thorough, PROC]

ROOT = Path(__file__).parent.parent.parent
RUN = ("-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "tests/support/endless_run.py")


def press_ctrl_c_twice(run: int) -> None:
    for _ in range(2):
        os.killpg(run, signal.SIGINT)


def kill(run: int) -> None:
    """Kill the run and its workers, as the kernel does when memory is short."""
    for pid in (run, *children(run)):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("interrupt", [press_ctrl_c_twice, kill])
def test_no_server_outlives_an_interrupted_run(
    tmp_path: Path, interrupt: Callable[[int], None]
) -> None:
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, *RUN, "--basetemp", str(tmp_path / "temporary")],
            cwd=ROOT,
            env=environment(ENDLESS_RUN=str(tmp_path)),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    files = [tmp_path / "1", tmp_path / "2"]
    try:
        wait_until(lambda: run.poll() is not None or all(file.exists() for file in files))
        assert run.poll() is None, (tmp_path / "log").read_text()
    finally:
        interrupt(run.pid)
        run.wait()
    pids = [int(pid) for file in files for pid in file.read_text().split()]
    assert len(pids) == 8
    wait_until(lambda: not any(map(is_alive, pids)))
