"""Stands for systemctl: runs the commands of real unit files as the user of the test.

It applies what decides how a unit is started, reloaded and stopped: ExecStart, ExecReload,
EnvironmentFile, StateDirectory, KillSignal and TimeoutStopSec. Isolation needs systemd itself;
``systemd-analyze`` checks those lines.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

ROOT = Path(os.environ["MACHINE_ROOT"])
RUN = ROOT / "run"
UNITS = (ROOT / "etc/systemd/system", ROOT / "lib/systemd/system")
INHERITED = ("PATH", "PYTHONPATH", "MACHINE_ROOT")
PAUSE_SECONDS = 0.02
START_SECONDS = 60


class Unit:
    """A unit file with its drop-in files."""

    def __init__(self, name: str) -> None:
        self.name = name.removesuffix(".service")
        self.pid_file = RUN / f"{self.name}.pid"
        self._lines: dict[str, list[str]] = defaultdict(list)
        for file in self._files():
            self._read(file)

    def _files(self) -> list[Path]:
        found = [path for folder in UNITS if (path := folder / f"{self.name}.service").exists()]
        if not found:
            sys.exit(f"Unit {self.name}.service not found.")
        return [found[0], *sorted((UNITS[0] / f"{self.name}.service.d").glob("*.conf"))]

    def _read(self, file: Path) -> None:
        """Adds the lines of a file. An empty value removes the earlier ones."""
        for line in file.read_text().replace("\\\n", " ").splitlines():
            if match := re.fullmatch(r"([\w-]+)=(.*)", line):
                name, value = match.groups()
                self._lines[name] = [*self._lines[name], value] if value else []

    def all(self, name: str) -> list[str]:
        return self._lines[name]

    def one(self, name: str, default: str) -> str:
        return (self._lines[name] or [default])[-1]

    def environment(self) -> dict[str, str]:
        """Variables of the unit, and nothing of the shell that starts it."""
        made = {name: os.environ[name] for name in INHERITED if name in os.environ}
        made["HOME"] = str(ROOT / "root")
        for file in self.all("EnvironmentFile"):
            for line in Path(file).read_text().splitlines():
                if line and not line.startswith("#"):
                    name, _, value = line.partition("=")
                    made[name] = " ".join(shlex.split(value))
        return made

    def pid(self) -> int | None:
        try:
            return int(self.pid_file.read_text())
        except FileNotFoundError:
            return None

    def supervise(self) -> None:
        """Runs the service until it ends; the process of this call does nothing else."""
        for folder in self.all("StateDirectory"):
            (ROOT / "var/lib" / folder).mkdir(parents=True, exist_ok=True, mode=0o700)
        with (RUN / f"{self.name}.log").open("ab") as log:
            command = shlex.split(self.one("ExecStart", ""))
            process = subprocess.Popen(
                command, env=self.environment(), cwd=ROOT, stdout=log, stderr=log
            )
        written = self.pid_file.with_suffix(".new")
        written.write_text(str(process.pid))
        written.rename(self.pid_file)
        status = process.wait()
        (RUN / f"{self.name}.status").write_text(str(status))
        self.pid_file.unlink()

    def start(self) -> None:
        if self.pid() is None:
            subprocess.Popen(
                [sys.executable, __file__, "supervise", self.name],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a reader of our output need not wait for the service
                stderr=subprocess.DEVNULL,
            )
            self._wait(self._has_started, START_SECONDS)

    def _has_started(self) -> bool:
        """Stands for sd_notify where a package uses it: the unit names the port to wait for."""
        if self.pid() is None:
            return False
        with socket.socket() as probe:
            port = int(self.one("X-Port", "0"))
            return not port or probe.connect_ex(("127.0.0.1", port)) == 0

    def stop(self) -> None:
        if pid := self.pid():
            os.kill(pid, getattr(signal, self.one("KillSignal", "SIGTERM")))
            self._wait(lambda: self.pid() is None, float(self.one("TimeoutStopSec", "90")))

    def restart(self) -> None:
        self.stop()
        self.start()

    def reload(self) -> None:
        for command in self.all("ExecReload"):
            words = [word.replace("$MAINPID", str(self.pid())) for word in shlex.split(command)]
            subprocess.run(words, check=True, env=self.environment())

    def enable(self) -> None:
        if "WantedBy" not in self._lines:
            sys.exit(f"Unit {self.name}.service has no section Install.")

    def is_active(self) -> None:
        print("inactive" if self.pid() is None else "active")
        sys.exit(3 if self.pid() is None else 0)

    def show(self) -> None:
        """Prints the process id, which is the only property that the guides ask for."""
        print(self.pid() or 0)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                sys.exit(f"{self.name}.service: nothing happened for {seconds} seconds.")
            time.sleep(PAUSE_SECONDS)


def main(verb: str, *words: str) -> None:
    if verb == "daemon-reload":
        return
    options = {"--now", "--property", "MainPID", "--value"}
    for name in words:
        if name not in options:
            unit = Unit(name)
            getattr(unit, verb.replace("-", "_"))()
            if "--now" in words:
                unit.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
