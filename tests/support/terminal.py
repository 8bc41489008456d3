"""A command on a pseudo-terminal, as a person runs it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from types import TracebackType

from tests.support.process import environment
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

# The first terminal that a new session opens controls it: Ctrl-C sends a signal.
_ON_TERMINAL = 'exec "$@" <"$0" >"$0" 2>"$0"'


class Terminal:
    """Runs the command with a terminal for its input, output and errors."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self._controller, terminal = pty.openpty()
        program = (sys.executable, "-m", "gleanery", *arguments)
        self.process = subprocess.Popen(
            ["sh", "-c", _ON_TERMINAL, os.ttyname(terminal), *program],
            env=environment(**{"TERM": "xterm", "COLUMNS": "120", **variables}),
            start_new_session=True,
        )
        self._terminal = terminal
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Returns when the terminal has shown the text."""

        def has_shown() -> bool:
            self._read()
            return text in self.shown

        wait_until(has_shown, TIMEOUT_SECONDS)

    def write(self, text: str) -> None:
        os.write(self._controller, text.encode())

    def wait(self) -> int:
        """Reads everything, and returns the exit status."""

        def has_ended() -> bool:
            self._read()
            return self.process.poll() is not None

        wait_until(has_ended, TIMEOUT_SECONDS)
        self._read()
        return self.process.wait()

    def _read(self) -> None:
        while select.select([self._controller], [], [], 0.05)[0]:
            self.shown += os.read(self._controller, 65_536).decode()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._controller)
        os.close(self._terminal)
