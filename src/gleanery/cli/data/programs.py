"""Programs that a command runs for its user, with the signals that reach the command."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any, Self

from gleanery.cli.data.command import UserError


def require_program(command: Sequence[str]) -> None:
    """Raise UserError if there is no such program."""
    if not command:
        raise UserError("The command to run is missing: give it after --")
    if shutil.which(command[0]) is None:
        raise UserError(
            "The command to run was not found: put its name directly after --, and the options of "
            "gleanery before --"
        )


def exit_status(status: int) -> int:
    """Return the status of a program as a shell reports it, if a signal has ended it."""
    return 128 - status if status < 0 else status


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Wait for the end of a program. Return None if it still runs."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


class PassedSignals:
    """Passes signals on to a program, instead of ending this process.

    A terminal sends Ctrl-C to all programs in its foreground, so it is not passed on there.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        """Numbers of the signals, including those that the terminal has passed on itself."""
        self._process: subprocess.Popen[bytes] | None = None
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

    def start(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a program. It gets the signals that come from now on, and those before."""
        process = subprocess.Popen(command, env=environment)  # noqa: S603
        earlier = [*self.received]
        self._process = process
        for number in earlier:
            self._send(number)
        return process

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        self._send(number)

    def _send(self, number: int) -> None:
        is_of_terminal = number == signal.SIGINT and (sys.platform == "win32" or _has_terminal())
        if self._process is not None and not is_of_terminal:
            self._process.send_signal(number)


def _has_terminal() -> bool:
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
