"""Query plans on both engines: no statement scans a group or sorts it, with or without statistics.

The service keeps a plan while a table grows, so a plan for an empty table must be right, too.
PostgreSQL collects statistics by itself at any time. These tests switch that off, so that the state
of the database decides which plan they see.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import asyncpg
import pytest

from gleanery.common.settings import Settings
from gleanery.service.maintenance import organization_removal, retention
from gleanery.service.processes.start import prepare
from gleanery.service.resources.audit import log
from gleanery.service.resources.fields import batch_runs, ended_runs, job_statistics, recording
from gleanery.service.resources.fields import reading as fields_reading
from gleanery.service.resources.groups import catalog, overview
from gleanery.service.resources.monitors import alert_pages, alerts, evaluation, suggestions
from gleanery.service.resources.monitors import reading as monitors_reading
from gleanery.service.resources.monitors import settings as monitors_settings
from gleanery.service.resources.monitors.models import State
from gleanery.service.resources.outputs import apply, rows
from gleanery.service.resources.reviews import reading
from gleanery.service.resources.run_records import comparison
from gleanery.service.resources.run_records import rows as run_rows
from gleanery.service.resources.runs import changing as runs_changing
from gleanery.service.resources.runs import console as runs_console
from gleanery.service.resources.runs import reading as runs_reading
from gleanery.service.resources.sessions import (
    console,
    cookies,
    local_storage,
    states,
    summaries,
)
from gleanery.service.resources.sessions.kinds import RecordKind
from gleanery.service.storage import group_lock, tenancy
from gleanery.service.storage.database import Statement
from gleanery.service.storage.engines import create_engine
from gleanery.service.storage.postgres.database import PostgresDatabase
from gleanery.service.storage.postgres.transactions import over_arrays, to_postgres
from gleanery.service.storage.sqlite.connections import for_key_array, to_sqlite
from tests.support.batches import batches
from tests.support.databases import open_sqlite, undo_newest_migration
from tests.support.outputs import output
from tests.support.service import Service
from tests.support.settings import fresh_settings
from tests.support.statements import FILTERS, MISSING, all_statements, page_statements

pytestmark = pytest.mark.thorough

OUTPUTS = 3000
RUNS = 400
STATES = ("empty", "equal values", "different values", "equal values analyzed")
STATES += ("different values analyzed",)
NO_STATISTICS = """
DO $$ DECLARE name regclass; BEGIN
    FOR name IN SELECT oid FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
    LOOP EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', name); END LOOP;
END $$
"""
HAS_STATISTICS = {
    "sqlite": "SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_stat1'",
    "postgres": "SELECT count(*) FROM pg_stats WHERE schemaname = 'public'",
}
ON_OUTPUTS = {
    name: sql
    for name, sql in all_statements().items()
    if re.search(r"\b(FROM|UPDATE) outputs\b", to_postgres(sql))
}
# The newest alert of each run; a tenth of them is open.
ALERTS = """
INSERT INTO alerts (organization_id, alert_id, group_id, job_id, kind, labels, rule, facts, usual,
    observed, run_id, last_run_id, last_run, run_count, opened_at, closed_at, close_reason)
SELECT organization_id, run_id, group_id, job_id, 'failed_run', '', '{}', '{}', '{}', '{}', run_id,
    run_id, id, 1, started_at, CASE WHEN id % 10 > 0 THEN started_at END,
    CASE WHEN id % 10 > 0 THEN 'over' END
