"""The service as a real process that can be killed, frozen and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import httpx2

from faults.processes import free_port, wait_until
from gleanery.service.foundation.security.tokens import SCOPES

SECRET_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
CLIENT_TIMEOUT = 60  # seconds; a request that takes longer counts as hanging
_NO_TLS = False  # loopback has no TLS; loading the certificates would take longer than a request
_OPTIONS = ("--log-level", "warning", "--sweep-seconds", "2", "--webhook-allow", "127.0.0.1")


def _command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def environment_variables() -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if "GLEANERY" not in name}
    return others | {"GLEANERY_SECRET_KEY": SECRET_KEY}


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gleanery", *arguments]


def create_token(storage: Sequence[str], organization: str) -> str:
    """Create a token with every scope. ``storage`` are the options that name the database."""
    options = ("--organization", organization, "--scopes", ",".join(SCOPES))
    command = command_line("token", "create", *options, *storage)
    return subprocess.check_output(command, env=environment_variables(), text=True).strip()


class Service:
    """``gleanery serve`` at one address, which a restart does not change."""

    organization = "a"

    def __init__(self, folder: Path, database: str | None, log: Path, *options: str) -> None:
        self.folder = folder
        self.log = log
        self._storage = ["--data", str(folder)] + (["--database", database] if database else [])
        self._port = free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._token = ""
        scheme = "https" if "--tls-cert" in options else "http"
        self.url = f"{scheme}://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("serve", "--port", str(self._port), *_OPTIONS, *self._options),
                stdout=log,
                stderr=log,
                env=environment_variables(),
            )
        wait_until(self._is_ready)

    def kill(self) -> None:
        if self._process is not None:
            workers = self.workers()
            self._process.kill()
            for pid in workers:
                with suppress(ProcessLookupError):  # it exited in the meantime
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self, seconds: float) -> int | None:
        """Stop the service in order. Return its status; None if that takes longer."""
        assert self._process is not None
        self._process.terminate()
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._process = None
        return status

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def workers(self) -> list[int]:
        """Return the worker processes of a supervisor; empty if one process does it all."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [
            int(pid)
            for pid in children
            if "gleanery.service.processes.worker" in _command_line(pid)
        ]

    @property
    def token(self) -> str:
        """Return a token with every scope, always the same."""
        self._token = self._token or self.create_token(self.organization)
        return self._token

    def client(self) -> httpx2.Client:
        """Return a client with every scope. All clients belong to one organization."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx2.Client(
            base_url=self.url, headers=headers, timeout=CLIENT_TIMEOUT, verify=_NO_TLS
        )

    def create_token(self, organization: str) -> str:
        return create_token(self._storage, organization)

    def status(self, path: str) -> int | None:
        """Return the status of a path that needs no token; None without a connection."""
        try:
            response = httpx2.get(self.url + path, timeout=CLIENT_TIMEOUT, verify=_NO_TLS)
            return int(response.status_code)
        except httpx2.TransportError:
            return None

    def internal_errors(self) -> set[str]:
        """Return the exceptions behind responses with the status 500."""
        lines = self.log.read_text(errors="replace").splitlines()
        found = [line for line in lines if '"internal error"' in line]
        return {json.loads(line)["exception"].splitlines()[-1] for line in found}

    def integrity_errors(self) -> str:
        """Return what SQLite's integrity checks report; empty if the database is sound."""
        connection = apsw.Connection(
            str(self.folder / "gleanery.sqlite"), flags=apsw.SQLITE_OPEN_READWRITE
        )
        try:
            rows: list[Any] = connection.execute("PRAGMA integrity_check").fetchall()
            rows += connection.execute("PRAGMA foreign_key_check").fetchall()
        finally:
            connection.close()
        return "" if rows == [("ok",)] else str(rows)

    def _command(self, *arguments: str) -> list[str]:
        return command_line(*arguments, *self._storage)

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the service exited: {self.log.read_text()[-2000:]}")
        return self.status("/readyz") == 200
