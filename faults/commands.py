"""Command of a user as a real process, which is started again until it succeeds."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from faults.processes import TIMEOUT, wait_until
from faults.service import Service, environment_variables

_MAX_STARTS = 20  # without a kill; a command that fails more often is broken


class Command:
    """One command line. Each start runs the same command again."""

    def __init__(self, service: Service, log: Path, *arguments: str) -> None:
        self._arguments = [sys.executable, "-m", "gleanery", *arguments]
        self._variables = environment_variables() | {
            "GLEANERY_URL": service.url,
            "GLEANERY_TOKEN": service.token,
            "XDG_CONFIG_HOME": str(log.parent),  # so that no login of this machine is used
        }
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.failures = 0
        """Runs that ended with status 1, for example because the service was away for too long."""

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._variables,
            )

    def is_running(self) -> bool:
        return self._status() is None

    def has_succeeded(self) -> bool:
        return self._status() == 0

    def kill(self) -> bool:
        """Kill the process. Return False if it had ended before."""
        assert self._process is not None
        self._process.kill()
        return self._process.wait() == -signal.SIGKILL

    def start_if_failed(self) -> None:
        """Start the command again if it has failed."""
        status = self._status()
        if status == 1:
            self.failures += 1
            self.start()
        elif status:
            raise RuntimeError(f"the command ends with status {status}: {self.end_of_log()}")

    def finish(self) -> None:
        """Wait until the command succeeds, and start it again if it fails."""
        for _ in range(_MAX_STARTS):
            wait_until(lambda: not self.is_running(), 2 * TIMEOUT)
            if self.has_succeeded():
                return
            self.start_if_failed()
        raise RuntimeError(f"the command fails: {self.end_of_log()}")

    def end_of_log(self) -> str:
        return self._log.read_text()[-2000:]

    def _status(self) -> int | None:
        assert self._process is not None
        return self._process.poll()
