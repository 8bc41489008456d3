"""The connections of a service to its replicas: what they leave there, and which role they have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.environment import open_environment
from gleanery.service.processes.start import prepare
from gleanery.service.storage.postgres.database import PostgresDatabase
from gleanery.service.storage.postgres.tenants import SessionScope, TenantScope, TransactionScope
from tests.support.replicas import Standby, settings_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended

SCOPES = pytest.mark.parametrize("new_scope", [SessionScope, TransactionScope])
NewScope = Callable[..., TenantScope]


@pytest.fixture
def standby() -> Iterator[Standby]:
    with open_environment() as environment:  # it ends the servers
        primary, server = environment.start_server(), environment.new_server()
        server.start_as_standby_of(primary)
        yield Standby(primary, server)


async def wait_for_replica(engine: PostgresDatabase) -> None:
    await asyncio.to_thread(wait_until, lambda: engine.replica_states[0].is_usable, 30)


# --- a slow statement ---------------------------------------------------------------------------

RUNNING = """
SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND state = 'active'
    AND pid <> pg_backend_pid()
"""
SLOW = "SELECT count(*) FROM generate_series(1, 100000) AS g(n) WHERE pg_sleep(0.01) IS NULL"


@SCOPES
def test_a_slow_statement_does_not_go_on(
    standby: Standby, tmp_path: Path, new_scope: NewScope
) -> None:
    asyncio.run(prepare(settings_of(tmp_path, standby.primary)))
    standby.catch_up()

    async def use() -> None:
        urls = [standby.server.url()]
        engine = PostgresDatabase(standby.primary.url(), 2, new_scope, replica_urls=urls)
        await engine.open()
        try:
            await wait_for_replica(engine)
            replica = engine.for_replica(1)
            assert replica is not None
            with pytest.raises(Exception):  # noqa: B017, PT011 - the driver's or the server's
                async with replica as database:
                    await database.read(SLOW)
        finally:
            await engine.close()

    asyncio.run(use())
    wait_until(lambda: standby.server.run(RUNNING) == "0", 10)


# --- the role -----------------------------------------------------------------------------------


@SCOPES
def test_a_replica_is_used_when_its_user_gets_the_role(
    standby: Standby, tmp_path: Path, new_scope: NewScope
) -> None:
    asyncio.run(prepare(settings_of(tmp_path, standby.primary)))
    standby.primary.run("CREATE ROLE reader LOGIN BYPASSRLS; GRANT pg_read_all_data TO reader")
    standby.catch_up()
    url = standby.server.url().replace("postgres@", "reader@")

    async def use() -> None:
        engine = PostgresDatabase(standby.primary.url(), 2, new_scope, replica_urls=[url])
        await engine.open()
        try:
            await asyncio.sleep(3)  # it has been checked and refused
            assert not engine.replica_states[0].is_usable
            standby.primary.run("GRANT gleanery_serving TO reader")
            await wait_for_replica(engine)
        finally:
            await engine.close()

    asyncio.run(use())


@SCOPES
def test_a_replica_is_used_when_its_tables_arrive(
    standby: Standby, tmp_path: Path, new_scope: NewScope
) -> None:
    standby.pause()
    asyncio.run(prepare(settings_of(tmp_path, standby.primary)))

    async def use() -> None:
        urls = [standby.server.url()]
        engine = PostgresDatabase(standby.primary.url(), 2, new_scope, replica_urls=urls)
        await engine.open()
        try:
            await asyncio.sleep(3)  # it has been checked and refused
            assert not engine.replica_states[0].is_usable
            standby.resume()
            await wait_for_replica(engine)
        finally:
            await engine.close()

    asyncio.run(use())
