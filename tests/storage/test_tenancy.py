"""Second layer of tenant isolation: a statement without a tenant filter shows no foreign rows."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.processes.start import prepare
from gleanery.service.resources.files import records as file_records
from gleanery.service.resources.groups import catalog
from gleanery.service.resources.reviews import reading
from gleanery.service.resources.sessions import cookies
from gleanery.service.resources.sessions.kinds import RecordKind
from gleanery.service.storage import migrations, tenancy, usage
from gleanery.service.storage.database import Engine, Transaction
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.sqlite.connections import for_key_array
from tests.support.postgres_server import PostgresServer
from tests.support.service import SECRET_KEY, Client, Service
from tests.support.statements import modules_with_statements, statements
from tests.support.tenants import Names, create_one_of_everything

T = TypeVar("T")


def with_engine(settings: Settings, work: Callable[[Engine], Awaitable[T]]) -> T:
    async def run() -> T:
        in_turn = replace(settings, pool_size=1)  # one connection for all
        async with open_engine(in_turn) as engine:
            return await work(engine)

    return asyncio.run(run())


# --- the checker on every statement -------------------------------------------------------------

# Read before the tenant of a request is known, so the checker leaves them alone.
SHARED_WITH_OWNER = "tokens|console_sessions|login_links"
# The sweep reads which organizations have work to do, then works for each of them. A backup holds
# all organizations.
OVER_ALL = {
    "audit.log._WITH_OLD_ENTRIES": "organizations with audit entries to purge",
    "changes.feed.FULL.expired_groups": "groups with tombstones to purge",
    "changes.feed.APPROVED.expired_groups": "groups with tombstones of the view to purge",
    "history.storing._GROUPS_WITH_EXPIRED": "groups with earlier versions to delete",
    "outputs.bulk_jobs._UNFINISHED": "bulk jobs that a crash interrupted",
    "files.records._UNREFERENCED_BLOBS": "blobs without a file",
    "files.records._UNUSED_FILES": "files that no output references",
    "postgres.schema._DEFINED_NAMES": "tables, indexes and triggers, before the migrations",
    "postgres.schema._SYSTEM_IDENTIFIER": "the identity of the server",
    "postgres.schema._OIDS": "the identity of the database",
    "postgres.replicas.PRIMARY_STATE": "the position of the server, and its last restore",
    "postgres.replicas.REPLICA_STATE": "the position of a replica, and its last restore",
    "postgres.transactions.NEW_IDS": "ids from a sequence",
    "postgres.citus.transactions.NEW_IDS": "the same statement",
    "postgres.transactions._SKIP_IDS": "the sequences of every table, after a restore",
    "idempotency._DELETE_EXPIRED": "purges old responses, a thousand at a time",
    "idempotency._ANY_EXPIRED": "tells if there are old responses",
    "sessions.leases._DELETE_EXPIRED": "purges leases that expired long ago",
    "sessions.leases._ANY_EXPIRED": "tells if there are such leases",
    "maintenance.organization_removal._WITHOUT_AUDIT_ENTRIES": "those whose audit log is purged",
    "maintenance.retention._DUE_GROUPS": "groups with expired outputs",
    "monitors.evaluation._DUE_JOBS": "jobs that may be overdue",
    "monitors.metrics._BUSIEST": "numbers for the metrics",
    "monitors.metrics._OPEN": "numbers for the metrics",
    "runs.changing._OPEN_JOBS": "jobs with silent runs, or with outputs to compare or to remove",
    "sessions.summaries._EXPIRED_COOKIES": "a number for the metric",
    "sessions.summaries._EXPIRED_ENTRIES": "a number for the metric",
    "sessions.summaries._EXPIRING_COOKIES": "a number for the metric",
    "sessions.summaries._EXPIRING_ENTRIES": "a number for the metric",
    "webhooks.scheduler._SELECT": "the webhooks of all organizations, for the one that delivers",
    "webhooks.scheduler._BACKLOG": "numbers for the metrics",
    "webhooks.deliveries._PURGE": "purges old deliveries, a thousand at a time",
    "webhooks.deliveries._ANY_OLD": "tells if there are old deliveries",
    "admin.backup._BLOBS": "a backup holds the bytes of all organizations",
}
WORKS_FOR_ALL_TENANTS = {
    "audit.log": 1,
    "changes.feed": 1,
    "outputs.bulk_jobs": 1,
    "files.records": 2,
    "history.storing": 1,
    "idempotency": 1,
    "maintenance.organization_removal": 1,
    "maintenance.retention": 1,
    "sessions.summaries": 1,
    "sessions.leases": 1,
    "monitors.evaluation": 1,
    "monitors.metrics": 2,
    "runs.changing": 1,
    "usage": 1,
    "webhooks.deliveries": 1,
    "webhooks.scheduler": 1,
}


def is_refused(sql: str, whose: int = tenancy.ANY_TENANT) -> bool:
    try:
        tenancy.check(sql, whose)
    except tenancy.MissingTenantFilter:
        return True
    return False


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_other_statement_has_a_tenant_filter(dialect: str) -> None:
    assert {name for name, sql in statements(dialect).items() if is_refused(sql)} == set(OVER_ALL)


def test_only_the_sweep_and_the_delivery_work_for_all_tenants() -> None:
    calls = {}
    for name, module in modules_with_statements():
        text = inspect.getsource(module)
        if not name.endswith("database") and "for_all_tenants(" in text:
            calls[name] = text.count("for_all_tenants(")
    assert calls == WORKS_FOR_ALL_TENANTS


def test_a_statement_is_translated_once_for_all_organizations() -> None:
    """A service with many organizations would else translate it in every transaction."""
    sql = "SELECT id FROM outputs WHERE organization_id = $1 AND identity = $2"
    assert for_key_array(sql, 2, organization_id=1) is for_key_array(sql, 2, organization_id=2)


@pytest.mark.extended
def test_a_statement_without_one_of_its_tenant_filters_is_rejected() -> None:
    """Tests the checker itself: removes each tenant filter, one after the other."""
    places = 0
    for name, sql in statements("sqlite").items():
        if name in OVER_ALL:
            continue
        for place in re.finditer(r"(\w+\.)?organization_id = (\$1|\w+\.organization_id)", sql):
            if re.search(rf"\b({SHARED_WITH_OWNER})\b[^()]*$", sql[: place.start()]):
                continue  # a shared table, which the checker leaves alone
            forgetful = f"{sql[: place.start()]}1 = 1{sql[place.end() :]}"
            assert is_refused(forgetful), forgetful
            places += 1
    assert places > 70


@pytest.mark.parametrize(
    ("sql", "refused"),
    [
        ("SELECT 1", False),
        ("SELECT * FROM tokens WHERE digest = $1", False),
        ("SELECT * FROM groups", True),
        ("SELECT * FROM a_table_of_tomorrow", True),
        ("SELECT * FROM groups WHERE organization_id = $1", False),
        ("SELECT * FROM groups WHERE organization_id = $1 OR name = $2", True),
        ("SELECT * FROM groups WHERE (organization_id = $1 OR name = $2)", True),
        ("SELECT * FROM groups WHERE NOT organization_id = $1", True),
        ("SELECT * FROM groups WHERE organization_id > $1", True),
        ("SELECT * FROM groups WHERE name = $1 -- organization_id = $1", True),
        ("SELECT * FROM groups WHERE name = 'organization_id = $1'", True),
        ("SELECT * FROM groups g, jobs j WHERE g.organization_id = $1", True),
        ("SELECT * FROM groups AS g, jobs WHERE g.organization_id = $1", True),
        (
            "SELECT * FROM groups g JOIN jobs j ON j.organization_id = g.organization_id "
            "WHERE g.organization_id = $1",
            False,
        ),
        ("SELECT * FROM groups g LEFT JOIN jobs j ON g.organization_id = $1", True),
        (
            "SELECT * FROM groups g LEFT JOIN jobs j ON j.organization_id = $1 "
            "AND g.organization_id = $1",
            True,
        ),
        (
            "SELECT * FROM groups g LEFT JOIN jobs j ON j.organization_id = g.organization_id "
            "WHERE g.organization_id = $1",
            False,
        ),
        ("SELECT * FROM jobs WHERE organization_id = $1 UNION SELECT * FROM jobs", True),
        ("SELECT * FROM jobs WHERE organization_id = $1 EXCEPT SELECT * FROM jobs", True),
        ("DELETE FROM jobs WHERE organization_id = $1; DELETE FROM jobs", True),
        ('SELECT * FROM "jobs"', True),
        ("SELECT * FROM main.jobs", True),
        ("WITH mine AS (SELECT * FROM jobs) SELECT * FROM mine", True),
        ("SELECT (SELECT max(id) FROM jobs) FROM groups WHERE organization_id = $1", True),
        ("UPDATE groups SET organization_id = $1", True),
        ("DELETE FROM groups WHERE name = $1", True),
        ("INSERT INTO groups (name) VALUES ($1)", True),
        ("INSERT INTO groups (organization_id, name) VALUES ($1, $2)", False),
        ("INSERT INTO groups (organization_id) SELECT organization_id FROM groups", True),
        (
            "INSERT INTO groups (organization_id, name) VALUES ($1, $2) "
            "ON CONFLICT (name) DO UPDATE SET name = excluded.name",
            True,
        ),
        (
            "INSERT INTO groups (organization_id, name) VALUES ($1, $2) "
            "ON CONFLICT DO UPDATE SET name = excluded.name",
            True,
        ),
        (
            "INSERT INTO groups (organization_id, name) "
            "SELECT organization_id, name FROM jobs WHERE organization_id = $1 "
            "ON CONFLICT (name) DO UPDATE SET name = excluded.name",
            True,
        ),
        (
            "INSERT INTO groups (organization_id, name) "
            "SELECT organization_id, name FROM jobs WHERE organization_id = $1 "
            "ON CONFLICT (organization_id, name) DO UPDATE SET name = excluded.name",
            False,
        ),
        ("INSERT OR REPLACE INTO groups (id, organization_id) VALUES ($1, $2)", True),
        ("REPLACE INTO groups (id, organization_id) VALUES ($1, $2)", True),
        ("SELECT * FROM groups WHERE name = $1 /* AND organization_id = $1 */", True),
        ("SELECT '--', name FROM groups", True),
        ("SELECT '--', name FROM groups WHERE name = 'it''s' AND organization_id = $1", False),
        ("SELECT * FROM jobs INDEXED BY jobs_in_order", True),
        ("SELECT * FROM jobs INDEXED BY jobs_in_order WHERE jobs.organization_id = $1", False),
        ("SELECT * FROM jobs INDEXED BY i, groups WHERE jobs.organization_id = $1", True),
        ("SELECT * FROM (jobs)", True),
        ("SELECT * FROM (jobs JOIN groups ON groups.organization_id = $1)", True),
        ("SELECT * FROM groups WHERE organization_id = $1 IS NOT NULL", True),
        ("SELECT * FROM groups WHERE organization_id = $1 = 0", True),
        ("SELECT * FROM groups WHERE 0 * organization_id = $1", True),
        ("SELECT * FROM groups WHERE id BETWEEN 0 + 1 AND organization_id = $1", True),
        ("SELECT * FROM groups WHERE id BETWEEN 0 AND 9 AND organization_id = $1", False),
        ("SELECT * FROM groups WHERE CASE WHEN organization_id = $1 THEN 1 ELSE 1 END", True),
        ("SELECT * FROM groups WHERE name = 'a and organization_id = $1 and b'", True),
        ("SELECT count(*) FROM groups HAVING organization_id = $1", True),
        (
            "SELECT * FROM jobs JOIN groups g LEFT JOIN reviews r "
            "ON r.organization_id = g.organization_id AND jobs.organization_id = g.organization_id "
            "WHERE g.organization_id = $1",
            True,
        ),
    ],
)
def test_statements_that_sqlite_rejects(tmp_path: Path, sql: str, refused: bool) -> None:
    assert is_refused(sql) == refused
    if "group" in sql or "jobs" in sql:
        assert is_refused(sql, tenancy.NO_TENANT)
    assert not is_refused(sql, tenancy.ALL_TENANTS)


# --- which tables -------------------------------------------------------------------------------

COLUMNS = {
    "sqlite": "SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c "
    "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'",
    "postgres": "SELECT table_name, column_name FROM information_schema.columns "
    "WHERE table_schema = 'public'",
}


def test_every_table_with_an_organization_is_declared(service: Service, engine: str) -> None:
    rows = with_engine(service.settings, lambda e: e.for_all_tenants().read(COLUMNS[engine]))
    tables = {row[0] for row in rows}
    owned = {row[0] for row in rows if row[1] == "organization_id"}
    owned -= {*SHARED_WITH_OWNER.split("|")}
    assert owned == set(tenancy.TENANT_TABLES), "a new table: one line in tenancy.TENANT_TABLES"
    assert tables - owned - {"output_ids"} == set(tenancy.SHARED_TABLES), (
        "or in tenancy.SHARED_TABLES, with a reason"
    )


# --- through the connection that serves ---------------------------------------------------------


@pytest.fixture(scope="module")
def kept_apart(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service on PostgreSQL with two organizations that both have one of everything."""
    url = postgres.new_database()
    data = tmp_path_factory.mktemp("tenancy")
    running = Service(
        Settings(data=data, database=url, secret_key=SECRET_KEY, port=0, log_level="warning")
    )
    with running.client() as one, running.client() as two:
        ids = [int(create_one_of_everything(client)["organization"]) for client in (one, two)]
        counts = dict.fromkeys(ids, (1, 0, 0, 0))  # the sweep would store them within a minute
        with_engine(running.settings, lambda engine: usage.add(engine, 20_000, counts))
        yield running.settings, ids
    running.stop()


