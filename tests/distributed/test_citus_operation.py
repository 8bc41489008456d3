"""Operation of Citus: workers that hang or are lost, and what a distribution leaves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gleanery.common.settings import Settings
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.storage.database import Transaction
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.postgres import schema
from gleanery.service.storage.postgres.citus import distribution
from tests.support.citus import CitusServer, citus_server, execute
from tests.support.outputs import output
from tests.support.postgres_versions import InstalledServer
from tests.support.process import gleanery_in_process
from tests.support.service import SECRET_KEY, Client, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended

POOL_SIZE = 5
GROUP = "INSERT INTO groups (organization_id, name, last_seq) VALUES ($1, 'group', 0)"
WORKER_OF = """
SELECT nodename FROM pg_dist_shard_placement
WHERE shardid = get_shard_id_for_distribution_column('outputs', {})
"""


@pytest.fixture(scope="module")
def citus() -> Iterator[CitusServer]:
    with citus_server(workers=2) as running:
        yield running


def settings_of(url: str, folder: Path) -> Settings:
    return Settings(
        data=folder,
        database=url,
        secret_key=SECRET_KEY,
        port=0,
        log_level="error",
        pool_size=POOL_SIZE,
    )


def distribute(url: str) -> tuple[int, str]:
    """Runs ``gleanery migrate --distribute``; returns its exit status and its messages."""
    done = gleanery_in_process("migrate", "--database", url, "--distribute")
    return done.returncode, done.stdout + done.stderr


def name_of(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def set_for_database(url: str, setting: str) -> None:
    execute(url, f"ALTER DATABASE {name_of(url)} SET {setting}")


# --- a worker that hangs or is lost --------------------------------------------------------------


def clients_by_worker(service: Service, count: int) -> dict[str, list[Client]]:
    """Clients of new organizations, each with an output, by the folder of their worker."""
    found: dict[str, list[Client]] = {}
    url = str(service.settings.database)
    for number in range(count):
        client = service.client(service.token(f"organization {number}"))
        client.store("group", output(1))
        sql = f"SELECT id FROM organizations WHERE name = 'organization {number}'"
        [[organization]] = execute(url, sql)
        [[folder]] = execute(url, WORKER_OF.format(organization))
        found.setdefault(folder, []).append(client)
    return found


def used_connections(service: Service) -> int:
    with service.stranger() as nobody:
        text = nobody.get("/metrics").text
    [used] = re.findall(r"^gleanery_postgres_pool_connections_in_use\S* (\S+)$", text, re.M)
    return int(float(used))


def test_a_worker_that_hangs_leaves_connections_for_the_others(
    citus: CitusServer, tmp_path: Path
) -> None:
    service = Service(settings_of(citus.new_database(), tmp_path))
    clients = clients_by_worker(service, 12)
    hung = citus.workers[0]
    affected = clients.pop(hung.socket_folder)
    assert len(affected) >= POOL_SIZE // 2 + 1, "enough organizations are on the worker"
    [others] = clients.values()
    hung.freeze()
    with ThreadPoolExecutor(2 * len(affected)) as threads:
        try:
            for client in affected * 2:
                threads.submit(client.get, "/v1/outputs/group")
            wait_until(lambda: used_connections(service) >= POOL_SIZE // 2)
            with service.stranger() as nobody:
                for number in range(2, 12):
                    for client in others:
                        assert client.get("/v1/outputs/group").status_code == 200
                        client.store("group", output(number))
                    assert nobody.get("/readyz").status_code == 200
        finally:
            hung.thaw()
    for client in affected:
        wait_until(lambda client=client: client.get("/v1/outputs/group").status_code == 200)  # type: ignore[misc]
    for client in (*affected, *others):
        client.close()
    service.stop()


def test_a_worker_that_is_lost_at_the_commit_is_unavailable(
    citus: CitusServer, tmp_path: Path
) -> None:
    settings = settings_of(citus.new_database(), tmp_path)
    url = str(settings.database)
    organization = 1
    [[folder]] = execute(url, WORKER_OF.format(organization))
    [worker] = [one for one in citus.workers if one.socket_folder == folder]
    insert = "INSERT INTO session_revisions (organization_id, revision) VALUES ($1, $2)"

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(insert, organization, 1)
        await asyncio.to_thread(end_transactions, worker)

    async def write() -> None:
        async with open_engine(settings) as engine:
            with pytest.raises(Unavailable):
                await engine.for_tenant(organization).write(work)

    asyncio.run(write())


def end_transactions(worker: InstalledServer) -> None:
    worker.run(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
        "WHERE application_name LIKE 'citus_internal%' AND state = 'idle in transaction'"
    )


# --- connections ---------------------------------------------------------------------------------


def test_a_read_of_all_organizations_has_one_connection_to_each_worker(
    citus: CitusServer, tmp_path: Path
) -> None:
    url = citus.empty_database()
    set_for_database(url, "citus.shard_count = 16")
    assert distribute(url)[0] == 0
    used = (
        "SELECT count(*) FROM pg_stat_activity "
        f"WHERE usename = 'gleanery_serving' AND datname = '{name_of(url)}'"
    )
    slow = "SELECT count(*) FROM (SELECT organization_id, pg_sleep(0.1) FROM groups) AS slow"

    async def insert(transaction: Transaction) -> None:
        for organization in range(1, 41):
            await transaction.fetch(GROUP, organization)

    async def read() -> None:
        async with open_engine(settings_of(url, tmp_path)) as engine:
            await engine.for_all_tenants().write(insert)
            reading = asyncio.create_task(engine.for_all_tenants().read(slow))
            most = [0, 0]
            while not reading.done():
                for number, worker in enumerate(citus.workers):
                    [[found]] = await asyncio.to_thread(worker.run, used)
                    most[number] = max(most[number], found)
            assert await reading == [(40,)]
            assert most == [1, 1]

    asyncio.run(read())


# --- the distribution ----------------------------------------------------------------------------


def local_bytes(url: str) -> bytes:
    """What the coordinator's files of the tables contain."""
    execute(url, "CHECKPOINT")
    sql = "SELECT pg_read_binary_file(pg_relation_filepath('{}'))"
    tables = ("outputs", "cookies", "organizations", "tokens", "audit_log")
    return b"".join(execute(url, sql.format(table))[0][0] for table in tables)


