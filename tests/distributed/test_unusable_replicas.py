"""Replicas that must not be read, and what the log says about them."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.environment import Environment, open_environment
from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import restore
from gleanery.service.processes.start import prepare
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.postgres.database import PostgresDatabase
from gleanery.service.storage.postgres.tenants import SessionScope, TenantScope, TransactionScope
from tests.support.forwarder import Address, Forwarder
from tests.support.outputs import output
from tests.support.replicas import Standby, metric, settings_of, wait_for_usable
from tests.support.service import Client, Service
from tests.support.waiting import wait_until

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


Run = Callable[..., Client]


@pytest.fixture
def run() -> Iterator[Run]:
    """Starts a service, and returns a client with a token."""
    services: list[Service] = []

    def start(settings: Settings, token: str | None = None) -> Client:
        services.append(Service(settings))
        return services[-1].client(token)

    yield start
    for service in services:
        service.stop()


def numbers(client: Client, group: str = "group") -> list[int]:
    """The numbers of the outputs, from pages of which all but the last can be a replica's."""
    return sorted(item["data"]["number"] for item in client.items(group, limit=1))


# --- one request, one server --------------------------------------------------------------------


class Balancer(Forwarder):
    """One address for several servers, which get the connections in turn."""

    def __init__(self, *ports: int) -> None:
        self._ports, self._next = ports, 0
        super().__init__(("127.0.0.1", ports[0]))

    @property
    def target(self) -> Address:
        self._next += 1
        return "127.0.0.1", self._ports[self._next % len(self._ports)]

    @target.setter
    def target(self, _: Address) -> None:
        pass


def test_all_statements_of_a_request_ask_the_same_server(
    environment: Environment, standby: Standby, tmp_path: Path
) -> None:
    other = environment.new_server()
    other.start_as_standby_of(standby.primary)
    asyncio.run(prepare(settings_of(tmp_path, standby.primary)))
    balancer = Balancer(standby.server.port, other.port)
    balancer.start()
    Standby(standby.primary, other).catch_up()
    standby.catch_up()
    url = f"postgresql://postgres@127.0.0.1:{balancer.port}/gleanery"

    async def use() -> None:
        engine = PostgresDatabase(standby.primary.url(), 6, replica_urls=[url])
        await engine.open()
        try:
            await wait_for_replica(engine)
            ports = await asyncio.gather(*(ports_of_request(engine, n) for n in range(1, 5)))
        finally:
            await engine.close()
        assert all(len(used) == 1 for used in ports)
        assert set.union(*ports) == {standby.server.port, other.port}

    try:
        asyncio.run(use())
    finally:
        balancer.stop()


async def wait_for_replica(engine: PostgresDatabase) -> None:
    def is_usable() -> bool:
        return any(state.is_usable for state in engine.replica_states)

    await asyncio.to_thread(wait_until, is_usable)


async def ports_of_request(engine: PostgresDatabase, organization_id: int) -> set[int]:
    """The ports of the servers that answer the statements of one request."""
    replica = engine.for_replica(organization_id)
    assert replica is not None
    ports = set()
    async with replica as database:
        for _ in range(20):
            ports.add((await database.read("SELECT inet_server_port()"))[0][0])
            await asyncio.sleep(0)  # the other requests run
    return ports


# --- another history ----------------------------------------------------------------------------