def test_every_table_has_its_policy(kept_apart: Any) -> None:
    settings, _ = kept_apart
    sql = """
SELECT relname, relrowsecurity AND relforcerowsecurity AND EXISTS
    (SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid AND polcmd = '*')
FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"""
    found = {row[0]: row[1] for row in with_engine(settings, lambda e: e.read(sql))}
    assert {table for table, behind in found.items() if behind} == set(tenancy.TENANT_TABLES)


def test_a_statement_without_a_filter_shows_one_organization_only(kept_apart: Any) -> None:
    settings, [one, two] = kept_apart

    async def look(engine: Engine) -> None:
        for table in tenancy.TENANT_TABLES:
            sql = f"SELECT DISTINCT organization_id FROM {table}"
            everything = {row[0] for row in await engine.for_all_tenants().read(sql)}
            empty = ("bulk_jobs", "tombstones", "unreferenced_blobs", "webhook_positions")
            if table not in empty:
                assert everything >= {one, two}, table
            for organization_id in (one, two, one):
                seen = {row[0] for row in await engine.for_tenant(organization_id).read(sql)}
                assert seen == everything & {organization_id}, table
            assert not await engine.read(sql), table

    with_engine(settings, look)


def test_a_statement_without_a_filter_changes_one_organization_only(kept_apart: Any) -> None:
    settings, [one, two] = kept_apart
    names = "SELECT name FROM cookies"

    async def forget_where(transaction: Transaction) -> int:
        changed = await transaction.fetch("UPDATE cookies SET name = 'changed' RETURNING name")
        return len(changed) + len(await transaction.fetch("DELETE FROM cookies RETURNING name"))

    async def give_away(transaction: Transaction) -> None:
        await transaction.fetch("UPDATE groups SET organization_id = $1", two)

    async def plant(transaction: Transaction) -> None:
        await transaction.fetch(
            "INSERT INTO groups (organization_id, name, last_seq) VALUES ($1, 'planted', 0)", two
        )

    async def attempt(engine: Engine) -> None:
        theirs = await engine.for_tenant(two).read(names)
        changed = await engine.for_tenant(one).write(forget_where)
        assert changed == 6  # its own three cookies, updated and deleted
        assert await engine.for_tenant(two).read(names) == theirs != []
        for work in (give_away, plant):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await engine.for_tenant(one).write(work)

    with_engine(settings, attempt)