FROM runs
"""
MISSING_INDEX = "outputs_by_missing"
MISSING_OF_JOB_INDEX = "outputs_missing_by_job"
SORTS_SEVERAL_PAGES = {  # only on PostgreSQL
    f"changes.feed.{source}.{statement}"
    for source in ("FULL", "APPROVED")
    for statement in ("changes", "sizes")
}


class Access(NamedTuple):
    """A way in which a plan reads a table."""

    table: str
    bounds: frozenset[str]
    """Columns and operators that bound what is read from an index, such as ``seq >``."""
    tested: frozenset[str]
    """Columns that are tested in each row. SQLite does not tell them."""
    index: str | None = None


class Plan(NamedTuple):
    accesses: list[Access]
    sorts: bool

    def of(self, table: str) -> list[Access]:
        return [access for access in self.accesses if access.table == table]


# --- the states of the database -----------------------------------------------------------------


def in_database(settings: Settings, sqlite: str, postgres: str) -> list[Any]:
    """Runs SQL as the owner of the database, outside the service."""
    if settings.database is None:
        connection = open_sqlite(settings.sqlite_file)
        found = connection.execute(sqlite).fetchall()
        connection.close()
        return found

    async def run(url: str) -> list[Any]:
        owner: Any = await asyncpg.connect(url)
        try:
            return list(await owner.fetch(postgres))
        finally:
            await owner.close()

    return asyncio.run(run(settings.database))


def fill(settings: Settings, state: str) -> None:
    kinds = 1 if state.startswith("equal") else 20
    countries = ("Germany", "France", "Spain", "Italy")
    service = Service(settings)
    with service.client() as client:
        batch = []
        for number in range(OUTPUTS):
            kind = number % kinds
            tags = {"country": countries[kind % 4], "region": f"DE-{kind:02}"}
            url = f"https://shop.example/{number if kinds > 1 else 0}"
            members = {"key": f"{number}", "source_url": url, "tags": tags}
            batch.append(output(number, job_id=f"job {kind}", **members))
        client.store("group", *batch)
        reviewed = ("job 0", "job 1")[:kinds]
        for job in reviewed:
            review = {"job_id": job, "status": "approved"}
            assert client.post("/v1/reviews/group", json=review).status_code == 200
        changed = [one | {"data": {}} for one in batch if one["job_id"] == reviewed[-1]]
        client.store("group", *changed)
        for number in range(RUNS):
            job = {"job_id": f"job {number % kinds}"}
            run_id = client.post("/v1/runs/group", json=job).json()["run_id"]
            client.post(f"/v1/runs/group/{run_id}/finish", json={"status": "failed"})
    service.stop()
    in_database(settings, ALERTS, ALERTS)


class Planner:
    """Asks a database for its plans, on one connection of the service."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        self._engine = create_engine(settings)
        self._runner.run(self._engine.open())

    def plan(self, sql: Statement) -> Plan:
        """The plan that the service uses for the statement, whatever its values are."""
        if isinstance(self._engine, PostgresDatabase):
            return self._runner.run(self._postgres_plan(self._engine, to_postgres(sql)))
        return self.sqlite_plan(to_sqlite(sql, tenancy.ALL_TENANTS))

    async def _postgres_plan(self, engine: PostgresDatabase, sql: str) -> Plan:
        async with engine._connections.read(1) as connection:
            await connection.execute(f"PREPARE asked AS {sql}")
            values = ", ".join(["NULL"] * parameters(sql))
            # The plan of a recursive step is known only after it has run.
            analyze = "ANALYZE, " if "WITH RECURSIVE" in sql else ""
            explain = f"EXPLAIN ({analyze}FORMAT JSON) EXECUTE asked"
            explain += f"({values})" if values else ""
            found = json.loads(await connection.fetchval(explain))
            await connection.execute("DEALLOCATE asked")
        return plan_of(list(nodes_of(found[0]["Plan"])))

    def sqlite_plan(self, sql: str, *values: Any) -> Plan:
        connection = apsw.Connection(str(self._settings.sqlite_file))
        nothing = (None,) * parameters(sql)
        rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values or nothing)
        steps = [row[3] for row in rows]
        connection.close()
        found = [re.match(r"(?:SEARCH|SCAN) (\w+)(?:.*?\((.*)\))?", step) for step in steps]
        index = re.compile(r".* INDEX (\w+)")
        accesses = [
            Access(
                match[1],
                frozenset(re.findall(r"(\w+[=<>])", match[2] or "")),
                frozenset(),
                named[1] if (named := index.match(step)) else None,
            )
            for match, step in zip(found, steps, strict=True)
            if match is not None
        ]
        return Plan(accesses, any("TEMP B-TREE" in step for step in steps))

    def close(self) -> None:
        self._runner.run(self._engine.close())
        self._runner.close()