def test_a_replica_of_the_old_timeline_is_left_out_after_a_failover(
    environment: Environment,
    standby: Standby,
    run: Run,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The replica has changes that the new primary lacks, because that was behind."""
    primary, replica, successor = standby.primary, standby.server, environment.new_server()
    successor.start_as_standby_of(primary)
    client = run(settings_of(tmp_path, primary))
    client.store("group", *(output(n) for n in range(3)))
    Standby(primary, successor).catch_up()
    successor.stop()
    client.store("group", *(output(n) for n in range(100, 103)))
    standby.catch_up()
    primary.kill()
    successor.start()
    successor.promote()
    again = run(settings_of(tmp_path, successor, replica.url()), client.token)
    wait_for_reason(caplog, "it is on timeline 1, and the primary on 2")
    assert numbers(again) == [0, 1, 2]
    assert metric(again, "gleanery_replicas_usable") == 0


def test_a_replica_is_used_again_when_it_follows_the_new_primary(
    environment: Environment, standby: Standby, run: Run, tmp_path: Path
) -> None:
    primary, replica, successor = standby.primary, standby.server, environment.new_server()
    successor.start_as_standby_of(primary)
    asyncio.run(prepare(settings_of(tmp_path, primary)))
    Standby(primary, successor).catch_up()
    standby.catch_up()
    primary.kill()
    successor.promote()
    client = run(settings_of(tmp_path, successor, replica.url()))
    replica.run(
        f"ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port={successor.port} user=postgres'"
    )
    replica.run("SELECT pg_reload_conf()")
    successor.run("CHECKPOINT")
    Standby(successor, replica).catch_up()
    replica.run("CHECKPOINT")
    wait_for_usable(client, 1)


def test_a_replica_of_another_primary_is_left_out(
    environment: Environment,
    standby: Standby,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    run: Run,
) -> None:
    asyncio.run(prepare(settings_of(tmp_path, standby.primary)))
    standby.catch_up()
    run(settings_of(tmp_path, environment.start_server(), standby.server.url()))
    wait_for_reason(caplog, "it is not a copy of the primary")


def test_a_replica_without_the_last_restore_is_left_out(
    standby: Standby, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(
        tmp_path, standby.primary, standby.server.url(), max_replica_lag_seconds=600
    )
    client = run(settings_of(tmp_path, standby.primary))
    client.store("group", *(output(n) for n in range(4)))
    standby.pause()

    async def complete_restore() -> None:
        async with open_engine(settings) as engine:
            await restore.complete_restore(engine, timestamps.now, lambda *_: lambda _: None)

    asyncio.run(complete_restore())
    again = run(settings, client.token)
    wait_for_reason(caplog, "it does not have the last gleanery restored yet")
    assert feed_numbers(again) == [0, 1, 2, 3]
    standby.resume()
    wait_for_usable(again, 1)
    assert feed_numbers(again) == [0, 1, 2, 3]


def feed_numbers(client: Client) -> list[int]:
    """The numbers of a whole feed, from its start, in steps of one change."""
    found, cursor = [], 0
    while True:
        answer = client.get("/v1/changes/group", params={"limit": 1, "cursor": cursor})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += [change["output"]["data"]["number"] for change in page["changes"]]
        cursor = page["cursor"]
        if page["metadata"]["next_cursor"] is None:
            return found


def test_a_replica_that_is_too_far_behind_is_left_out(
    standby: Standby, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = run(
        settings_of(tmp_path, standby.primary, standby.server.url(), max_replica_lag_seconds=1)
    )
    client.store("group", *(output(n) for n in range(3)))
    standby.pause()
    wait_for_usable(client, 1)
    client.delete("/v1/groups/group")
    wait_for_reason(caplog, "further behind the primary than --max-replica-lag-seconds")
    assert client.get("/v1/outputs/group", params={"limit": 1}).status_code == 404
    standby.resume()
    wait_for_usable(client, 1)


# --- servers that do not work -------------------------------------------------------------------


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        str(record.__dict__["reason"])
        for record in caplog.records
        if record.message == "the server of --replica is left out"
    ]


def wait_for_reason(caplog: pytest.LogCaptureFixture, text: str) -> None:
    wait_until(lambda: any(text in reason for reason in reasons(caplog)))


def test_a_user_who_bypasses_row_level_security_is_refused(
    standby: Standby, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = standby.server.url().replace("postgres@", "reader@")
    standby.primary.run("CREATE ROLE reader LOGIN BYPASSRLS; GRANT pg_read_all_data TO reader")
    client = run(settings_of(tmp_path, standby.primary, reader))
    wait_for_reason(caplog, "bypasses row-level security")
    assert "give --replica another user" in reasons(caplog)[-1]
    assert metric(client, "gleanery_replicas_usable") == 0


def test_a_server_that_never_works_is_reported_once(
    standby: Standby, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = "postgresql://user:secret-word@127.0.0.1:1/gleanery"
    missing = standby.primary.url("missing")
    caplog.set_level(logging.DEBUG)
    client = run(settings_of(tmp_path, standby.primary, away, missing, standby.server.url()))
    wait_for_usable(client, 1)
    wait_until(lambda: len(reasons(caplog)) >= 2)
    standby.server.kill()  # found by a later check than the first ones
    wait_for_usable(client, 0)
    wait_for_reason(caplog, "it refuses connections: start the server")
    found = reasons(caplog)
    assert sum("correct the host and port in --replica" in reason for reason in found[:2]) == 1
    assert sum("correct its name in --replica" in reason for reason in found) == 1
    assert "secret-word" not in caplog.text
    hosts = {record.__dict__.get("replica") for record in caplog.records}
    assert {"127.0.0.1:1", standby.primary.address} <= hosts


def test_an_address_that_cannot_work_is_rejected_at_the_start(
    standby: Standby, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, standby.primary, "postgresql://u:p@a:99999/gleanery")
    with pytest.raises(SettingsError, match="The port in --replica"):
        asyncio.run(prepare(settings))


def test_a_silent_server_does_not_delay_the_checks_of_others(
    standby: Standby, run: Run, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and sends nothing
        url = f"postgresql://user@127.0.0.1:{silent.getsockname()[1]}/gleanery"
        client = run(settings_of(tmp_path, standby.primary, url, standby.server.url()))
        wait_for_usable(client, 1)
        standby.server.kill()
        wait_for_usable(client, 0)


@pytest.mark.parametrize("new_scope", [SessionScope, TransactionScope])
def test_a_busy_replica_is_left_alone(
    standby: Standby, tmp_path: Path, new_scope: Callable[[], TenantScope]
) -> None:
    asyncio.run(prepare(settings_of(tmp_path, standby.primary)))
    standby.catch_up()

    async def use() -> None:
        url = standby.server.url()
        engine = PostgresDatabase(standby.primary.url(), 1, new_scope, replica_urls=[url])
        await engine.open()
        try:
            await wait_for_replica(engine)
            replica = engine.for_replica(1)
            assert replica is not None
            async with replica as database:
                assert engine.for_replica(2) is None  # nothing waits; the primary is read
                assert engine.replica_states[0].is_usable
                assert await database.read("SELECT count(*) FROM outputs") == [(0,)]
            assert engine.for_replica(2) is not None
        finally:
            await engine.close()

    asyncio.run(use())
