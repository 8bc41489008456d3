"""Fixtures: both engines, a service on each, and clients."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from faults.processes import end_children_with_this_process
from gleanery.common.settings import Settings
from tests.support import suites
from tests.support.citus import citus_server, citus_workers
from tests.support.pgbouncer import pooled_server
from tests.support.postgres_server import PostgresServer, postgres_server
from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.s3 import Bucket

ENGINES = ("sqlite", "postgres")

# Under nohup the programs that the tests start would ignore SIGHUP, too. A handler is not
# inherited by them.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


# Servers would outlive a run that is interrupted or killed.
end_children_with_this_process()

# Most of what the collection creates lives until the end: looking for garbage in it takes seconds.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    suites.mark(items)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return suites.is_ignored(collection_path, config) or None


def pytest_report_header() -> str | None:
    if missing := suites.missing():
        return f"tests/integrations is left out without {', '.join(missing)}: see make extended"
    return None


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server; with GLEANERY_TEST_POOLING (session or transaction) it is behind PgBouncer.

    With GLEANERY_TEST_CITUS it is the coordinator of that many workers.
    """
    pool_mode = os.environ.get("GLEANERY_TEST_POOLING")
    servers: AbstractContextManager[Any]
    if workers := citus_workers():
        servers = citus_server(workers)
    else:
        servers = pooled_server(pool_mode) if pool_mode else postgres_server()
    with servers as server:
        yield cast(PostgresServer, server)


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def settings(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Settings of a service on this engine, over an empty database."""
    return fresh_settings(engine, request, tmp_path_factory.mktemp(engine))


@pytest.fixture(scope="session")
def service(settings: Settings) -> Iterator[Service]:
    """One service per engine. Each test has its own organization in it.

    It stops soon, although a test may have left a request open.
    """
    running = Service(replace(settings, shutdown_seconds=1))
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def shared_service_is_ready(request: pytest.FixtureRequest) -> None:
    """Wait if a test before has added a migration to this process: the service has noticed it."""
    if "service" in request.fixturenames:
        service: Service = request.getfixturevalue("service")
        wait_until(lambda: service.is_ready)


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
    """A service whose clock the test moves, after the first sweep has read it.

    A sweep that read an earlier time would delete what is used now, as if from the future.
    """
    running = Service(fresh_settings(engine, request, tmp_path / "service"), clock)
    wait_until(lambda: clock.sweep_readings >= 2)  # one at the start, one of the first sweep
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
    """A client of a service that sweeps all the time, and whose clock the test moves."""
    settings = replace(fresh_settings(engine, request, tmp_path), sweep_seconds=0.1)
    service = Service(settings, clock)
    with service.client() as made:
        yield made
    service.stop()


@pytest.fixture(scope="session", params=["folder", pytest.param("s3", marks=pytest.mark.thorough)])
def blob_store(request: pytest.FixtureRequest) -> str:
    """Kind of the store that holds the bytes of files."""
    return str(request.param)


@pytest.fixture(scope="session")
def bucket() -> Iterator[Bucket]:
    from tests.support.s3 import Bucket  # takes a second to import

    made = Bucket()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def bucket_or_none(blob_store: str, request: pytest.FixtureRequest) -> Bucket | None:
    """The bucket, where the store is S3."""
    found: Bucket | None = request.getfixturevalue("bucket") if blob_store == "s3" else None
    return found
