"""PgBouncer for tests, in front of a PostgreSQL server."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.postgres_versions import (
    InstalledServer,
    give_to_server_user,
    installed,
    server_of_version,
    server_user,
)
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

_PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
_PORT = 6432  # a part of the socket's name; there is no TCP port
_CONFIGURATION = """
[databases]
* = host={server}
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users
admin_users = postgres
pool_mode = {pool_mode}
default_pool_size = {pool_size}
max_client_conn = 500
max_prepared_statements = {max_prepared_statements}
server_idle_timeout = 10
log_connections = 0
log_disconnections = 0
"""


class PgBouncer:
    """A pooler that listens on a Unix socket only."""

    def __init__(self, server: InstalledServer, folder: Path, pool_mode: str) -> None:
        self.server = server
        self.pool_mode = pool_mode
        self._folder = folder

    @property
    def socket(self) -> Path:
        return self._folder / f".s.PGSQL.{_PORT}"

    def url(self, direct: str) -> str:
        """The URL of a database through the pooler, from its direct URL."""
        return direct.replace(f"host={self.server.folder}", f"host={self._folder}&port={_PORT}")

    def settings(self, direct: str) -> dict[str, Any]:
        """Settings of a service that uses this database through the pooler."""
        through = {"database": self.url(direct), "pooling": self.pool_mode}
        if self.pool_mode == "transaction":
            through["listen_database"] = direct
        return through

    def change(self, **settings: object) -> None:
        """Changes settings of the pooler while it runs."""
        file = self._folder / "pgbouncer.ini"
        text = file.read_text()
        for name, value in settings.items():
            text = re.sub(f"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        file.write_text(text)
        asyncio.run(self._reload())

    async def _reload(self) -> None:
        console: Any = await asyncpg.connect(self.url(self.server.url("pgbouncer")))
        await console.execute("RELOAD")
        console.terminate()


@contextmanager
def pgbouncer(
    server: InstalledServer,
    pool_mode: str,
    pool_size: int = 2,
    max_prepared_statements: int = 200,
) -> Iterator[PgBouncer]:
    """Runs PgBouncer in front of the server. Skips the test where it is not installed."""
    program = shutil.which("pgbouncer", path=_PATH)
    if program is None:
        pytest.skip("needs PgBouncer 1.21 or newer: apt-get install pgbouncer")
    folder = server.folder / f"pgbouncer-{pool_mode}-{pool_size}-{max_prepared_statements}"
    folder.mkdir()
    give_to_server_user(folder)
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "pgbouncer.ini").write_text(
        _CONFIGURATION.format(
            server=server.folder,
            folder=folder,
            port=_PORT,
            pool_mode=pool_mode,
            pool_size=pool_size,
            max_prepared_statements=max_prepared_statements,
        )
    )
    log = (folder / "log").open("wb")
    command = [program, str(folder / "pgbouncer.ini")]
    process = subprocess.Popen(command, stdout=log, stderr=log, user=server_user(), cwd=folder)
    try:
        running = PgBouncer(server, folder, pool_mode)
        wait_until(lambda: process.poll() is not None or running.socket.exists())
        assert process.poll() is None, (folder / "log").read_text()
        yield running
    finally:
        process.kill()  # it would wait for its clients after another signal
        process.wait(TIMEOUT_SECONDS)
        log.close()
        shutil.rmtree(folder)


class PooledServer:
    """A server whose databases are used through a pooler; takes the place of ``PostgresServer``."""

    def __init__(self, pooler: PgBouncer) -> None:
        self._pooler = pooler
        self.run = pooler.server.run
        self.log = pooler.server.log

    def new_database(self, owner: str = "postgres") -> str:
        """Creates an empty database and returns its URL through the pooler."""
        return self._pooler.url(self._pooler.server.new_database(owner))

    def settings(self, url: str) -> dict[str, Any]:
        """Settings of a service that uses the database of this URL."""
        direct = f"{url.partition('?')[0]}?host={self._pooler.server.folder}"
        return self._pooler.settings(direct)


@contextmanager
def pooled_server(pool_mode: str) -> Iterator[PooledServer]:
    """Runs the newest server that is installed, behind PgBouncer."""
    pool_size = 4 if pool_mode == "transaction" else 60
    with (
        server_of_version(max(installed())) as server,
        pgbouncer(server, pool_mode, pool_size) as pooler,
    ):
        yield PooledServer(pooler)
