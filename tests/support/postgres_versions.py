"""PostgreSQL servers of every version that is installed on this machine."""

from __future__ import annotations

import asyncio
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.postgres_server import programs_folder
from tests.support.waiting import wait_until

SUPPORTED = (15, 16, 17, 18)
FOLDERS_VARIABLE = "GLEANERY_TEST_POSTGRES"
"""Names further folders of programs (``…/bin``), separated by colons."""
_DEBIAN = Path("/usr/lib/postgresql")
_USERS = ("postgres", "pgserver", "nobody")
_INITDB = ("-U", "postgres", "-E", "UTF8", "-A", "trust", "--no-locale", "--no-sync")
_OPTIONS = ("listen_addresses=", "fsync=off", "full_page_writes=off", "max_connections=400")

_numbers = itertools.count(1)


@cache
def installed() -> dict[int, Path]:
    """The folder of the programs of each version: named, from the wheel, or from Debian."""
    named = os.environ.get(FOLDERS_VARIABLE, "").split(":")
    wheel = sorted(programs_folder().parent.parent.glob("*/bin"))
    folders = [*(Path(name) for name in named if name), *wheel, *sorted(_DEBIAN.glob("*/bin"))]
    found: dict[int, Path] = {}
    for folder in folders:
        if (folder / "initdb").exists():
            found.setdefault(_version(folder), folder)
    return found


def _version(folder: Path) -> int:
    told = subprocess.run([folder / "postgres", "-V"], capture_output=True, text=True, check=True)
    return int(told.stdout.split()[2].partition(".")[0])


@contextmanager
def server_of_version(version: int, *options: str) -> Iterator[InstalledServer]:
    """Runs a server of this version. Skips the test where the version is not installed.

    ``options`` are further settings of the server, such as ``work_mem=1MB``.
    """
    programs = installed().get(version)
    if programs is None:
        pytest.skip(
            f"needs PostgreSQL {version}: install it, and name its folder of programs in "
            f"{FOLDERS_VARIABLE} if it is not below {_DEBIAN}"
        )
    with server_of_programs(programs, *options) as server:
        yield server


@contextmanager
def server_of_programs(programs: Path, *options: str) -> Iterator[InstalledServer]:
    """Runs a server of the programs in this folder."""
    with tempfile.TemporaryDirectory(prefix="gleanery-pg-") as name:
        folder = Path(name)
        give_to_server_user(folder)
        server = InstalledServer(programs, folder, options)
        try:
            yield server
        finally:
            server.stop()


def server_user() -> str | None:
    """The user who runs servers, because PostgreSQL and PgBouncer refuse root."""
    if os.getuid():
        return None
    known = {user.pw_name for user in pwd.getpwall()}
    return next(name for name in _USERS if name in known)


def give_to_server_user(folder: Path) -> None:
    if user := server_user():
        shutil.chown(folder, user)


class InstalledServer:
    """A server that listens on a Unix socket only."""

    def __init__(self, programs: Path, folder: Path, options: tuple[str, ...]) -> None:
        self.folder = folder
        data = folder / "data"
        subprocess.run(
            [programs / "initdb", "-D", data, *_INITDB],
            check=True,
            capture_output=True,
            user=server_user(),
            cwd=folder,
        )
        settings = [part for option in (*_OPTIONS, *options) for part in ("-c", option)]
        self._command = [programs / "postgres", "-D", data, "-k", folder, *settings]
        self.start()

    def start(self) -> None:
        """Starts the server, also again after ``stop``."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, user=server_user(), cwd=self.folder
            )
        wait_until(self._has_started)

    def _has_started(self) -> bool:
        assert self._process.poll() is None, self.log().decode(errors="replace")
        try:
            self.run("SELECT 1")
        except (OSError, asyncpg.CannotConnectNowError):
            return False
        return True

    @property
    def socket_folder(self) -> str:
        """Folder of the Unix socket, which is the host in a URL."""
        return str(self.folder)

    def settings(self, url: str) -> dict[str, Any]:
        """Settings of a service that uses the database of this URL."""
        return {"database": url}

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}:@/{database}?host={self.folder}"

    def new_database(self, owner: str = "postgres") -> str:
        """Creates an empty database and returns its URL."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE DATABASE {name} OWNER {owner}")
        return self.url(name, owner)

    def new_user(self, rights: str) -> str:
        """Creates a user with these rights, without superuser rights, and returns the name."""
        name = f"user_{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE ROLE {name} LOGIN {rights}")
        return name

    def run(self, sql: str) -> list[Any]:
        """Runs one statement as the superuser."""

        async def run() -> list[Any]:
            connection: Any = await asyncpg.connect(self.url("postgres"))
            try:
                return list(await connection.fetch(sql))
            finally:
                await connection.close()

        return asyncio.run(run())

    def freeze(self) -> None:
        """Suspends all processes of the server, so that it keeps its connections and hangs."""
        self._send_to_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continues after ``freeze``."""
        self._send_to_all(signal.SIGCONT)

    def _send_to_all(self, number: signal.Signals) -> None:
        first = self._process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for process in (first, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def log(self) -> bytes:
        """Log of the server."""
        return (self.folder / "log").read_bytes()

    def stop(self) -> None:
        """Stops the server without a last checkpoint: its data is removed anyway."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
