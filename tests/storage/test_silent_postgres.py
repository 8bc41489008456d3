"""A PostgreSQL server that falls silent: it neither answers nor closes its connections."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from gleanery.common.settings import Settings
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.storage.database import Engine, Transaction
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.postgres import connecting, pool
from tests.support.forwarder import Forwarder
from tests.support.settings import fresh_settings
from tests.support.waiting import TIMEOUT_SECONDS

NOTE = "INSERT INTO metadata (name, value) VALUES ($1, $2)"
CHANGE = "UPDATE metadata SET value = $2 WHERE name = $1"
FIND = "SELECT value FROM metadata WHERE name = $1 AND value <> $2"
MORE_THAN_BUFFERS = 64 * 2**20
"""More bytes than the buffers between two programs take."""


@pytest.fixture
def path(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Settings, Forwarder]]:
    """Settings of a database behind a forwarder. A statement has two seconds."""
    settings = fresh_settings("postgres", request, tmp_path)
    asyncio.run(_migrate(settings))
    monkeypatch.setattr(pool, "_STATEMENT_SECONDS", 2.0)
    monkeypatch.setattr(connecting, "_CONNECT_SECONDS", 2.0)
    parts = urlsplit(settings.database or "")
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    forwarder = Forwarder(f"{query['host']}/.s.PGSQL.{query.get('port', 5432)}")
    url = f"postgresql://postgres@127.0.0.1:{forwarder.port}{parts.path}?sslmode=disable"
    forwarder.start()
    yield replace(settings, database=url, pool_size=3), forwarder
    forwarder.stop()


async def _migrate(settings: Settings) -> None:
    async with open_engine(settings) as database:
        await database.migrate()


async def _write_note(database: Engine, name: str, queue_key: str) -> None:
    async def note(transaction: Transaction) -> None:
        await transaction.fetch(NOTE, name, "")

    await database.write(note, queue_key)


async def _write_when_possible(database: Engine, name: str, queue_key: str) -> None:
    """A busy machine may take longer than the limits of this test."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            with suppress(Unavailable):
                await _write_note(database, name, queue_key)
                return


Work = Callable[[Transaction, Forwarder], Awaitable[None]]


async def _silent_at_a_statement(transaction: Transaction, forwarder: Forwarder) -> None:
    forwarder.freeze()
    await transaction.fetch(NOTE, "a", "")


async def _silent_while_many_are_prepared(transaction: Transaction, forwarder: Forwarder) -> None:
    """The driver forgets its limit for the statement after one without sets of values."""
    await transaction.fetch_many(FIND, [])
    forwarder.freeze()
    await transaction.execute_many(CHANGE, [("a", "b"), ("c", "d")])


async def _silent_while_many_are_sent(transaction: Transaction, forwarder: Forwarder) -> None:
    """The driver waits until it may send, not for an answer."""
    await transaction.execute_many(NOTE, [("a", ""), ("b", "")])
    forwarder.freeze()
    value = "x" * 2**20
    await transaction.execute_many(CHANGE, [("a", value)] * (MORE_THAN_BUFFERS // len(value)))


async def _silent_at_commit(transaction: Transaction, forwarder: Forwarder) -> None:
    await transaction.fetch(NOTE, "a", "")
    forwarder.freeze()


async def _silent_at_rollback(transaction: Transaction, forwarder: Forwarder) -> None:
    await transaction.fetch(NOTE, "a", "")
    forwarder.freeze()
    raise Unavailable("rolled back")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "work",
    [
        _silent_at_a_statement,
        _silent_while_many_are_prepared,
        _silent_while_many_are_sent,
        _silent_at_commit,
        _silent_at_rollback,
    ],
)
def test_a_write_is_given_up_and_its_queue_goes_on(
    path: tuple[Settings, Forwarder], work: Work
) -> None:
    settings, forwarder = path

    async def use() -> None:
        async with open_engine(settings) as database:
            silent = database.write(lambda given: work(given, forwarder), queue_key="group")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                with pytest.raises(Unavailable):
                    await silent
                with pytest.raises(Unavailable):  # no connection that exists is tried for long
                    await _write_note(database, "late", "group")
            forwarder.thaw()
            await _write_when_possible(database, "late", "group")

    asyncio.run(use())


@pytest.mark.thorough
def test_a_write_and_a_read_that_begin_while_the_server_is_silent_are_given_up(
    path: tuple[Settings, Forwarder],
) -> None:
    settings, forwarder = path

    async def use() -> None:
        async with open_engine(settings) as database:
            await asyncio.gather(*(database.read("SELECT 1") for _ in range(3)))
            forwarder.freeze()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                for operation in (
                    _write_note(database, "a", "group"),
                    database.read("SELECT 1"),
                ):
                    with pytest.raises(Unavailable):
                        await operation
            forwarder.thaw()
            await _write_when_possible(database, "a", "group")

    asyncio.run(use())


@pytest.mark.thorough
def test_many_long_polls_share_the_wait_for_a_silent_server(
    path: tuple[Settings, Forwarder],
) -> None:
    """One after the other, they would take their limit many times."""
    settings, forwarder = path

    async def poll(database: Engine) -> None:
        async with database.subscribe("a channel"):
            pass

    async def use() -> None:
        async with open_engine(settings) as database:
            forwarder.freeze()
            async with asyncio.timeout(TIMEOUT_SECONDS):  # a tenth of their limits in sequence
                polls = [poll(database) for _ in range(300)]
                told = await asyncio.gather(*polls, return_exceptions=True)
        assert {type(error) for error in told} == {Unavailable}

    asyncio.run(use())


# --- a server that ends a connection --------------------------------------------------------------


async def _end_idle_connection(url: str, database: Engine, forwarder: Forwarder) -> None:
    """Lets the server end the idle connection. The client does not see the end of it yet."""
    [[pid]] = await database.read("SELECT pg_backend_pid()")
    forwarder.hides_ends = True
    operator = await asyncpg.connect(url)
    await operator.execute(f"SELECT pg_terminate_backend({pid:d})")
    await operator.close()
    assert await asyncio.to_thread(forwarder.has_hidden_end.wait, TIMEOUT_SECONDS)
    for _ in range(3):  # what has arrived is read in the next round of the event loop
        await asyncio.sleep(0)


@pytest.mark.parametrize("operation", ["read", "write"])
def test_a_connection_that_the_server_has_begun_to_end_is_replaced(
    request: pytest.FixtureRequest, path: tuple[Settings, Forwarder], operation: str
) -> None:
    """The request is repeated on another connection: nothing of it was sent on this one."""
    settings, forwarder = path
    name = urlsplit(settings.database or "").path

    async def use() -> None:
        async with open_engine(settings) as database:
            url = request.getfixturevalue("postgres").new_database()
            await _end_idle_connection(url, database, forwarder)
            if operation == "read":
                await database.read("SELECT 1")
            else:
                await _write_note(database, name, "group")
                assert await database.read("SELECT 1 FROM metadata WHERE name = $1", name)

    asyncio.run(use())


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["", "&application_name=my-own"])
def test_connections_have_the_name_of_the_program(
    request: pytest.FixtureRequest, tmp_path: Path, given: str
) -> None:
    settings = fresh_settings("postgres", request, tmp_path)
    url = f"{settings.database}{given}"

    async def read_name() -> str:
        async with open_engine(replace(settings, database=url)) as database:
            [[name]] = await database.read("SELECT current_setting('application_name')")
            return str(name)

    name = asyncio.run(read_name())
    assert name == "my-own" if given else name.startswith("gleanery ")
    assert given or name.endswith(f" {os.getpid()}")
