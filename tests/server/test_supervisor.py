"""Worker processes: replacement, signals, exit status."""

from __future__ import annotations

import os
import pty
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.process import PROC, Running, environment, free_port, is_ready, new_token
from tests.support.raw_http import connect
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.thorough

NO_WORKER_STARTS = (
    "-c",
    "import gleanery.server.worker_process as module; module._PROGRAM = 'no.such.module'; "
    "from gleanery.cli import main; main()",
)
SIGHUP_IGNORED = (
    "-c",
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    "from gleanery.cli import main; main()",
)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextmanager
def serving(
    folder: Path, *options: str, program: Sequence[str] = ("-m", "gleanery")
) -> Iterator[tuple[Running, str]]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ("serve", "--data", str(folder), "--port", str(port), *options)
    with Running(*arguments, program=program) as running:
        running.wait_ready(url)
        yield running, url
        if running.process.poll() is None:  # else its workers would outlive the test
            running.stop()


@PROC
def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as (running, url):
        first, second = running.workers()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len({*running.workers()} - {first, second}) == 1)
        assert is_ready(url)
        assert running.stop() == 0
    assert any("another one starts" in line for line in running.log)


@PROC
def test_the_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as (running, _):
        workers = running.workers()
        running.process.kill()
        wait_until(lambda: not any(map(is_running, workers)))


def test_a_service_whose_workers_cannot_start_exits_with_an_error(tmp_path: Path) -> None:
    options = ("serve", "--data", str(tmp_path), "--port", str(free_port()), "--workers", "2")
    with Running(*options, program=NO_WORKER_STARTS) as running:
        assert running.process.wait(TIMEOUT_SECONDS) == 1
        running.stop()
    assert any("no worker process could start" in line for line in running.log)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_second_ctrl_c_ends_the_requests_in_progress(tmp_path: Path, workers: str) -> None:
    with serving(tmp_path, "--workers", workers) as (running, url), connect(url) as upload:
        head = f"Host: x\r\nAuthorization: Bearer {new_token(['--data', str(tmp_path)])}\r\n"
        upload.sendall(
            f"POST /v1/files HTTP/1.1\r\n{head}Content-Length: 9\r\n"
            "Content-Type: text/plain\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        assert b" 100 " in upload.recv(100)
        running.process.send_signal(signal.SIGINT)
        running.wait_for(lambda: "waiting for requests in progress" in "".join(running.log))
        running.process.send_signal(signal.SIGINT)
        assert upload.recv(100) == b""
        assert running.process.wait(TIMEOUT_SECONDS) == 0


@PROC
def test_a_worker_that_does_not_respond_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as (running, _):
        workers = running.workers()
        os.kill(workers[0], signal.SIGSTOP)
        wait_until(lambda: workers[0] not in running.workers() and len(running.workers()) == 2)
    assert any("does not respond, and is killed" in line for line in running.log)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sighup_does_not_end_the_service(tmp_path: Path, workers: str) -> None:
    with serving(tmp_path, "--workers", workers) as (running, url):
        if workers == "2":  # a worker that starts has no handler yet
            running.wait_for(lambda: "".join(running.log).count("a worker process serves") == 2)
        processes = [running.process.pid, *running.workers()]
        for pid in processes:
            os.kill(pid, signal.SIGHUP)
        for _ in range(20):
            assert is_ready(url)
        assert [running.process.pid, *running.workers()] == processes
        assert running.stop() == 0


@PROC
@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_ignored_sighup_stays_ignored(tmp_path: Path, workers: str) -> None:
    options = ("--workers", workers)
    with serving(tmp_path, *options, program=SIGHUP_IGNORED) as (running, _):
        for pid in (running.process.pid, *running.workers()):
            ignored = Path(f"/proc/{pid}/status").read_text().split("SigIgn:")[1].split()[0]
            assert int(ignored, 16) & 1 << signal.SIGHUP - 1


@PROC
@pytest.mark.parametrize(("is_ignored", "ends"), [(False, True), (True, False)])
def test_a_closed_terminal_stops_the_service_in_order(
    tmp_path: Path, is_ignored: bool, ends: bool
) -> None:
    """Nobody would find the service any more. With nohup that is the intention."""
    port = free_port()
    program = SIGHUP_IGNORED if is_ignored else ("-m", "gleanery")
    options = ("serve", "--data", str(tmp_path), "--port", str(port))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, *program, *options], environment())
    try:
        wait_until(lambda: is_ready(f"http://127.0.0.1:{port}"))
        os.close(terminal)
        if ends:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        else:
            for _ in range(20):
                assert is_ready(f"http://127.0.0.1:{port}")
    finally:
        if not ends or is_running(pid):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
