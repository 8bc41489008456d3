"""The service on PostgreSQL with Citus: a coordinator and two workers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.values import timestamps
from gleanery.service.processes.start import prepare
from gleanery.service.storage import tenancy
from gleanery.service.storage.database import Engine
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.postgres.citus.statements import (
    in_one_shard,
    parse_insert,
    split_script,
    with_rows,
)
from gleanery.service.storage.postgres.database import PostgresDatabase
from tests.storage.test_tenancy import OVER_ALL
from tests.support.citus import CitusServer, citus_server, execute
from tests.support.databases import undo_migrations
from tests.support.outputs import output, read_changes
from tests.support.postgres_server import PostgresServer
from tests.support.process import gleanery_in_process
from tests.support.service import SECRET_KEY, Client, Service
from tests.support.statements import statements
from tests.support.tenants import create_one_of_everything
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended

UNFILTERED = "SELECT DISTINCT organization_id FROM groups"
TABLE = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:{'|'.join(tenancy.TENANT_TABLES)})\b")
EXAMPLES: dict[str, Any] = {"int8": 1, "int4": 1, "bool": True, "text": "x", "bytea": b"x"}
EXAMPLES |= {"float8": 1.0, "numeric": 1}
TABLES = """
SELECT logicalrelid::text, partmethod = 'h', colocationid FROM pg_dist_partition
"""
WORKER_OF = """
SELECT nodename FROM pg_dist_shard_placement
WHERE shardid = get_shard_id_for_distribution_column('outputs', {})
"""


@pytest.fixture(scope="module")
def citus() -> Iterator[CitusServer]:
    with citus_server(workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def settings(citus: CitusServer, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a service on a distributed database."""
    return settings_of(citus.new_database(), tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def service(settings: Settings) -> Iterator[Service]:
    running = Service(settings)
    yield running
    running.stop()


def settings_of(url: str, folder: Path) -> Settings:
    return Settings(
        data=folder, database=url, secret_key=SECRET_KEY, port=0, log_level="warning", pool_size=5
    )


def with_engine(settings: Settings, work: Any) -> Any:
    async def run() -> Any:
        async with open_engine(settings) as engine:
            return await work(engine)

    return asyncio.run(run())


def migrate(url: str, *options: str) -> tuple[int, str]:
    """Runs ``gleanery migrate --distribute``; returns its exit status and its messages."""
    done = gleanery_in_process("migrate", "--database", url, "--distribute", *options)
    return done.returncode, done.stdout + done.stderr


# --- the command --------------------------------------------------------------------------------


def test_the_tables_are_distributed_with_their_rows(citus: CitusServer, tmp_path: Path) -> None:
    url = citus.empty_database()
    service = Service(settings_of(url, tmp_path))
    token = service.token()
    with service.client(token) as client:
        names = create_one_of_everything(client)
        before = state(client, names)
    service.stop()

    for result in ("are distributed", "were distributed already"):  # it can be repeated
        status, messages = migrate(url)
        assert (status, result in messages) == (0, True), messages

    found = {table: (is_tenant, place) for table, is_tenant, place in execute(url, TABLES)}
    assert found.keys() == {*tenancy.TENANT_TABLES, *tenancy.SHARED_TABLES}
    assert {table for table, of in found.items() if of[0]} == {*tenancy.TENANT_TABLES}
    assert len({place for is_tenant, place in found.values() if is_tenant}) == 1

    service = Service(settings_of(url, tmp_path))
    with service.client(token) as client, service.client() as other:
        assert state(client, names) == before
        client.store(names["group"], output(1))
        assert other.get(f"/v1/outputs/{names['group']}").status_code == 404
    service.stop()


def state(client: Client, names: dict[str, Any]) -> list[Any]:
    """What the client sees, without links, which have another address after a restart."""
    group = names["group"]
    paths = ("/v1/groups", "/v1/cookies", "/v1/local-storage", f"/v1/reviews/{group}")
    changes = client.get(f"/v1/changes/{group}").json()["changes"]
    return [
        *(client.get(path).json() for path in paths),
        *((change["change"], change["cursor"], change["output_id"]) for change in changes),
    ]


def test_a_server_without_citus_is_refused(postgres: PostgresServer) -> None:
    status, messages = migrate(postgres.new_database())
    assert status == 2
    assert "CREATE EXTENSION citus" in messages


def test_a_coordinator_without_workers_is_refused(citus: CitusServer) -> None:
    url = citus.coordinator.new_database()
    execute(url, "CREATE EXTENSION citus")
    status, messages = migrate(url)
    assert status == 2
    assert "citus_add_node" in messages


def test_sqlite_is_refused(tmp_path: Path) -> None:
    done = gleanery_in_process("migrate", "--data", str(tmp_path / "new"), "--distribute")
    assert done.returncode == 2
    assert "--distribute with --database" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_replica_is_refused(settings: Settings) -> None:
    url = str(settings.database)

    async def use() -> None:
        await PostgresDatabase(url, 2, replica_urls=[url]).open()

    with pytest.raises(SettingsError, match="leave out --replica"):
        asyncio.run(use())
    with pytest.raises(SettingsError, match="leave out --replica"):  # serve ends with it
        asyncio.run(prepare(replace(settings, replica=(url,))))


def test_a_migration_distributes_its_tables(citus: CitusServer, tmp_path: Path) -> None:
    settings = settings_of(citus.new_database(), tmp_path)
    undo_migrations(settings, "session_revisions")
    service = Service(settings)
    with service.client() as client:
        create_one_of_everything(client)
    service.stop()
    assert len(execute(str(settings.database), TABLES)) == len(
        {*tenancy.TENANT_TABLES, *tenancy.SHARED_TABLES}
    )


def test_a_script_is_split_into_statements() -> None:
    script = "SELECT ';'; -- a comment;\nDO $$ BEGIN NULL; END $$;\nSELECT 2;\n"
    assert [one.strip() for one in split_script(script)] == [
        "SELECT ';'",
        "DO $$ BEGIN NULL; END $$",
        "SELECT 2",
    ]


# --- tenants ------------------------------------------------------------------------------------


def test_every_tenant_sees_only_its_rows(service: Service, settings: Settings) -> None:
    names = []
    for _ in range(3):
        with service.client() as client:
            names.append(create_one_of_everything(client))
    organizations = [int(one["organization"]) for one in names]

    async def look(engine: Engine) -> None:
        assert await engine.read(UNFILTERED) == []
        for organization in organizations:
            handle = engine.for_tenant(organization)
            assert [row[0] for row in await handle.read(UNFILTERED)] == [organization]
            written = await handle.write(lambda transaction: transaction.fetch(UNFILTERED))
            assert [row[0] for row in written] == [organization]
        everyone = await engine.for_all_tenants().read(UNFILTERED)
        assert {*organizations} <= {row[0] for row in everyone}

    with_engine(settings, look)


def test_no_row_of_a_tenant_can_be_written_by_another(service: Service, settings: Settings) -> None:
    with service.client() as client:
        organization = int(create_one_of_everything(client)["organization"])

    async def write(engine: Engine) -> None:
        insert = "INSERT INTO session_revisions (organization_id, revision) VALUES ($1, 1)"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await engine.for_tenant(organization).write(
                lambda transaction: transaction.fetch(insert, organization + 1)
            )

    with_engine(settings, write)


def test_a_service_from_before_the_distribution_finds_no_wrong_rows(
    citus: CitusServer, tmp_path: Path
) -> None:
    """It does not tell the workers its tenant, so its statements fail."""
    url = citus.empty_database()
    settings = settings_of(url, tmp_path)
    service = Service(settings)
    with service.client() as client:
        client.store("group", output(1))
        assert migrate(url)[0] == 0
        assert client.get("/v1/outputs/group").status_code in (500, 503)
    service.stop()


def test_the_service_needs_no_superuser(citus: CitusServer, tmp_path: Path) -> None:
    citus.new_database()  # creates the serving role
    user = citus.new_user("NOCREATEROLE")
    citus.run(f"GRANT gleanery_serving TO {user}")
    url = citus.empty_database(user)
    service = Service(settings_of(url, tmp_path))  # creates the tables
    service.stop()
    status, messages = migrate(url.replace(user, "postgres"))
    assert status == 0, messages
    assert execute(url, TABLES)

    service = Service(settings_of(url, tmp_path))
    with service.client() as client:
        create_one_of_everything(client)
        client.store("group", *(output(number) for number in range(20)))
        assert len(client.items("group")) == 20
    service.stop()


# --- statements ---------------------------------------------------------------------------------


def test_every_statement_uses_one_shard(settings: Settings) -> None:
    async def explain_all(engine: PostgresDatabase) -> dict[str, str]:
        problems = {}
        for name, sql in statements("postgres").items():
            if name not in OVER_ALL and TABLE.search(sql) and "{" not in sql:
                for form, problem in (await explain(engine, sql)).items():
                    problems[f"{name} {form}"] = problem
        return problems

    assert with_engine(settings, explain_all) == {}


async def explain(engine: PostgresDatabase, sql: str) -> dict[str, str]:
    """Returns what is wrong with the plans of a statement and of its forms over arrays."""
    types = await parameter_types(engine, sql)
    values = [EXAMPLES[name] for name in types]
    forms: dict[str, tuple[str, list[Any]]] = {"": (sql, values)}
    for scalars in {1, len(types) - 1} - {0, len(types)}:
        if statement := in_one_shard(sql, types, scalars):
            arrays = [[value] * 8 for value in values[scalars:]]
            forms[f"over arrays after {scalars}"] = statement.sql, [*values[:scalars], *arrays]
    if parse_insert(sql):
        rows = [values[0], *(values[1:] * 4)]
        forms["with four rows"] = with_rows(sql, 4, len(values)), rows
    found = {}
    for form, (text, given) in forms.items():
        if problem := await problem_of(engine, text, given):
            found[form] = problem
    return found


async def parameter_types(engine: PostgresDatabase, sql: str) -> list[str]:
    async with engine._connections.write(1, None) as connection:
        prepared = await connection.prepare(sql)
        return [type_.name for type_ in prepared.get_parameters()]


async def problem_of(engine: PostgresDatabase, sql: str, values: list[Any]) -> str | None:
    try:
        async with engine._connections.write(1, None) as connection:
            rows = await connection.fetch(f"EXPLAIN {sql}", *values)
    except asyncpg.PostgresError as error:
        return repr(error)
    plan = "\n".join(row[0] for row in rows)
    tasks = re.findall(r"Task Count: (\d+)", plan)
    return None if tasks == ["1"] and "Subplan" not in plan else plan


def test_the_sweep_works_for_all_organizations(service: Service) -> None:
    for _ in range(2):
        with service.client() as client:
            create_one_of_everything(client)
            client.delete("/v1/groups/group")
    service.sweep(lambda: timestamps.now() + 60 * 86_400 * timestamps.SECOND)


def test_many_jobs_of_a_batch(service: Service) -> None:
    with service.client() as client:
        outputs = [output(number, job_id=f"job {number}") for number in range(20)]
        assert client.store("group", *outputs)["created"] == 20
        changed = [one | {"data": {"changed": True}} for one in outputs]
        assert client.store("group", *changed)["updated"] == 20
        for number in range(20):
            client.post("/v1/reviews/group", json={"job_id": f"job {number}", "status": "approved"})
        assert all(item["is_approved"] for item in client.items("group"))
        assert client.delete("/v1/groups/group").json() == {"deleted": 20}
        assert {change["change"] for change in read_changes(client, limit=100)["changes"]} == {
            "delete"
        }


# --- a lost worker ------------------------------------------------------------------------------


def test_only_the_organizations_of_a_lost_worker_get_503(
    citus: CitusServer, service: Service, settings: Settings
) -> None:
    clients = [service.client() for _ in range(8)]
    for client in clients:
        client.store("group", output(1))
    lost = citus.workers[0]
    affected = [is_on(lost.socket_folder, client, settings) for client in clients]
    assert {*affected} == {True, False}, "the organizations are on both workers"
    lost.stop()
    try:
        for client, is_affected in zip(clients, affected, strict=True):
            for _ in range(3):
                expected = 503 if is_affected else 200
                assert client.get("/v1/outputs/group").status_code == expected
                answer = client.post("/v1/outputs/group", json=[output(2)])
                assert answer.status_code == expected
    finally:
        lost.start()
    for client, is_affected in zip(clients, affected, strict=True):
        wait_until(lambda client=client: client.get("/v1/outputs/group").status_code == 200)  # type: ignore[misc]
        client.store("group", output(3))
        assert len(client.items("group")) == (2 if is_affected else 3)
        client.close()


def is_on(folder: str, client: Client, settings: Settings) -> bool:
    """Returns True if the rows of the client's organization are on the server of this folder."""
    page = client.post("/v1/files", params={"source_url": "https://a.example"}, content=b"a").json()
    files = [{"field": "a field", "id": page["id"]}]
    client.store("a file", output(1, files=files))
    [item] = client.items("a file")
    organization = re.findall(r"organization=(\d+)", item["files"][0]["blob_url"])[0]
    [[place]] = execute(str(settings.database), WORKER_OF.format(organization))
    return bool(place == folder)
