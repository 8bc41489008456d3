"""A service whose primary is silent, restarts or becomes another server."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from faults import programs
from faults.environment import Environment, open_environment
from faults.pgbouncer import PgBouncer, start_pgbouncer
from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.processes.start import prepare
from gleanery.service.storage.database import Engine, Transaction
from gleanery.service.storage.engines import open_engine
from tests.support.outputs import output
from tests.support.replicas import Standby, settings_of
from tests.support.service import Client, Service
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.extended


@pytest.fixture
def environment() -> Iterator[Environment]:
    with open_environment() as made:  # it ends the servers
        yield made


@pytest.fixture
def standby(environment: Environment) -> Standby:
    primary, server = environment.start_server(), environment.new_server()
    server.start_as_standby_of(primary)
    return Standby(primary, server)


def with_hosts(settings: Settings, *addresses: str, query: str = "") -> Settings:
    return replace(
        settings, database=f"postgresql://postgres@{','.join(addresses)}/gleanery{query}"
    )


def status(client: Client, path: str = "/v1/outputs/group") -> int:
    return client.get(path).status_code


def write_status(client: Client) -> int:
    return client.post("/v1/outputs/group", json=[output(100)]).status_code


# --- a silent host ------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "?target_session_attrs=read-write"])
def test_a_silent_host_is_passed_over_and_then_left_for_last(
    environment: Environment, tmp_path: Path, query: str
) -> None:
    server = environment.start_server()
    settings = settings_of(tmp_path, server)
    asyncio.run(prepare(settings))

    async def notify(transaction: Transaction) -> None:
        await transaction.notify("channel")

    async def use(through: Settings) -> None:
        async with open_engine(through) as engine, engine.subscribe("channel") as subscription:
            started = time.monotonic()
            reads = (engine.read("SELECT pg_sleep(0.2)") for _ in range(5))  # new connections
            await asyncio.gather(*reads)
            assert time.monotonic() - started < 1.5
            await engine.write(notify)
            assert await subscription.wait(TIMEOUT_SECONDS)

    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and sends nothing
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        asyncio.run(use(with_hosts(settings, address, server.address, query=query)))
        asyncio.run(use(with_hosts(settings, server.address, address, query=query)))


def test_hosts_in_the_query_of_the_url_are_tried_one_by_one(
    environment: Environment, tmp_path: Path
) -> None:
    server = environment.start_server()
    settings = settings_of(tmp_path, server)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ports = f"{silent.getsockname()[1]},{server.port}"
        url = f"postgresql://postgres@/gleanery?host=127.0.0.1,127.0.0.1&port={ports}"
        asyncio.run(prepare(replace(settings, database=url)))


def test_the_new_primary_is_found_when_the_old_one_falls_silent(
    standby: Standby, tmp_path: Path
) -> None:
    """All connections are to the old primary, and are tried only once, at the same time."""
    addresses = (standby.primary.address, standby.server.address)
    settings = with_hosts(settings_of(tmp_path, standby.primary, pool_size=4), *addresses)
    service = Service(settings)
    with service.client() as client:
        client.store("group", *(output(n, data={"x": "y" * 200}) for n in range(500)))
        open_connections(service, client)
        standby.catch_up()
        standby.primary.freeze()
        try:
            standby.server.promote()
            started = time.monotonic()
            wait_until(lambda: status(client) == 200)
            assert time.monotonic() - started < 50  # a statement may take 30 seconds
            assert write_status(client) == 200
            assert status(client, "/readyz") == 200
        finally:
            standby.primary.resume()
            standby.primary.kill()
    service.stop()


def open_connections(service: Service, client: Client) -> None:
    """Makes many requests at once, of several tenants."""
    tokens = [client.token, *(service.token() for _ in range(3))]

    def read(token: str | None) -> None:
        with Client(service.url, token) as one:
            for _ in range(10):
                one.get("/v1/outputs/group", params={"limit": 200})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, tokens * 2))


# --- a standby in the place of the primary ------------------------------------------------------


def test_a_standby_is_not_used_while_the_primary_restarts(standby: Standby, tmp_path: Path) -> None:
    addresses = (standby.primary.address, standby.server.address)
    service = Service(with_hosts(settings_of(tmp_path, standby.primary), *addresses))
    with service.client() as client:
        client.store("group", *(output(n) for n in range(3)))
        standby.pause()
        client.store("group", output(3))
        standby.primary.stop()
        for _ in range(3):
            assert status(client) == write_status(client) == status(client, "/readyz") == 503
        standby.primary.start()
        wait_until(lambda: status(client, "/readyz") == 200)
        assert len(client.items("group")) == 4
        assert write_status(client) == 200
    service.stop()


@pytest.mark.parametrize("query", ["", "?target_session_attrs=read-write"])
def test_a_start_on_a_standby_is_refused(standby: Standby, tmp_path: Path, query: str) -> None:
    asyncio.run(prepare(settings_of(tmp_path, standby.primary)))
    standby.catch_up()
    settings = with_hosts(
        settings_of(tmp_path, standby.primary), standby.server.address, query=query
    )
    with pytest.raises(SettingsError, match="is a standby, or read only") as raised:
        asyncio.run(prepare(settings))
    assert standby.server.address in str(raised.value)


@pytest.fixture
def pooler(environment: Environment, standby: Standby) -> PgBouncer:
    if programs.pgbouncer() is None:
        pytest.skip(programs.NEEDS_PGBOUNCER)
    return start_pgbouncer(environment, standby.primary)


@pytest.fixture
def pooled(standby: Standby, pooler: PgBouncer, tmp_path: Path) -> Iterator[Service]:
    settings = settings_of(
        tmp_path, standby.primary, pooling="transaction", listen_database=standby.primary.url()
    )
    running = Service(replace(settings, database=pooler.url()))
    yield running
    running.stop()


def test_a_pooler_that_moves_to_a_standby_is_not_used(
    standby: Standby, pooler: PgBouncer, pooled: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """The connections to the pooler stay open, and their servers change."""
    with pooled.client() as client:
        client.store("group", *(output(n) for n in range(3)))
        standby.catch_up()
        pooler.move_to(standby.server)
        wait_until(lambda: status(client, "/readyz") == 503)
        wait_until(lambda: status(client) == 503)
        assert write_status(client) == 503
        wait_until(lambda: any("is a standby" in reason for reason in reasons(caplog)))
        pooler.move_to(standby.primary)
        wait_until(lambda: status(client, "/readyz") == 200)
        assert len(client.items("group")) == 3
        assert write_status(client) == 200


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(record.__dict__.get("reason")) for record in caplog.records]


# --- what the log says --------------------------------------------------------------------------


def test_the_reason_is_the_servers_when_it_stops_behind_a_pooler(
    standby: Standby, pooler: PgBouncer, tmp_path: Path
) -> None:
    """The log of the service has this reason."""
    settings = replace(
        settings_of(tmp_path, standby.primary, pooling="transaction"), database=pooler.url()
    )

    async def reason(engine: Engine) -> str | None:
        with pytest.raises(Unavailable) as raised:
            await engine.read("SELECT 1")
        return raised.value.reason

    async def use() -> list[str | None]:
        async with open_engine(settings) as engine:
            await asyncio.gather(*(engine.read("SELECT pg_sleep(0.2)") for _ in range(4)))
            await asyncio.to_thread(standby.primary.stop)
            return await asyncio.gather(*(reason(engine) for _ in range(4)))

    found = asyncio.run(use())
    assert all(each and "terminate" not in each for each in found), found
