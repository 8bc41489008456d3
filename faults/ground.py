"""What every fault is tried on: a folder, PostgreSQL servers, and services as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import apsw
import httpx2

from faults.servers import PostgresServer, free_port, until
from gleanery.security.tokens import SCOPES

ROOT = Path(__file__).parent.parent
SECRET_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
LONGEST = 60  # seconds that a client of ours waits: one that waits so long was left hanging
_NO_TLS = False  # nothing is encrypted on loopback; to load certificates takes longer than to ask
_OPTIONS = ("--log-level", "warning", "--sweep-seconds", "2")


def _command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if "GLEANERY" not in name}
    return kept | {"GLEANERY_SECRET_KEY": SECRET_KEY}


class Service:
    """``gleanery serve`` at one address, however often it is killed and started again."""

    def __init__(self, folder: Path, database: str | None, log: Path, *options: str) -> None:
        self.folder = folder
        self._log = log
        self._where = ["--data", str(folder)] + (["--database", database] if database else [])
        self._port = free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._token = ""
        self.url = f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("serve", "--port", str(self._port), *_OPTIONS, *self._options),
                stdout=log,
                stderr=log,
                env=_environment(),
            )
        until(self._is_ready)

    def kill(self) -> None:
        if self._process is not None:
            workers = self.workers()
            self._process.kill()
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def workers(self) -> list[int]:
        """The processes that a supervisor has started to serve; none if there is but one."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(pid) for pid in children if "spawn_main" in _command_line(pid)]

    def client(self) -> httpx2.Client:
        """With every scope, of one and the same organization."""
        if not self._token:
            made = self._command("token", "create", "--organization", "a", "--scopes")
            command = [*made, ",".join(SCOPES)]
            self._token = subprocess.check_output(command, env=_environment(), text=True).strip()
        headers = {"Authorization": f"Bearer {self._token}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=LONGEST, verify=_NO_TLS)

    def status(self, path: str) -> int | None:
        """What a path that needs no token answers; None if nothing does."""
        try:
            return int(httpx2.get(self.url + path, timeout=LONGEST, verify=_NO_TLS).status_code)
        except httpx2.TransportError:
            return None

    def log(self) -> str:
        return self._log.read_text()

    def faults_found(self) -> str:
        """What SQLite's own checker finds in the embedded database; nothing if all is well."""
        connection = apsw.Connection(
            str(self.folder / "gleanery.sqlite"), flags=apsw.SQLITE_OPEN_READWRITE
        )
        try:
            found: list[Any] = connection.execute("PRAGMA integrity_check").fetchall()
            found += connection.execute("PRAGMA foreign_key_check").fetchall()
        finally:
            connection.close()
        return "" if found == [("ok",)] else str(found)

    def _command(self, name: str, *arguments: str) -> list[str]:
        if name == "token":
            command, *rest = arguments
            return [sys.executable, "-m", "gleanery", name, command, *self._where, *rest]
        return [sys.executable, "-m", "gleanery", name, *self._where, *arguments]

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the service has ended: {self.log()[-2000:]}")
        return self.status("/readyz") == 200


class Ground:
    """Gives out what is asked for, and clears it away at the end."""

    def __init__(self, folder: Path, closing: ExitStack) -> None:
        self._root, self._closing = folder, closing
        self._made = 0

    def folder(self, name: str) -> Path:
        """The place for one; it is not made yet."""
        self._made += 1
        return self._root / f"{self._made}-{name}"

    def server(self, folder: Path | None = None) -> PostgresServer:
        """Not made yet, either."""
        server = PostgresServer(folder or self.folder("postgres"), self.folder("log"))
        self._closing.callback(server.kill)
        return server

    def made_server(self) -> PostgresServer:
        server = self.server()
        server.make()
        return server

    def service(self, database: str | None, *options: str, folder: Path | None = None) -> Service:
        """Serving, on PostgreSQL if a URL is given."""
        if folder is None:
            folder = self.folder("data")
            folder.mkdir()
        service = Service(folder, database, self.folder("log"), *options)
        self._closing.callback(service.kill)
        service.start()
        return service

    def enter(self, context: Any) -> Any:
        """Enters a context that is left when all is cleared away."""
        return self._closing.enter_context(context)


@contextmanager
def ground() -> Iterator[Ground]:
    with tempfile.TemporaryDirectory(prefix="gleanery-faults-") as made, ExitStack() as closing:
        folder = Path(made)
        folder.chmod(0o755)  # PostgreSQL reaches through it under another name
        yield Ground(folder, closing)