@pytest.fixture(scope="module", params=STATES)
def planner(
    request: pytest.FixtureRequest, engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Planner]:
    """Plans of a database in a known state: its rows, and whether it has statistics of them."""
    state = str(request.param)
    settings = fresh_settings(engine, request, tmp_path_factory.mktemp("plans"))
    asyncio.run(prepare(settings))
    in_database(settings, "SELECT 1", NO_STATISTICS)
    if state != "empty":
        fill(settings, state)
    if state.endswith("analyzed"):
        in_database(settings, "ANALYZE", "ANALYZE")
    [[statistics]] = in_database(settings, *HAS_STATISTICS.values())
    assert bool(statistics) == state.endswith("analyzed")
    planner = Planner(settings)
    yield planner
    planner.close()


def parameters(sql: str) -> int:
    return max((int(number) for number in re.findall(r"[$?](\d+)", sql)), default=0)


def plan_of(nodes: list[dict[str, Any]]) -> Plan:
    """The accesses and sorts in the nodes of a PostgreSQL plan."""
    accesses = [
        Access(
            node["Relation Name"],
            frozenset(column + operator[0] for column, operator in compared(node, "Index Cond")),
            frozenset(column for column, _ in compared(node, "Filter")),
            node.get("Index Name"),
        )
        for node in nodes
        if node["Node Type"] in ("Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan")
    ]
    return Plan(accesses, any("Sort" in node["Node Type"] for node in nodes))


