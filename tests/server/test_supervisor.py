"""Worker processes: replacement, signals, exit status."""

from __future__ import annotations

import os
import pty
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.process import (
    PROC,
    Running,
    children,
    environment,
    free_port,
    is_ready,
    new_token,
)
from tests.support.raw_http import connect
from tests.support.service import Client
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.thorough

MAIN = "from gleanery.cli import main; main()"
NO_WORKER_STARTS = (
    "-c",
    "import gleanery.service.processes.supervisor as module; "
    f"module._PROGRAM = 'no.such.module'; {MAIN}",
)
SIGHUP_IGNORED = (
    "-c",
    f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {MAIN}",
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


@PROC
def test_a_worker_that_cannot_be_replaced_at_once_is_replaced_later(tmp_path: Path) -> None:
    """The supervisor has no free descriptor for some time. The other worker serves."""
    with serving(tmp_path, "--workers", "2") as (running, url):
        running.wait_for(lambda: "".join(running.log).count("a worker process serves") == 2)
        supervisor = running.process.pid
        limits = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, limits[1]))
        os.kill(running.workers()[0], signal.SIGKILL)
        running.wait_for(lambda: "Too many open files" in "".join(running.log))
        assert is_ready(url)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, limits)
        wait_until(lambda: len(running.workers()) == 2)
        assert running.stop() == 0


@PROC
def test_the_processes_of_a_worker_inherit_none_of_its_sockets(tmp_path: Path) -> None:
    """A process that outlives its worker would keep the port, and hide the worker's end."""
    with serving(tmp_path, "--workers", "2") as (running, url):
        token = new_token(["--data", str(tmp_path)])
        with Client(url, token) as client:
            schema = {"schema": {"type": "object"}}
            assert client.put("/v1/groups/a", json=schema).status_code == 200
        pairs = [(worker, child) for worker in running.workers() for child in children(worker)]
        assert pairs
        for worker, child in pairs:
            arguments = Path(f"/proc/{worker}/cmdline").read_text().split("\0")[-4:-1]
            inherited = {os.readlink(f"/proc/{worker}/fd/{number}") for number in arguments}
            assert len(inherited) == 3
            assert not inherited & set(map(os.readlink, Path(f"/proc/{child}/fd").iterdir()))


@PROC
def test_modules_in_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    """The installed command does not import them in the supervisor either."""
    (tmp_path / "uvloop.py").write_text("raise SystemExit('wrong module')")
    program = ("-P", "-c", f"import os; os.chdir({str(tmp_path)!r}); {MAIN}")
    with serving(tmp_path / "data", "--workers", "2", program=program) as (running, _):
        assert running.stop() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sighup_during_the_start_does_not_end_the_service(tmp_path: Path, workers: str) -> None:
    program = (
        "-c",
        "import os, signal, gleanery.service.processes.start as start; prepare = start.prepare; "
        "start.prepare = lambda s: (os.kill(os.getpid(), signal.SIGHUP), prepare(s))[1]; " + MAIN,
    )
    with serving(tmp_path, "--workers", workers, program=program) as (running, _):
        assert running.stop() == 0


@PROC
def test_a_second_signal_during_the_exit_is_not_an_error(tmp_path: Path) -> None:
    """The exit waits for the log, and the event loop has ended."""
    program = (
        "-c",
        "import atexit, os, signal; "
        f"atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM)); {MAIN}",
    )
    with serving(tmp_path, "--workers", "2", program=program) as (running, _):
        assert running.stop() == 0
    assert "RuntimeError" not in "".join(running.log)


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


@pytest.mark.extended
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
def test_other_signals_have_no_effect(tmp_path: Path, workers: str) -> None:
    with serving(tmp_path, "--workers", workers) as (running, url):
        processes = [running.process.pid, *running.workers()]
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGPIPE):
            for pid in processes:
                os.kill(pid, number)
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
