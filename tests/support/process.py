"""The ``gleanery`` command in its own process, as a user runs it."""

from __future__ import annotations

import io
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from unittest.mock import patch

import httpx2
import pytest

from gleanery.cli import main
from gleanery.common.settings import Settings
from gleanery.service.foundation.security.tokens import SCOPES
from tests.support.service import NO_TLS, SECRET_KEY, Service
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

PROC = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into Linux's /proc")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # pytest-xdist ignores SIGINT,
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and the command would inherit that


def environment(**variables: str) -> dict[str, str]:
    """Environment of this process without variables of Gleanery."""
    kept = {name: value for name, value in os.environ.items() if "GLEANERY" not in name}
    return kept | variables


def gleanery(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command until it ends."""
    return subprocess.run(
        [sys.executable, "-m", "gleanery", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env=environment(**variables),
        check=False,
    )


def gleanery_in_process(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command inside this process, which saves a second of imports."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    with (
        patch.dict(os.environ, environment(**variables), clear=True),
        patch.object(sys, "argv", ["gleanery", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def run_successfully(*arguments: str, **variables: str) -> str:
    """Runs the command inside this process, and returns what it prints."""
    done = gleanery_in_process(*arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def database_options(settings: Settings) -> list[str]:
    """Command-line options that name the database of these settings."""
    options = ["--data", str(settings.data)]
    if settings.database is None:
        return options
    options += ["--database", settings.database, "--pooling", settings.pooling]
    listen = settings.listen_database
    return options if listen is None else [*options, "--listen-database", listen]


def new_token(options: Sequence[str], organization: str = "a") -> str:
    """Creates a token with every scope."""
    named = ("--organization", organization, "--scopes", ",".join(SCOPES))
    return run_successfully("token", "create", *named, *options).strip()


_PROGRAM = ("-m", "gleanery")
_KILLED_BEFORE_A_CALL = """
import os, signal, sys
from functools import reduce
from importlib import import_module
from gleanery.cli import main

module, path, calls = sys.argv.pop(1), sys.argv.pop(1).split("."), int(sys.argv.pop(1))
owner, name = reduce(getattr, path[:-1], import_module(module)), path[-1]
call = getattr(owner, name)

def call_or_die(*arguments, **named):
    global calls
    if calls == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    calls -= 1
    return call(*arguments, **named)

setattr(owner, name, call_or_die)
main()
"""


def killed_before_call(function: tuple[str, str], calls: int) -> Sequence[str]:
    """A form of the command that is killed when it has called the function so many times.

    The function is a pair of a module and a name such as ``Path.replace``.
    """
    return ("-c", _KILLED_BEFORE_A_CALL, *function, str(calls))


def kill_before_call(function: tuple[str, str], calls: int, *arguments: str) -> None:
    """Runs the command and kills it when it has called the function so many times."""
    program = [sys.executable, *killed_before_call(function, calls), *arguments]
    died = subprocess.run(program, env=environment(), check=False)
    assert died.returncode == -signal.SIGKILL


def kill_before_rename(renames: int, *arguments: str) -> None:
    """Runs the command and kills it when it has renamed so many files."""
    kill_before_call(("pathlib", "Path.replace"), renames, *arguments)


def is_ready(url: str, verify: object = NO_TLS) -> bool:
    """Asks the service, which may not listen yet."""
    try:
        return httpx2.get(f"{url}/readyz", verify=verify).status_code == 200  # type: ignore[arg-type]
    except httpx2.TransportError:
        return False


class Running:
    """A running command. Its output is collected."""

    def __init__(
        self, *arguments: str, program: Sequence[str] = _PROGRAM, **variables: str
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**variables),
        )
        self.out: list[str] = []
        self.log: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair)
            for pair in ((self.process.stdout, self.out), (self.process.stderr, self.log))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(pipe: object, lines: list[str]) -> None:
        for line in pipe:  # type: ignore[attr-defined]
            lines.append(line)

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Returns when the condition holds; fails if the command ends or takes too long."""

        holds = False

        def holds_or_ended() -> bool:
            nonlocal holds
            holds = bool(condition())
            return holds or self.process.poll() is not None

        wait_until(holds_or_ended, TIMEOUT_SECONDS)
        assert holds or condition(), "".join(self.out + self.log)

    def wait_ready(self, url: str, verify: object = NO_TLS) -> None:
        self.wait_for(lambda: is_ready(url, verify))

    def workers(self) -> list[int]:
        """Process ids of the workers."""
        return children(self.process.pid, b"gleanery.service.processes.worker")

    def stop(self, with_signal: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        status = self.process.wait(TIMEOUT_SECONDS)
        for reader in self._readers:
            reader.join()
        return status

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.stop()


class Served(NamedTuple):
    """A service in its own process, and a token with every scope."""

    running: Running
    url: str
    token: str


# On a busy machine any request can be slow.
QUIET = ("--log-level", "warning", "--slow-request-seconds", "0")


@contextmanager
def served(
    settings: Settings,
    *options: str,
    with_token: bool = True,
    program: Sequence[str] = _PROGRAM,
    **variables: str,
) -> Iterator[Served]:
    """``gleanery serve`` over the database of these settings."""
    where = database_options(settings)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = ("serve", *where, "--port", str(port), *QUIET, *options)
    secret = {"GLEANERY_SECRET_KEY": SECRET_KEY}
    with Running(*serve, program=program, **secret, **variables) as running:
        running.wait_ready(url)
        yield Served(running, url, new_token(where) if with_token else "")


@contextmanager
def serving_process(
    where: list[str], *options: str, **variables: str
) -> Iterator[tuple[str, Running]]:
    """``gleanery serve`` with the secret keys that it finds; it must stop without an error."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = ("serve", *where, "--port", str(port), *QUIET, *options)
    with Running(*serve, **variables) as running:
        running.wait_ready(url)
        try:
            yield url, running
        finally:  # a supervisor that is killed would leave its workers behind
            status = running.stop()
        assert status == 0


@contextmanager
def serving_thread(where: list[str], **variables: str) -> Iterator[str]:
    """The same service in a thread of this process, which starts faster; yields its URL."""
    options = dict(zip(where[::2], where[1::2], strict=True))
    settings = Settings(
        data=Path(options["--data"]),
        database=options.get("--database"),
        blobs=options.get("--blobs"),
        secret_key=variables.get("GLEANERY_SECRET_KEY"),
        port=0,
        log_level="warning",
    )
    service = Service(settings)
    try:
        assert httpx2.get(f"{service.url}/readyz").status_code == 200
        yield service.url
    finally:
        service.stop()


@contextmanager
def suspended(service: Served) -> Iterator[None]:
    """Suspends the process. When it continues, it gets all input of that time at once."""
    process = service.running.process
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)  # returns when it is suspended
    try:
        yield
    finally:
        service.running.process.send_signal(signal.SIGCONT)


def peak_memory_bytes(pid: int) -> int:
    """Most memory that the process has used at any time."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def join_readers_after_writers(
    writers: Sequence[threading.Thread],
    readers: Sequence[threading.Thread],
    writing: threading.Event,
) -> None:
    """Runs all threads. The event is set until the last writer has ended."""
    writing.set()
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    writing.clear()
    for thread in readers:
        thread.join()


def free_port() -> int:
    """A port that no outgoing connection can take before the service listens on it.

    The kernel gives outgoing connections the ports from 32768 on.
    """
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def children(pid: int, program: bytes = b"") -> list[int]:
    """Process ids of the children whose command contains the program.

    A thread or a child may end meanwhile.
    """
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in found if program in _command(child)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
