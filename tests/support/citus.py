"""PostgreSQL with Citus for tests: a coordinator and its workers, which hold the shards."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from gleanery.common.settings import Settings
from gleanery.service.storage.engines import create_engine
from gleanery.service.storage.postgres.database import PostgresDatabase
from tests.support.postgres_versions import InstalledServer, installed, server_of_programs

VARIABLE = "GLEANERY_TEST_CITUS"
"""Number of workers; the tests then use a distributed database as their PostgreSQL."""
_PORT = 5432  # a part of the socket's name; there is no TCP port
_OPTIONS = (
    "shared_preload_libraries=citus",
    "citus.shard_count=2",  # fewer than in operation, because every test creates them
    "citus.node_conninfo=sslmode=prefer",
    "max_prepared_transactions=100",
    "citus.enable_statistics_collection=off",
)


def citus_programs() -> Path:
    """The folder of a PostgreSQL with Citus. Skips the test where there is none."""
    for folder in installed().values():
        program = folder / "pg_config"
        if not program.exists():
            continue
        command = [str(program), "--pkglibdir"]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        if Path(told.stdout.strip(), "citus.so").exists():
            return folder
    pytest.skip("needs PostgreSQL with Citus 13, below /usr/lib/postgresql")


class CitusServer:
    """A coordinator and its workers; takes the place of ``PostgresServer``."""

    def __init__(self, coordinator: InstalledServer, workers: Sequence[InstalledServer]) -> None:
        self.coordinator = coordinator
        self.workers = workers
        self.run = coordinator.run
        self.log = coordinator.log
        self.socket_folder = coordinator.socket_folder

    def dump(self, url: str, *options: str) -> bytes:
        """Output of pg_dump for a database."""
        command = [str(citus_programs() / "pg_dump"), url, *options]
        return subprocess.run(command, capture_output=True, check=True).stdout

    def load(self, url: str, dump: bytes) -> None:
        """Loads a dump into an empty database; every statement must succeed."""
        command = [str(citus_programs() / "psql"), url, "--quiet", "--set", "ON_ERROR_STOP=1"]
        subprocess.run(command, input=dump, capture_output=True, check=True)

    def new_user(self, rights: str) -> str:
        """Creates a user on every server, without superuser rights, and returns the name."""
        name = self.coordinator.new_user(rights)
        for worker in self.workers:
            worker.run(f"CREATE ROLE {name} LOGIN {rights}")
        return name

    def settings(self, url: str) -> dict[str, Any]:
        """Settings of a service that uses the database of this URL."""
        return {"database": url}

    def empty_database(self, owner: str = "postgres") -> str:
        """Creates an empty database with Citus on every server and returns the owner's URL."""
        url = self.coordinator.new_database(owner)
        name = urlsplit(url).path.lstrip("/")
        for worker in self.workers:
            worker.run(f"CREATE DATABASE {name} OWNER {owner}")
        for server in (self.coordinator, *self.workers):
            execute(server.url(name), "CREATE EXTENSION citus")
        host = self.coordinator.folder
        direct = self.coordinator.url(name)
        execute(direct, f"SELECT citus_set_coordinator_host('{host}', {_PORT})")
        for worker in self.workers:
            execute(direct, f"SELECT citus_add_node('{worker.folder}', {_PORT})")
        return url

    def new_database(self, owner: str = "postgres") -> str:
        """Creates a distributed database and returns its URL."""
        assert owner == "postgres", "the tests of other owners use a server without Citus"
        url = self.empty_database()
        asyncio.run(distribute(url))
        return url


def execute(url: str, sql: str) -> list[Any]:
    """Runs one statement as the superuser."""

    async def run() -> list[Any]:
        connection: Any = await asyncpg.connect(url)
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()

    return asyncio.run(run())


async def distribute(url: str) -> None:
    """Does what ``gleanery migrate --distribute`` does."""
    engine = create_engine(Settings(database=url))
    assert isinstance(engine, PostgresDatabase)
    await engine.open()
    try:
        await engine.migrate()
        await engine.distribute()
    finally:
        await engine.close()


@contextmanager
def citus_server(workers: int = 2, *options: str) -> Iterator[CitusServer]:
    """Runs a coordinator and workers. Skips the test where Citus is not installed.

    ``options`` are further settings of the servers, such as ``fsync=on``.
    """
    programs = citus_programs()
    with ExitStack() as stack:
        coordinator, *others = (
            stack.enter_context(server_of_programs(programs, *_OPTIONS, *options))
            for _ in range(workers + 1)
        )
        yield CitusServer(coordinator, others)


def citus_workers() -> int:
    """The number of workers that the environment asks for; 0: the tests run without Citus."""
    return int(os.environ.get(VARIABLE, "0"))
