"""A program that runs while this process holds the lease of a session."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gleanery.cli.data.command import CommandFailed
from gleanery.cli.data.programs import PassedSignals, exit_status, wait

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


def run(command: Sequence[str], file: Path, lease: Lease, seconds: int) -> int:
    """Run a program, and return its exit status. End it before the lease ends.

    Raise CommandFailed if the lease has ended.
    """
    arguments = [argument.replace(PLACEHOLDER, str(file)) for argument in command]
    environment = {**os.environ, FILE_VARIABLE: str(file)}
    end_seconds = min(seconds / 10, _LONGEST_END_SECONDS)
    with PassedSignals() as signals:
        process = signals.start(arguments, environment)
        while (status := wait(process, _CHECK_SECONDS)) is None:
            if lease.seconds_left <= end_seconds:
                _end(process, end_seconds)
                raise CommandFailed(
                    "The lease has ended, and another holder may use the session: the command was "
                    "stopped, and nothing is stored"
                )
    return exit_status(status)


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Ask a program to end, and end it after some seconds."""
    process.terminate()
    if wait(process, seconds) is None:
        process.kill()
        process.wait()