def nodes_of(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", ()):
        yield from nodes_of(inner)


def compared(node: dict[str, Any], part: str) -> list[tuple[str, str]]:
    return re.findall(r"\((\w+) (=|>=?|<=?|IS) ", node.get(part, ""))


# --- outputs ------------------------------------------------------------------------------------


def is_seek(access: Access) -> bool:
    """True if it reads one output, or a part of the change order and no row beside it."""
    if "identity=" in access.bounds:
        return True
    is_range = "group_id=" in access.bounds and bool(access.bounds & {"seq=", "seq>", "seq<"})
    return is_range and not access.tested & {"group_id", "seq", *FILTERS}


@pytest.mark.parametrize("names", batches(ON_OUTPUTS))
def test_outputs_are_found_by_seeks(planner: Planner, engine: str, names: list[str]) -> None:
    for name in names:
        assert_seeks(planner, engine, name)


def assert_seeks(planner: Planner, engine: str, name: str) -> None:
    found = planner.plan(ON_OUTPUTS[name])
    assert found.of("outputs")
    accesses = [*found.of("outputs"), *found.of("approved_versions")]
    assert [access for access in accesses if not is_seek(access)] == []
    assert not found.sorts or (engine == "postgres" and name in SORTS_SEVERAL_PAGES)
    bounds = {bound for access in found.of("outputs") for bound in access.bounds}
    filters = {
        f"{column}=" for column in FILTERS if f"{column} = " in to_postgres(ON_OUTPUTS[name])
    }
    if name.endswith("in the view"):
        copies = {bound for access in found.of("approved_versions") for bound in access.bounds}
        assert filters - {"approved="} <= copies
        if "job_id=" in filters:  # an index of an expression
            assert "outputs_approved_by_job" in {access.index for access in found.of("outputs")}
            filters.remove("job_id=")
    assert "identity=" in bounds or filters <= bounds
    if ON_OUTPUTS[name] is runs_changing.MISSING:  # the missing outputs of other jobs are not read
        assert [access.index for access in found.of("outputs")] == [MISSING_OF_JOB_INDEX]
    elif f"{MISSING} > 0" in to_postgres(ON_OUTPUTS[name]):
        assert MISSING_INDEX in {access.index for access in found.of("outputs")}


@pytest.mark.parametrize("filters", page_statements(), ids="+".join)
def test_a_page_seeks_each_filter_in_its_index(planner: Planner, filters: tuple[str, ...]) -> None:
    found = planner.plan(page_statements()[filters].within("", f" LIMIT ${len(filters) + 4}"))
    for name in filters:
        bounds = {f"{name}=", "seq>"} - {f"{MISSING}="}
        accesses = [access for access in found.of("outputs") if access.bounds >= bounds]
        assert name != MISSING or MISSING_INDEX in {access.index for access in accesses}
        assert accesses
    if len(filters) > 1:  # the item is found by its sequence number
        assert any(access.bounds == {"group_id=", "seq="} for access in found.of("outputs"))


def test_an_upgraded_database_seeks_the_approval(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Statistics of the version before say that the approval has one value."""
    settings = fresh_settings(engine, request, tmp_path)
    asyncio.run(prepare(settings))
    in_database(settings, "SELECT 1", NO_STATISTICS)
    fill(settings, "equal values")
    undo_newest_migration(settings)
    in_database(settings, "ANALYZE", "ANALYZE")
    asyncio.run(prepare(settings))
    planner = Planner(settings)
    [access] = planner.plan(page_statements()["approved",]).of("outputs")
    planner.close()
    assert access.bounds == {"group_id=", "approved=", "seq>"}


MANY = {
    "fetch": (apply.FETCH_ROWS, ["int8", "bytea"]),
    "fetch unparsed": (apply.FETCH_UNPARSED, ["int8", "bytea"]),
    "fetch with versions": (apply.FETCH_WITH_VERSIONS, ["int8", "bytea"]),
    "update last_scraped_at": (
        rows.UPDATE_LAST_SCRAPED,
        ["int8", "int8", "bytea", "int8", "bytea"],
    ),
    "copy approved": (rows._COPY, ["int8", "bytea"]),
    "update seq": (rows.UPDATE_SEQ, ["int8", "bytea", "int8", "bool", "int8", "bytea", "int8"]),
}


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("name", MANY)
def test_many_outputs_are_found_each_by_its_identity(planner: Planner, name: str) -> None:
    sql, types = MANY[name]
    for scalars in (0, len(types) - 1):  # the key is an array, or all values are
        statement = over_arrays(sql, types, scalars)
        assert statement is not None
        found = planner.plan(statement)
        [access] = found.of("outputs")
        assert access.bounds == {"identity=", "organization_id="}
        assert not found.sorts


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "name", ["fetch", "fetch unparsed", "fetch with versions", "update last_scraped_at"]
)
def test_an_array_of_keys_is_looked_up_key_by_key(planner: Planner, name: str) -> None:
    sql, types = MANY[name]
    statement = for_key_array(sql, len(types), tenancy.ANY_TENANT)
    keys = apsw.carray((b"x" * 16, b"y" * 16))
    found = planner.sqlite_plan(statement, *([1] * (len(types) - 1)), keys)
    assert [access.bounds for access in found.of("outputs")] == [{"identity=", "organization_id="}]


# --- the audit log ------------------------------------------------------------------------------


def test_a_page_of_the_audit_log_is_a_seek(planner: Planner) -> None:
    found = planner.plan(log._PAGE)
    assert [access.bounds for access in found.of("audit_log")] == [{"organization_id=", "id>"}]
    assert not found.sorts


# --- lists --------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_many_jobs_are_found_each_by_its_name(planner: Planner) -> None:
    statement = over_arrays(group_lock._FIND_JOB, ["int8", "int8", "text"])
    assert statement is not None
    found = planner.plan(statement)
    expected = {"organization_id=", "group_id=", "name="}
    assert [access.bounds for access in found.of("jobs")] == [expected]


def test_a_job_is_found_by_its_name(planner: Planner) -> None:
    found = planner.plan(group_lock._FIND_JOB)
    expected = {"organization_id=", "group_id=", "name="}
    assert [access.bounds for access in found.of("jobs")] == [expected]


def test_a_part_of_the_jobs_is_read_by_a_seek(planner: Planner) -> None:
    """Both ends of the part must bound the seek, or it would read all later jobs of the group."""
    [access] = planner.plan(catalog._JOB_ROWS).of("jobs")
    assert access.bounds & {"group_id="}
    assert access.bounds >= {"id>", "id<"} or access.bounds >= {"rowid>", "rowid<"}
    assert not access.tested & {"group_id", "id"}


def test_jobs_of_a_group_are_listed_by_a_seek(planner: Planner) -> None:
    for sql in (catalog._JOB_SIZES, catalog._JOBS_OF_GROUPS):
        found = planner.plan(sql)
        [access] = found.of("jobs")
        assert access.bounds & {"group_id<", "group_id>"}
        assert not access.tested & {"group_id", "id"}
        assert not found.sorts


def test_waiting_jobs_are_listed_by_a_seek(planner: Planner) -> None:
    found = planner.plan(overview._WAITING)
    [access] = found.of("jobs")
    assert access.index == "jobs_waiting"
    assert not found.sorts
    [access] = found.of("approved_versions")
    assert access.bounds >= {"group_id=", "job_id>", "job_id<"}
    [access] = planner.plan(overview._REMOVED).of("tombstones")
    assert access.bounds >= {"group_id=", "seq>"}


def test_the_overview_of_groups_is_read_by_seeks(planner: Planner) -> None:
    found = planner.plan(overview._GROUPS)
    [access] = found.of("groups")
    assert "name>" in access.bounds
    [access] = found.of("jobs")
    assert access.bounds >= {"organization_id=", "group_id="}
    assert not found.sorts
    found = planner.plan(overview._JOBS)
    [access] = found.of("jobs")
    assert "group_id=" in access.bounds
    assert not found.sorts


def test_held_removals_are_listed_by_a_seek(planner: Planner) -> None:
    found = planner.plan(runs_console._HELD)
    [access] = found.of("runs")
    assert access.index == "runs_held"
    assert access.bounds & {"id<", "rowid<"}
    assert not found.sorts


def test_the_newest_runs_of_a_job_are_not_sorted(planner: Planner) -> None:
    found = planner.plan(runs_console._NEIGHBOURS_OF_JOB)
    [access] = found.of("runs")
    assert access.index == "runs_of_job"
    assert access.bounds >= {"group_id=", "job_id="}
    assert not found.sorts


@pytest.mark.parametrize("kind", [cookies.COOKIES, local_storage.LOCAL_STORAGE])
@pytest.mark.parametrize("name", ["find", "delete_one"])
def test_a_session_record_is_found_by_its_identity(
    planner: Planner, kind: RecordKind[Any, Any], name: str
) -> None:
    found = planner.plan(getattr(kind.statements, name))
    [access] = found.of(kind.table)
    assert "identity=" in access.bounds


@pytest.mark.parametrize("kind", [cookies.COOKIES, local_storage.LOCAL_STORAGE])
def test_a_write_without_partitions_does_not_read_the_other_records(
    planner: Planner, kind: RecordKind[Any, Any]
) -> None:
    for sql in (kind.statements.any_alternative, kind.statements.find_alternatives):
        [access] = planner.plan(sql).of(kind.table)
        assert access.index in ("cookies_partitioned", "local_storage_with_origin")


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("kind", [cookies.COOKIES, local_storage.LOCAL_STORAGE])
def test_many_session_records_are_found_each_by_its_identity(
    planner: Planner, kind: RecordKind[Any, Any]
) -> None:
    statement = over_arrays(kind.statements.find, ["int8", "bytea", "int8"])
    assert statement is not None
    found = planner.plan(statement)
    [access] = found.of(kind.table)
    assert "identity=" in access.bounds


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("kind", [cookies.COOKIES, local_storage.LOCAL_STORAGE])
def test_session_records_of_many_hosts_are_found_by_each_host(
    planner: Planner, kind: RecordKind[Any, Any]
) -> None:
    types = ["int8", "text", "text", *["int8"] * kind.has_groups]
    statement = over_arrays(kind.statements.list_host, types)
    assert statement is not None
    [access] = planner.plan(statement).of(kind.table)
    assert access.bounds >= {"organization_id=", "host=", "profile="}


@pytest.mark.parametrize("kind", [cookies.COOKIES, local_storage.LOCAL_STORAGE])
@pytest.mark.parametrize("name", ["sizes_of_all", "sizes_of_visible", "list_all", "list_visible"])
def test_session_records_are_listed_by_a_seek(
    planner: Planner, kind: RecordKind[Any, Any], name: str
) -> None:
    found = planner.plan(getattr(kind.statements, name))
    [access] = found.of(kind.table)
    assert access.bounds >= {"organization_id=", "id>"}
    assert not found.sorts


@pytest.mark.parametrize("kind", [cookies.COOKIES, local_storage.LOCAL_STORAGE])
@pytest.mark.parametrize("name", ["delete", "list_host"])
def test_session_records_of_a_host_are_found_by_it(
    planner: Planner, kind: RecordKind[Any, Any], name: str
) -> None:
    found = planner.plan(getattr(kind.statements, name))
    [access] = found.of(kind.table)
    assert access.bounds >= {"organization_id=", "host=", "profile="}


@pytest.mark.parametrize("kind", [cookies.COOKIES, local_storage.LOCAL_STORAGE])
@pytest.mark.parametrize("has_subdomains", [False, True])
def test_an_export_of_a_host_reads_the_index_of_hosts(
    planner: Planner, kind: RecordKind[Any, Any], has_subdomains: bool
) -> None:
    for sql in states._statements(kind, 2, False, has_subdomains):
        [access] = planner.plan(sql).of(kind.table)
        assert access.index == f"{kind.table}_by_host"


@pytest.mark.parametrize("name", ["_ALL", "_OF_HOST", "_OF_PROFILE", "_OF_HOST_AND_PROFILE"])
def test_sessions_are_counted_in_the_index_of_hosts(planner: Planner, name: str) -> None:
    found = planner.plan(getattr(summaries, name))
    for table in ("cookies", "local_storage"):
        [access] = found.of(table)
        assert "organization_id=" in access.bounds
        assert not access.tested & {"host", "profile"}


@pytest.mark.parametrize("name", ["_LIST_COOKIES", "_LIST_ENTRIES"])
def test_records_without_values_are_found_by_their_host(planner: Planner, name: str) -> None:
    table = "cookies" if name == "_LIST_COOKIES" else "local_storage"
    [access] = planner.plan(getattr(console, name)).of(table)
    assert access.index == f"{table}_by_host"
    assert access.bounds >= {"organization_id=", "host=", "profile="}


@pytest.mark.parametrize("name", ["_FIND_COOKIE", "_FIND_ENTRY"])
def test_one_value_is_found_by_its_id(planner: Planner, name: str) -> None:
    table = "cookies" if name == "_FIND_COOKIE" else "local_storage"
    [access] = planner.plan(getattr(console, name)).of(table)
    assert access.bounds >= {"id>", "id<"} or access.bounds >= {"rowid>", "rowid<"}


def test_expiring_records_are_found_by_their_expiry(planner: Planner) -> None:
    for table, sql in zip(("cookies", "local_storage"), summaries.EXPIRING_STATEMENTS, strict=True):
        found = planner.plan(sql)
        [access] = found.of(table)
        assert access.index == f"{table}_expiring"
        assert access.bounds == {"organization_id=", "expires<"}
        assert not found.sorts


def test_reviews_are_listed_by_a_seek(planner: Planner) -> None:
    for sql in (reading._LATEST_SIZES, reading._LATEST_ROWS):
        found = planner.plan(sql)
        [access] = found.of("jobs")
        assert access.bounds >= {"group_id=", "latest_review_id<"}
        assert not found.sorts
    for sql in (reading._HISTORY_SIZES, reading._HISTORY_ROWS):
        found = planner.plan(sql)
        [access] = found.of("reviews")
        assert "group_id=" in access.bounds
        assert access.bounds & {"id<", "rowid<"}
        assert not found.sorts


def test_a_review_is_found_by_its_id(planner: Planner) -> None:
    [access] = planner.plan(reading._ONE).of("reviews")
    assert access.bounds == {"organization_id=", "review_id="}


def test_the_newest_reviews_of_a_job_are_not_sorted(planner: Planner) -> None:
    found = planner.plan(reading._NEWEST)
    [access] = found.of("reviews")
    assert access.index == "reviews_of_job"
    assert access.bounds >= {"group_id=", "job_id="}
    assert not found.sorts


def test_the_last_approval_of_a_job_is_not_searched_among_its_reviews(planner: Planner) -> None:
    found = planner.plan(reading._LAST_APPROVAL)
    [access] = found.of("reviews")
    assert access.index == "reviews_approving_job"
    assert access.bounds >= {"group_id=", "job_id="}
    assert not found.sorts


# --- runs ---------------------------------------------------------------------------------------

OF_RUNS: dict[str, tuple[Statement, str, set[str]]] = {
    "page of a group": (runs_reading._OF_GROUP, "runs_of_group", {"group_id="}),
    "page of a job": (runs_reading._OF_JOB, "runs_of_job", {"group_id=", "job_id="}),
    "one": (runs_reading.ONE, "runs_by_run_id", {"run_id=", "organization_id="}),
    "one of a batch": (run_rows._FIND, "runs_by_run_id", {"run_id=", "organization_id="}),
    "open": (run_rows._OPEN, "runs_open", {"group_id=", "job_id="}),
    "last ones": (run_rows._LAST_SEEN, "runs_of_job", {"group_id=", "job_id="}),
    "newest": (ended_runs._NEWEST, "runs_of_job", {"group_id=", "job_id="}),
    "with fields": (fields_reading._RUNS, "runs_of_job", {"group_id=", "job_id="}),
    "fields to forget": (ended_runs._FORGET_FIELDS, "runs_of_job", {"group_id=", "job_id="}),
    "old ones": (ended_runs._DELETE_OLD, "runs_of_job", {"group_id=", "job_id="}),
    "removals": (runs_changing._REMOVALS_OF_JOB, "runs_open", {"group_id=", "job_id="}),
    "last one that tells": (retention._LAST_RUN, "runs_of_job", {"group_id=", "job_id="}),
    "endless": (retention._ENDLESS_RUN, "runs_open", {"group_id=", "job_id="}),
    "first unjudged": (monitors_reading._FIRST_UNJUDGED, "runs_open", {"group_id=", "job_id="}),
    "usual": (monitors_reading._EARLIER, "runs_usual", {"group_id=", "job_id="}),
    "past": (monitors_reading._PAST, "runs_of_job", {"group_id=", "job_id="}),
    "failures": (monitors_reading._STATUSES, "runs_of_job", {"group_id=", "job_id="}),
    "starts": (evaluation._STARTS, "runs_of_job", {"group_id=", "job_id="}),
    "oldest model": (ended_runs._OLDEST_MODEL, "runs_usual", {"group_id=", "job_id="}),
}
SORTS_FEW = ("first unjudged",)
"""The open runs of a job are few."""


@pytest.mark.parametrize("name", OF_RUNS)
def test_runs_are_found_by_seeks(planner: Planner, name: str) -> None:
    sql, index, bounds = OF_RUNS[name]
    found = planner.plan(sql)
    by_key = [access for access in found.of("runs") if access.bounds & {"id=", "rowid="}]
    others = [access for access in found.of("runs") if access not in by_key]
    for access in others:
        assert access.index == index
        assert access.bounds >= bounds
    assert others
    assert not found.sorts or name in SORTS_FEW


def test_a_held_removal_is_found_among_those_of_its_job_or_those_that_are_held(
    planner: Planner,
) -> None:
    [access] = planner.plan(comparison._REPLACE_HELD).of("runs")
    assert access.index in ("runs_held", "runs_of_job")


def test_runs_with_work_are_found_by_the_index_of_open_ones(planner: Planner) -> None:
    """The sweep of each process reads them at intervals, and most runs are not open."""
    [access] = planner.plan(runs_changing._OPEN_JOBS).of("runs")
    assert access.index == "runs_open"


@pytest.mark.parametrize("name", ["_SAVE", "_END"])
def test_a_run_is_changed_by_its_key(planner: Planner, name: str) -> None:
    [access] = planner.plan(getattr(run_rows, name)).of("runs")
    assert access.bounds & {"id=", "rowid="}


KEY_OF_SIGHTING = {"organization_id=", "group_id=", "job_id=", "run_id=", "identity="}


@pytest.mark.parametrize(
    "sql", [batch_runs._TAKE, recording._DELETE_SIGHTING, organization_removal._SIGHTINGS.delete]
)
def test_sightings_are_found_by_their_key(planner: Planner, sql: str) -> None:
    [access] = planner.plan(sql).of("run_sightings")
    assert access.bounds == KEY_OF_SIGHTING


def test_the_sightings_of_a_run_are_found_by_the_start_of_their_key(planner: Planner) -> None:
    for access in planner.plan(job_statistics._FORGET_SIGHTINGS).of("run_sightings"):
        assert access.bounds >= KEY_OF_SIGHTING - {"identity="} or "identity=" in access.bounds


def test_the_sightings_of_a_job_are_found_by_the_start_of_their_key(planner: Planner) -> None:
    [access] = planner.plan(recording._SIGHTINGS).of("run_sightings")
    assert access.bounds == {"organization_id=", "group_id=", "job_id="}


def test_the_sightings_of_a_group_are_read_in_the_order_of_their_key(planner: Planner) -> None:
    found = planner.plan(organization_removal._SIGHTINGS.find)
    [access] = found.of("run_sightings")
    assert access.bounds == {"organization_id=", "group_id=", "job_id>"}
    assert not found.sorts


# --- monitors -----------------------------------------------------------------------------------

OF_JOB = {"group_id=", "job_id="}
OF_ALERTS: dict[str, tuple[Statement, str, set[str]]] = {
    "open ones of a job": (alerts._OPEN_OF_JOB, "alerts_open_of_job", OF_JOB),
    "open ones of a group": (alerts._OPEN_OF_GROUP, "alerts_open_of_group", {"group_id="}),
    "last of its kind": (alerts._LAST_MUTED, "alerts_of_job", OF_JOB),
    "accepted": (alerts._ACCEPTED, "alerts_of_job", OF_JOB),
    "interruptions": (alerts._INTERRUPTIONS, "alerts_of_job", OF_JOB),
    "newest": (alerts._NEWEST, "alerts_of_job", OF_JOB),
    "old ones": (alerts._DELETE_OLD, "alerts_of_job", OF_JOB),
    "by its name": (alert_pages._FIND, "alerts_by_alert_id", {"alert_id=", "organization_id="}),
    "state": (alerts._STATE, "alerts_by_alert_id", {"alert_id=", "organization_id="}),
}


@pytest.mark.parametrize("name", OF_ALERTS)
def test_alerts_are_found_by_seeks(planner: Planner, name: str) -> None:
    sql, index, bounds = OF_ALERTS[name]
    found = planner.plan(sql)
    [access] = found.of("alerts")
    assert access.index == index
    assert access.bounds >= bounds
    assert not found.sorts


@pytest.mark.parametrize("name", ["_UPDATE", "_CLOSE", "BY_ID", "_MUTE", "_ACKNOWLEDGE"])
def test_an_alert_is_changed_by_its_key(planner: Planner, name: str) -> None:
    [access] = planner.plan(getattr(alert_pages if name == "BY_ID" else alerts, name)).of("alerts")
    assert access.bounds & {"id=", "rowid="}


@pytest.mark.parametrize("state", [None, "open", "closed"])
@pytest.mark.parametrize("of", [0, 1, 2])
def test_a_page_of_alerts_is_a_seek(planner: Planner, state: State | None, of: int) -> None:
    """Closed alerts are most of them."""
    found = planner.plan(alert_pages.page_statement(state, of))
    [access] = found.of("alerts")
    bounds = ({"organization_id="}, {"group_id="}, OF_JOB)[of]
    assert access.bounds >= bounds
    assert access.bounds & {"id<", "rowid<"}
    assert not found.sorts


def test_overdue_jobs_are_found_in_the_order_of_their_times(planner: Planner) -> None:
    """The sweep of each process reads them at intervals."""
    found = planner.plan(evaluation._DUE_JOBS)
    [access] = found.of("jobs")
    assert access.index == "jobs_due"
    assert "run_due_at<" in access.bounds
    assert not found.sorts


def test_jobs_of_a_group_are_looked_at_again_by_a_seek(planner: Planner) -> None:
    [access] = planner.plan(monitors_settings._LOOK_AGAIN).of("jobs")
    assert "group_id=" in access.bounds


def test_recent_jobs_are_found_among_the_last_runs_of_a_group(planner: Planner) -> None:
    [access] = planner.plan(suggestions._RECENT_JOBS).of("runs")
    assert access.index == "runs_of_group"
    assert "group_id=" in access.bounds
