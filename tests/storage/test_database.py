"""The database protocol on both engines: transactions, migrations and error messages."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.application import build_app
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.storage import migrations
from gleanery.service.storage.database import Engine, Transaction
from gleanery.service.storage.engines import create_engine, open_engine
from gleanery.service.storage.postgres import pool
from gleanery.service.storage.postgres.citus.transactions import (
    MoreIdsNeeded,
    ReservedIds,
    ShardTransaction,
)
from gleanery.service.storage.postgres.schema import ONE_MIGRATION
from tests.support.databases import run_script
from tests.support.process import database_options, environment
from tests.support.program_copies import with_migration
from tests.support.service import SECRET_KEY
from tests.support.settings import fresh_settings

SCHEMA = {
    "sqlite": """
SELECT 'column', t.name, c.name, concat_ws('|', c.type, c."notnull", c.dflt_value, c.pk > 0)
FROM sqlite_schema t, pragma_table_xinfo(t.name) c WHERE t.type = 'table'
UNION ALL SELECT 'index', i.tbl_name, i.name, concat_ws('|', i.sql, group_concat(c.name))
FROM sqlite_schema i, pragma_index_xinfo(i.name) c WHERE i.type = 'index' GROUP BY i.name
UNION ALL SELECT 'trigger', tbl_name, name, sql FROM sqlite_schema WHERE type = 'trigger'
ORDER BY 1, 2, 3
""",
    "postgres": """
SELECT 'column', table_name, column_name, data_type || is_nullable || coalesce(column_default, '')
    || is_identity
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT 'index', tablename, indexname, indexdef FROM pg_indexes
WHERE schemaname = 'public'
UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT 'sequence', sequencename, data_type::text, cache_size::text FROM pg_sequences
WHERE schemaname = 'public'
UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid)
FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'function', proname, '', prosrc FROM pg_proc
WHERE pronamespace = 'public'::regnamespace
ORDER BY 1, 2, 3
""",
}


@pytest.fixture
def empty(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return fresh_settings(engine, request, tmp_path)


def with_database(settings: Settings, work: Callable[[Engine], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with open_engine(settings) as database:
            return await work(database)

    return asyncio.run(run())


async def schema_of(database: Engine) -> list[tuple[Any, ...]]:
    rows = await database.for_all_tenants().read(SCHEMA[database.engine])
    found = [tuple(row) for row in rows if "migrations" not in (row[1], row[2])]
    return [tuple(" ".join(str(part).split()) for part in row) for row in found]


# --- migrations ---------------------------------------------------------------------------------


def test_the_sum_of_the_migrations_is_the_schema(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async def migrated(database: Engine) -> list[tuple[Any, ...]]:
        await database.migrate()
        return await schema_of(database)

    one = with_database(fresh_settings(engine, request, tmp_path / "one"), migrated)
    written_down = fresh_settings(engine, request, tmp_path / "two")
    sql = files("gleanery.service.storage").joinpath("schema", f"{engine}.sql").read_text()
    run_script(written_down, sql)
    two = with_database(written_down, schema_of)
    assert one == two
    assert len(one) > 15


def test_migrations_are_numbered_without_a_gap(engine: str) -> None:
    numbers = [migration.number for migration in migrations.known(engine)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert migrations.newest("sqlite") == migrations.newest("postgres")


def test_nodes_that_start_together_migrate_once(empty: Settings) -> None:
    async def start(_: int) -> int:
        async with open_engine(empty) as database:
            await database.migrate()
            return (await database.schema_state()).number

    async def start_all() -> list[int]:
        return await asyncio.gather(*map(start, range(6)))

    assert set(asyncio.run(start_all())) == {migrations.newest(create_engine(empty).engine)}


def test_a_database_of_a_newer_program_is_refused(empty: Settings) -> None:
    async def work(database: Engine) -> None:
        assert (await database.schema_state()).number == 0
        await database.migrate()

        async def pretend(transaction: Transaction) -> None:
            await transaction.fetch(
                "INSERT INTO migrations (number, name, applied_at) VALUES (9999, 'future', 0)"
            )

        await database.write(pretend)
        await database.migrate()

    with pytest.raises(SettingsError, match="upgrade the program"):
        with_database(empty, work)


def test_a_database_with_other_migrations_is_refused(empty: Settings) -> None:
    """The numbers of a development version may be in use again, for other statements."""

    async def work(database: Engine) -> None:
        await database.migrate()

        async def pretend(transaction: Transaction) -> None:
            await transaction.fetch("UPDATE migrations SET name = 'start' WHERE number = 1")
            await transaction.fetch(
                "INSERT INTO migrations (number, name, applied_at) VALUES (99, 'last', 0)"
            )

        await database.write(pretend)
        await database.migrate()

    with pytest.raises(SettingsError, match="a development version"):
        with_database(empty, work)


def test_a_migration_waits_for_the_writes_in_progress(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a write of an older program could commit after the migration."""
    settings = fresh_settings("postgres", request, tmp_path)
    known = (*migrations.known("postgres"), migrations.Migration(9999, "next", "SELECT 1"))
    waiting = "SELECT 1 FROM pg_locks WHERE relation = 'migrations'::regclass AND NOT granted"

    async def work(database: Engine) -> None:
        await database.migrate()
        has_begun, may_end = asyncio.Event(), asyncio.Event()

        async def write(transaction: Transaction) -> None:
            await transaction.fetch(NOTE, "early", "")
            has_begun.set()
            await may_end.wait()

        writing = asyncio.create_task(database.write(write))
        await has_begun.wait()
        monkeypatch.setattr(migrations, "known", lambda engine: known)
        async with open_engine(settings) as next_version, asyncio.timeout(60):
            migrating = asyncio.create_task(next_version.migrate())
            try:
                while not await database.read(waiting):
                    assert not migrating.done()
                    await asyncio.sleep(0.01)
            finally:
                may_end.set()
            await writing
            await migrating
        monkeypatch.undo()
        with pytest.raises(Unavailable, match="does not match"):
            await database.write(write)
        assert [row[0] for row in await database.read(NOTES)] == ["early"]

    with_database(settings, work)