def test_no_old_rows_stay_on_the_coordinator(citus: CitusServer, tmp_path: Path) -> None:
    url = citus.empty_database()
    service = Service(settings_of(url, tmp_path))
    token = service.token()
    with service.client(token) as client:
        client.store("group", *(output(n, data={"text": f"needle {n}"}) for n in range(50)))
        client.post("/v1/cookies", json=[{"domain": "a.example", "name": "n", "value": "v"}])
    service.stop()
    assert b"needle" in local_bytes(url)

    assert distribute(url)[0] == 0
    assert local_bytes(url) == b""
    service = Service(settings_of(url, tmp_path))
    with service.client(token) as client:
        assert len(client.items("group")) == 50
        assert client.delete("/v1/groups/group").json() == {"deleted": 50}
    with pytest.raises(asyncpg.RaiseError, match="append-only"):
        execute(url, "TRUNCATE audit_log")
    service.stop()


def test_the_next_start_removes_what_an_interrupted_distribution_left(
    citus: CitusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = citus.empty_database()
    service = Service(settings_of(url, tmp_path))
    token = service.token()
    with service.client(token) as client:
        client.store("group", output(1))
    service.stop()

    async def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(schema, "remove_local_rows", stop)
        assert distribute(url)[0] != 0
    assert local_bytes(url)

    service = Service(settings_of(url, tmp_path))
    with service.client(token) as client:
        assert local_bytes(url) == b""
        assert len(client.items("group")) == 1
    service.stop()


def test_a_service_from_before_the_distribution_is_not_ready(
    citus: CitusServer, tmp_path: Path
) -> None:
    url = citus.empty_database()
    service = Service(settings_of(url, tmp_path))
    with service.client() as client:
        client.store("group", output(1))
        assert distribute(url)[0] == 0
        for path in ("/v1/outputs/group", "/v1/groups", "/v1/cookies"):
            assert client.get(path).status_code == 503
        answer = client.post("/v1/outputs/group", json=[output(2)])
        assert answer.status_code == 503
        wait_until(lambda: client.get("/readyz").status_code == 503)
        assert "restart it" in client.get("/readyz").text
    service.stop()


def test_the_role_gets_its_settings_even_if_it_can_log_in(citus: CitusServer) -> None:
    url = citus.new_database()
    role = "SELECT rolconfig FROM pg_roles WHERE rolname = 'gleanery_serving'"
    before = execute(url, role)
    execute(url, "ALTER ROLE gleanery_serving RESET ALL")
    assert execute(url, role) != before
    assert distribute(url)[0] == 0
    for server in (citus.coordinator, *citus.workers):
        assert server.run(role) == before


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_distribution_that_cannot_reach_a_worker_says_why(
    citus: CitusServer, is_prepared: bool
) -> None:
    """The serving role belongs to the whole server: another database may have prepared it."""
    prepared = citus.new_database()
    if not is_prepared:
        execute(prepared, "ALTER ROLE gleanery_serving RESET ALL")
    url = citus.empty_database()
    assert gleanery_in_process("migrate", "--database", url).returncode == 0
    lost = citus.workers[1]
    lost.stop()
    try:
        status, messages = distribute(url)
    finally:
        lost.start()
    assert status == 2, messages
    assert "nothing was copied" in messages
    assert lost.socket_folder in messages
    assert distribute(url)[0] == 0


@pytest.mark.parametrize("version", ["this", "earlier"])
def test_each_shard_has_one_place_whatever_the_server_prefers(
    citus: CitusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """An earlier version used the setting of the server; its database must work, too."""
    url = citus.empty_database()
    set_for_database(url, "citus.shard_replication_factor = 2")
    if version == "earlier":
        settings = distribution.SETTINGS.replace("shard_replication_factor = 1", "shard_count = 2")
        monkeypatch.setattr(distribution, "SETTINGS", settings)
    assert distribute(url)[0] == 0
    places = (
        "SELECT max(places) FROM (SELECT count(*) AS places FROM pg_dist_placement "
        "JOIN pg_dist_shard USING (shardid) WHERE logicalrelid = 'outputs'::regclass "
        "GROUP BY shardid) AS shards"
    )
    assert execute(url, places) == [(1 if version == "this" else 2,)]
    service = Service(settings_of(url, tmp_path))
    with service.client() as client:
        client.store("group", output(1))
        assert len(client.items("group")) == 1
    service.stop()
