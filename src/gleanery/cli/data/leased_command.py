"""A program that runs while this process holds the lease of a session."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from gleanery.cli.data.command import CommandFailed, UserError

if TYPE_CHECKING:
    from gleanery.client import Lease

FILE_VARIABLE = "GLEANERY_SESSION_FILE"
PLACEHOLDER = "{}"
_CHECK_SECONDS = 0.2
_LONGEST_END_SECONDS = 10.0


@contextmanager
def session_file(name: str, content: str) -> Iterator[Path]:
    """Write a file that only its owner can read. It is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="gleanery-") as folder:  # has the mode 0700
        path = Path(folder, name)
        path.touch(0o600)
        path.write_bytes(content.encode())
        yield path


def require_program(command: Sequence[str]) -> None:
    """Raise UserError if there is no such program."""
    if not command:
        raise UserError("The command to run is missing: give it after --")
    if shutil.which(command[0]) is None:
        raise UserError(
            "The command to run was not found: put its name directly after --, and the options of "
            "the lease before --"
        )


def run(command: Sequence[str], file: Path, lease: Lease, seconds: int) -> int:
    """Run a program, and return its exit status. End it before the lease ends.

    Raise CommandFailed if the lease has ended.
    """
    arguments = [argument.replace(PLACEHOLDER, str(file)) for argument in command]
    environment = {**os.environ, FILE_VARIABLE: str(file)}
    end_seconds = min(seconds / 10, _LONGEST_END_SECONDS)
    with _PassedSignals() as signals:
        process = subprocess.Popen(arguments, env=environment)  # noqa: S603
        signals.pass_to(process)
        while (status := _wait(process, _CHECK_SECONDS)) is None:
            if lease.seconds_left <= end_seconds:
                _end(process, end_seconds)
                raise CommandFailed(
                    "The lease has ended, and another holder may use the session: the command was "
                    "stopped, and nothing is stored"
                )
    return 128 - status if status < 0 else status  # as a shell reports the end by a signal


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Ask a program to end, and end it after some seconds."""
    process.terminate()
    if _wait(process, seconds) is None:
        process.kill()
        process.wait()


class _PassedSignals:
    """Passes signals on to a program, instead of ending this process.

    A terminal sends Ctrl-C to all programs in its foreground, so it is not passed on there.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._received: list[int] = []
        self._previous: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> Self:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def pass_to(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on the signals that come from now on, and those that came before."""
        self._process = process
        for number in self._received:
            self._send(number)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._process is None:
            self._received.append(number)
        else:
            self._send(number)

    def _send(self, number: int) -> None:
        is_of_terminal = number == signal.SIGINT and (sys.platform == "win32" or _has_terminal())
        if self._process is not None and not is_of_terminal:
            self._process.send_signal(number)


def _has_terminal() -> bool:
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