@pytest.mark.extended
def test_writes_succeed_while_a_migration_waits_for_a_dump(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """PostgreSQL lets a writer wait behind a migration that waits for the lock of a reader."""
    settings = fresh_settings("postgres", request, tmp_path)
    source = with_migration(tmp_path / "next", "SELECT 1;")
    migrate = (sys.executable, "-m", "gleanery", "migrate", *database_options(settings))
    waiting = "SELECT 1 FROM pg_locks WHERE relation = 'migrations'::regclass AND NOT granted"

    async def note(name: str, transaction: Transaction) -> None:
        await transaction.fetch(NOTE, name, "")

    async def work(database: Engine) -> None:
        await database.migrate()
        dump = await asyncpg.connect(settings.database)
        await dump.execute("BEGIN; SELECT FROM migrations")
        variables = environment(PYTHONPATH=str(source))
        migrating = await asyncio.create_subprocess_exec(*migrate, env=variables)
        try:
            async with asyncio.timeout(60):
                while not await database.read(waiting):
                    assert migrating.returncode is None
                    await asyncio.sleep(0.01)
            for name in ("a", "b"):
                await database.write(partial(note, name))
            assert migrating.returncode is None
        finally:
            await dump.close()
            assert await migrating.wait() == 0
        assert (await database.schema_state()).number == migrations.newest("postgres") + 1

    with_database(settings, work)


def set_default(settings: Settings, name: str, value: str) -> None:
    """Sets a parameter of PostgreSQL for new connections to the database."""
    change = f"format('ALTER DATABASE %I SET {name} = %L', current_database(), '{value}')"
    run_script(settings, f"DO $$ BEGIN EXECUTE {change}; END $$")


@pytest.mark.thorough
def test_a_migration_waits_for_another_one_without_a_time_limit(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the limit of the program nor one of the server ends the wait."""
    settings = fresh_settings("postgres", request, tmp_path)
    set_default(settings, "statement_timeout", "2s")
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

    async def work(database: Engine) -> None:
        await database.migrate()
        other = await asyncpg.connect(settings.database)
        await other.execute(f"BEGIN; {ONE_MIGRATION}")
        monkeypatch.setattr(pool, "_STATEMENT_SECONDS", 2)
        async with open_engine(settings) as second, asyncio.timeout(60):
            migrating = asyncio.create_task(second.migrate())
            while not await database.read(waiting):
                assert not migrating.done()
                await asyncio.sleep(0.01)
            await asyncio.wait([migrating], timeout=2.5)
            await other.close()
            await migrating

    with_database(settings, work)


def test_a_write_that_waited_for_a_migration_sees_it_whatever_the_default_isolation_is(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings("postgres", request, tmp_path)
    set_default(settings, "default_transaction_isolation", "serializable")
    waiting = "SELECT 1 FROM pg_locks WHERE relation = 'migrations'::regclass AND NOT granted"

    async def write(transaction: Transaction) -> None:
        await transaction.fetch(NOTE, "late", "")

    async def work(database: Engine) -> None:
        await database.migrate()
        migration = await asyncpg.connect(settings.database)
        await migration.execute("BEGIN; LOCK TABLE migrations IN ACCESS EXCLUSIVE MODE")
        writing = asyncio.create_task(database.write(write))
        async with asyncio.timeout(60):
            while not await database.read(waiting):
                assert not writing.done()
                await asyncio.sleep(0.01)
        await migration.execute("INSERT INTO migrations VALUES (9999, 'next', 0, NULL); COMMIT")
        await migration.close()
        with pytest.raises(Unavailable, match="does not match"):
            await writing

    with_database(settings, work)


# --- transactions -------------------------------------------------------------------------------


def test_processes_can_open_a_new_file_at_the_same_time(tmp_path: Path) -> None:
    def read_schema_number(settings: Settings) -> int:
        return int(with_database(settings, lambda database: database.schema_state()).number)

    with ThreadPoolExecutor(6) as pool:
        for turn in range(10):
            settings = Settings(data=tmp_path / str(turn))
            assert list(pool.map(read_schema_number, [settings] * 6)) == [0] * 6


NOTE = "INSERT INTO metadata (name, value) VALUES ($1, $2)"
NOTES = "SELECT name, value FROM metadata ORDER BY name"


def test_a_failed_write_changes_nothing_and_other_writes_succeed(empty: Settings) -> None:
    async def good(name: str, transaction: Transaction) -> str:
        await transaction.fetch(NOTE, name, "kept")
        return name

    async def bad(name: str, transaction: Transaction) -> str:
        await transaction.fetch(NOTE, name, "not kept")
        raise RuntimeError(name)

    async def work(database: Engine) -> None:
        await database.migrate()

        async def write(number: int) -> str:
            kind = bad if number % 3 == 0 else good
            return await database.write(lambda t: kind(f"{number:02}", t))

        results = await asyncio.gather(*map(write, range(30)), return_exceptions=True)
        for number, result in enumerate(results):
            assert isinstance(result, RuntimeError) == (number % 3 == 0)
            assert str(result) == f"{number:02}"
        rows = [tuple(row) for row in await database.read(NOTES)]
        assert rows == [(f"{n:02}", "kept") for n in range(30) if n % 3]

    with_database(empty, work)


def test_a_transaction_that_hides_a_failure_is_not_taken_for_stored(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """PostgreSQL answers its COMMIT with ROLLBACK, and not with an error."""

    async def hide(transaction: Transaction) -> None:
        with suppress(asyncpg.DivisionByZeroError):
            await transaction.fetch("SELECT 1 / 0")

    async def work(database: Engine) -> None:
        await database.migrate()
        with pytest.raises(RuntimeError, match="ROLLBACK"):
            await database.write(hide)
        assert (await database.schema_state()).number

    with_database(fresh_settings("postgres", request, tmp_path), work)


def test_fetch_many_returns_rows_in_the_order_of_the_values(empty: Settings) -> None:
    async def work(database: Engine) -> None:
        await database.migrate()

        async def notes(transaction: Transaction) -> list[Any]:
            await transaction.execute_many(NOTE, [(name, name.upper()) for name in "abc"])
            asked = [("c",), ("missing",), ("a",)]
            sql = "SELECT value FROM metadata WHERE name = $1"
            assert list(await transaction.fetch_many(sql, [])) == []
            return [row[0] for row in await transaction.fetch_many(sql, asked)]

        assert await database.write(notes) == ["C", "A"]

    with_database(empty, work)


def test_new_output_ids_are_unique(empty: Settings) -> None:
    async def work(database: Engine) -> None:
        await database.migrate()

        async def take(count: int) -> list[int]:
            async def ids(transaction: Transaction) -> list[int]:
                return list(await transaction.new_output_ids(count))

            return await database.write(ids)

        taken = await asyncio.gather(*map(take, range(12)))
        flat = [one for some in taken for one in some]
        assert len(flat) == len(set(flat)) == sum(range(12))

    with_database(empty, work)


def test_a_transaction_that_takes_reserved_ids_in_parts_ends() -> None:
    """Each attempt uses up the ids that it takes, so the next one needs as many again."""
    sequence = iter(range(1_000_000))

    async def read(_: str, count: int) -> list[tuple[int]]:
        return [(number,) for number in islice(sequence, count)]

    async def work() -> list[int]:
        reserved = ReservedIds()
        for _ in range(10):
            attempt = ShardTransaction(None, 1, {}, reserved)
            try:
                return [id_ for _ in range(50) for id_ in await attempt.new_output_ids(100)]
            except MoreIdsNeeded as needed:
                await reserved.reserve(read, needed.count)
        raise AssertionError("each attempt needs more ids")

    assert len(set(asyncio.run(work()))) == 5000


def test_a_cancelled_write_is_stored_completely_or_not_at_all(empty: Settings) -> None:
    async def work(database: Engine) -> None:
        await database.migrate()

        async def two(transaction: Transaction) -> None:
            await transaction.fetch(NOTE, "1", "")
            await transaction.fetch(NOTE, "2", "")

        task = asyncio.ensure_future(database.write(two))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await database.write(lambda transaction: transaction.fetch(NOTE, "3", ""))
        assert len(await database.read(NOTES)) in (1, 3)

    with_database(empty, work)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_only_the_transaction_that_says_so_does_not_wait_for_the_disk(empty: Settings) -> None:
    setting = "SELECT current_setting('synchronous_commit')"

    async def read(transaction: Transaction) -> str:
        return str((await transaction.fetch(setting))[0][0])

    async def unflushed(transaction: Transaction) -> str:
        await transaction.commit_unflushed()
        return await read(transaction)

    async def work(database: Engine) -> list[str]:
        await database.migrate()
        return [await database.write(one) for one in (read, unflushed, read)]

    assert with_database(empty, work) == ["on", "off", "on"]


# --- failure ------------------------------------------------------------------------------------


def test_a_database_that_cannot_be_opened_is_one_sentence(engine: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    settings = Settings(data=tmp_path / "file")
    if engine == "postgres":
        settings = replace(settings, database="postgresql://127.0.0.1:1/nothing")

    async def nothing(database: Engine) -> None:
        raise AssertionError("it opened")

    with pytest.raises(SettingsError) as caught:
        with_database(settings, nothing)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_server_that_is_too_old_is_refused(
    empty: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_OLDEST_VERSION", 99)

    async def nothing(database: Engine) -> None:
        raise AssertionError("it opened")

    with pytest.raises(SettingsError, match=r"has version 1\d\.\d+: upgrade it to 99 or newer"):
        with_database(empty, nothing)


def test_while_another_process_holds_the_lock_a_write_is_unavailable_and_reads_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import apsw

    from gleanery.service.storage.sqlite import connections as sqlite

    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT_MS", 100)
    settings = Settings(data=tmp_path)

    async def work(database: Engine) -> None:
        await database.migrate()
        other = apsw.Connection(str(settings.sqlite_file))
        other.execute("BEGIN IMMEDIATE")

        async def note(transaction: Transaction) -> None:
            await transaction.fetch(NOTE, "a", "")

        with pytest.raises(Unavailable):
            await database.write(note)
        assert list(await database.read(NOTES)) == []
        other.execute("ROLLBACK")
        await database.write(note)
        assert len(await database.read(NOTES)) == 1

    with_database(settings, work)


def test_tenants_take_turns_with_large_reads(tmp_path: Path) -> None:
    """On SQLite one thread does them. Many exports of one tenant must not delay the others."""
    order: list[int] = []

    async def read(database: Engine, tenant: int) -> None:
        await database.for_tenant(tenant).read_large("SELECT 1")
        order.append(tenant)

    async def work(database: Engine) -> None:
        await asyncio.gather(*(read(database, tenant) for tenant in [1] * 20 + [2]))

    with_database(Settings(data=tmp_path), work)
    assert order.index(2) < 5


def test_a_writer_waits_for_a_limited_time(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gleanery.service.storage.postgres import database

    monkeypatch.setattr(database, "_QUEUE_SECONDS", 0.1)
    settings = fresh_settings("postgres", request, tmp_path)
    last = asyncio.Event()

    async def stay(transaction: Transaction) -> str:
        await last.wait()
        return "stayed"

    async def work(database: Engine) -> None:
        await database.migrate()
        first = asyncio.create_task(database.write(stay, queue_key="a"))
        await asyncio.sleep(0)
        others = [database.write(stay, queue_key="a") for _ in range(3)]
        told = await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 60)
        assert [type(one) for one in told] == [Unavailable] * 3
        last.set()
        assert await first == await database.write(stay, queue_key="a") == "stayed"

    with_database(settings, work)


def test_a_full_disk_rejects_the_commit_and_the_database_recovers(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)

    async def note(name: str, size: int, transaction: Transaction) -> None:
        await transaction.fetch(NOTE, name, "x" * size)

    async def work(database: Engine) -> None:
        await database.migrate()
        connection = database._writer._connection  # type: ignore[attr-defined]
        room = connection.pragma("page_count") + 20
        connection.pragma("max_page_count", room)
        sizes = [10, 10, 50_000_000, 10, 10]
        writes = [
            database.write(partial(note, str(number), size)) for number, size in enumerate(sizes)
        ]
        told = await asyncio.gather(*writes, return_exceptions=True)
        kept = {row[0] for row in await database.read(NOTES)}
        assert isinstance(told[2], Unavailable)
        for number, outcome in enumerate(told):
            assert (str(number) in kept) == (outcome is None)
            assert outcome is None or isinstance(outcome, Unavailable)
        connection.pragma("max_page_count", room * 1000)
        await database.write(partial(note, "later", 10_000_000))
        assert "later" in {row[0] for row in await database.read(NOTES)}

    with_database(settings, work)


def test_a_start_that_fails_leaves_no_thread_behind(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, secret_key=SECRET_KEY)
    settings.sqlite_file.touch()  # it has no tables

    async def start() -> None:
        app = build_app(settings)
        await app.start()
        await app.stop()

    asyncio.run(start())
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("gleanery-writer " + str(tmp_path)) == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("state", "passes"),
    [
        *(
            (state, True)
            for state in ("40001", "40P01", "53300", "57014", "55P03", "25006", "58030")
        ),
        *((state, False) for state in ("23505", "42601")),
    ],
)
def test_temporary_errors_of_postgresql_are_unavailable(
    request: pytest.FixtureRequest, tmp_path: Path, state: str, passes: bool
) -> None:
    settings = fresh_settings("postgres", request, tmp_path)

    async def fail(transaction: Transaction) -> None:
        await transaction.run_script(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE='{state}'; END $$")

    async def work(database: Engine) -> None:
        await database.migrate()
        await database.write(fail)

    with pytest.raises(Exception) as caught:  # noqa: PT011
        with_database(settings, work)
    assert isinstance(caught.value, Unavailable) == passes


def test_a_write_that_is_cancelled_on_a_lost_connection_ends(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Another error in place of the cancellation would let the sweep continue after its stop."""
    server = request.getfixturevalue("postgres")
    settings = fresh_settings("postgres", request, tmp_path)
    is_lost = asyncio.Event()

    async def lose_connection(transaction: Transaction) -> None:
        [[process]] = await transaction.fetch("SELECT pg_backend_pid()")
        await asyncio.to_thread(server.run, f"SELECT pg_terminate_backend({process}, 60000)")
        with pytest.raises((asyncpg.InterfaceError, asyncpg.PostgresError)):
            await transaction.fetch("SELECT 1")
        is_lost.set()
        await asyncio.sleep(60)

    async def work(database: Engine) -> None:
        await database.migrate()
        write = asyncio.create_task(database.write(lose_connection))
        async with asyncio.timeout(60):
            await is_lost.wait()
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write

    with_database(settings, work)


@pytest.mark.parametrize("has_rested_too_long", [False, True])
def test_a_lost_idle_connection_is_replaced(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_rested_too_long: bool,
) -> None:
    from gleanery.service.storage.postgres import pool as postgres

    settings = fresh_settings("postgres", request, tmp_path)
    if has_rested_too_long:
        monkeypatch.setattr(postgres, "_MAX_IDLE_SECONDS", -1)

    async def work(database: Engine) -> None:
        [[process]] = await database.read("SELECT pg_backend_pid()")
        if not has_rested_too_long:
            server = request.getfixturevalue("postgres")
            await asyncio.to_thread(server.run, f"SELECT pg_terminate_backend({process}, 60000)")
            [(connection, _)] = database._connections._idle  # type: ignore[attr-defined]
            async with asyncio.timeout(60):
                while postgres._is_open(connection):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        [[another]] = await database.read("SELECT pg_backend_pid()")
        assert another != process

    with_database(settings, work)