def test_the_serving_role_owns_nothing(kept_apart: Any) -> None:
    settings, [one, _] = kept_apart
    who = """
SELECT current_user, rolsuper OR rolbypassrls OR rolcreaterole OR rolcanlogin,
    (SELECT count(*) FROM pg_class WHERE relowner = pg_roles.oid)
FROM pg_roles WHERE rolname = current_user"""

    async def attempt(engine: Engine) -> None:
        assert await engine.security_warning() is None
        for rows in (engine, engine.for_tenant(one), engine.for_all_tenants()):
            assert [tuple(row) for row in await rows.read(who)] == [("gleanery_serving", False, 0)]
        for sql in (
            "ALTER TABLE groups DISABLE ROW LEVEL SECURITY",
            "DROP POLICY tenant_isolation ON groups",
            "CREATE TABLE mine (id BIGINT)",
            "TRUNCATE groups",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await engine.for_tenant(one).write(
                    lambda transaction, sql=sql: transaction.fetch(sql)
                )

    with_engine(settings, attempt)


FORGOTTEN: list[tuple[Any, str, Callable[[Client, Names], Any]]] = [
    (catalog, "_GROUP_SIZES", lambda c, foreign: c.get("/v1/groups")),
    (reading, "_LATEST_SIZES", lambda c, foreign: c.get(f"/v1/reviews/{foreign['group']}")),
    (file_records, "_SELECT", lambda c, foreign: c.get(f"/v1/files/{foreign['file']}")),
    (cookies, "COOKIES", lambda c, foreign: c.get("/v1/cookies")),
]


@pytest.mark.parametrize(("module", "name", "ask"), FORGOTTEN)
def test_a_statement_without_a_filter_shows_clients_no_foreign_row(
    service: Service,
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    ask: Callable[[Client, Names], Any],
) -> None:
    """PostgreSQL filters the rows, SQLite rejects the statement."""
    with service.client() as one, service.client() as two:
        foreign = create_one_of_everything(one)
        create_one_of_everything(two)
        before = ask(two, foreign)
        kept = getattr(module, name)
        if isinstance(kept, RecordKind):
            sql = kept.statements
            changed = sql._replace(list_all=_forgetful(sql.list_all))
            monkeypatch.setitem(vars(kept), "statements", changed)
        else:
            monkeypatch.setattr(module, name, _forgetful(kept))
        answer = ask(two, foreign)
    if engine == "sqlite":
        assert answer.status_code == 500
    else:
        assert (answer.status_code, answer.content) == (before.status_code, before.content)


def _forgetful(sql: str) -> str:
    return re.sub(r"((\w+\.)?organization_id) = \$1", r"(\1 = $1 OR TRUE)", sql)


RIGHTS = """
SELECT relname, relrowsecurity AND relforcerowsecurity AND EXISTS
    (SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid AND polname = 'tenant_isolation'),
    has_table_privilege('gleanery_serving', oid, 'SELECT, INSERT, DELETE'),
    has_table_privilege('gleanery_serving', oid, 'UPDATE'),
    has_table_privilege('gleanery_serving', oid, 'TRUNCATE, REFERENCES, TRIGGER')
FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "lost"),
    [
        ([], ""),
        (["--no-owner", "--no-privileges"], ""),
        ([], "ALTER TABLE public.groups DISABLE ROW LEVEL SECURITY"),
        ([], "DROP POLICY tenant_isolation ON public.cookies"),
    ],
)
def test_row_security_is_active_after_a_dump_is_loaded(
    kept_apart: Any, postgres: PostgresServer, options: list[str], lost: str
) -> None:
    settings, [_, two] = kept_apart
    again = replace(settings, database=postgres.new_database(), same_data=True)
    postgres.load(again.database, postgres.dump(settings.database, *options) + lost.encode())
    asyncio.run(prepare(again))

    async def look(engine: Engine) -> None:
        assert await engine.security_warning() is None
        found = {table: tuple(has) for table, *has in await engine.read(RIGHTS)}
        assert found == {
            **{table: (True, True, table != "audit_log", False) for table in tenancy.TENANT_TABLES},
            **dict.fromkeys(tenancy.SHARED_TABLES, (False, True, True, False)),
        }
        assert await engine.read("SELECT nextval('output_ids')")
        for table in ("groups", "cookies"):
            sql = f"SELECT DISTINCT organization_id FROM {table}"
            assert [row[0] for row in await engine.for_tenant(two).read(sql)] == [two]
            assert not await engine.read(sql)

    with_engine(again, look)


# --- users without superuser rights-------------------------------------------------------------


@pytest.mark.thorough
def test_row_security_holds_for_an_owner_without_createrole(
    kept_apart: Any,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Simulates a managed server: the role exists already, for another database."""
    owner = postgres.new_user("")
    url = postgres.new_database(owner)
    settings = Settings(
        data=tmp_path, database=url, secret_key=SECRET_KEY, port=0, log_level="warning"
    )
    with caplog.at_level(logging.WARNING):
        service = Service(settings)
        with service.client() as one, service.client() as two:
            organizations = [
                int(create_one_of_everything(client)["organization"]) for client in (one, two)
            ]
    service.stop()
    assert [vars(line)["reason"] for line in caplog.records if "row-level" in line.message]

    async def look(engine: Engine) -> tuple[str | None, list[Any]]:
        [row] = await engine.for_tenant(organizations[0]).read(
            "SELECT DISTINCT organization_id FROM jobs"
        )
        assert row[0] == organizations[0]
        return await engine.security_warning(), list(await engine.read("SELECT current_user"))

    security_warning, [[user]] = with_engine(settings, look)
    assert user == owner
    assert security_warning is not None
    assert "GRANT gleanery_serving TO" in security_warning

    postgres.run(f"GRANT gleanery_serving TO {owner}")
    assert with_engine(settings, look) == (None, [("gleanery_serving",)])

    dump = postgres.dump(url, "--enable-row-security", PGOPTIONS="-c gleanery.organization=-1")
    assert dump.count(b"\tgroup-") >= 2  # the groups of both organizations

    # A migration works on the rows of all, although its user cannot bypass row-level security.
    newer = migrations.Migration(9999, "of tomorrow", "UPDATE groups SET display_name = 'moved'")
    known = (*migrations.known("postgres"), newer)
    monkeypatch.setattr(migrations, "known", lambda engine: known)
    asyncio.run(prepare(settings))
    moved = "SELECT DISTINCT display_name FROM groups"
    rows = with_engine(settings, lambda e: e.for_all_tenants().read(moved))
    assert [tuple(row) for row in rows] == [("moved",)]


@pytest.mark.thorough
def test_a_user_without_tables_can_serve_those_of_an_owner(
    kept_apart: Any, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, user = postgres.new_user(""), postgres.new_user("")
    made = Settings(data=tmp_path, database=postgres.new_database(owner), secret_key=SECRET_KEY)
    served = replace(made, database=str(made.database).replace(owner, user), port=0)
    asyncio.run(prepare(made))
    with pytest.raises(SettingsError, match="GRANT gleanery_serving TO"):
        asyncio.run(prepare(served))
    postgres.run(f"GRANT gleanery_serving TO {user}")
    service = Service(served)
    with service.client() as one, service.client() as two:
        organizations = [
            int(create_one_of_everything(client)["organization"]) for client in (one, two)
        ]
    service.stop()

    async def take_down(transaction: Transaction) -> None:
        await transaction.fetch("RESET ROLE")
        await transaction.fetch("ALTER TABLE groups DISABLE ROW LEVEL SECURITY")

    async def attempt(engine: Engine) -> None:
        assert await engine.security_warning() is None
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="must be owner"):
            await engine.for_tenant(organizations[0]).write(take_down)

    with_engine(served, attempt)
    newer = migrations.Migration(9999, "of tomorrow", "SELECT 1")
    known = (*migrations.known("postgres"), newer)
    monkeypatch.setattr(migrations, "known", lambda engine: known)
    with pytest.raises(SettingsError, match="run gleanery migrate"):
        asyncio.run(prepare(served))


def test_a_user_who_bypasses_row_security_is_refused(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    owner = postgres.new_user("BYPASSRLS")
    url = postgres.new_database(owner)
    with pytest.raises(SettingsError, match="bypasses row-level security"):
        asyncio.run(prepare(Settings(data=tmp_path, database=url, secret_key=SECRET_KEY)))


def test_an_owner_with_createrole_creates_the_serving_role(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    owner = postgres.new_user("CREATEROLE")
    postgres.run("ALTER ROLE gleanery_serving RENAME TO gleanery_serving_elsewhere")
    try:
        url = postgres.new_database(owner)
        settings = Settings(data=tmp_path, database=url, secret_key=SECRET_KEY)
        asyncio.run(prepare(settings))
        assert with_engine(settings, lambda engine: engine.security_warning()) is None
    finally:
        postgres.run("ALTER ROLE gleanery_serving RENAME TO gleanery_serving_of_a_test")
        postgres.run("ALTER ROLE gleanery_serving_elsewhere RENAME TO gleanery_serving")
