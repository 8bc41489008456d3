"""The service behind PgBouncer, in session mode and in transaction mode."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.processes.start import prepare
from gleanery.service.storage import tenancy
from gleanery.service.storage.database import Engine, Subscription, Transaction
from gleanery.service.storage.engines import create_engine, open_engine
from tests.support.calls import note_calls
from tests.support.databases import undo_newest_migration
from tests.support.forwarder import Forwarder
from tests.support.outputs import output, read_changes
from tests.support.pgbouncer import PgBouncer, pgbouncer
from tests.support.postgres_versions import InstalledServer, installed, server_of_version
from tests.support.process import gleanery_in_process
from tests.support.service import SECRET_KEY, Client, Service
from tests.support.tenants import create_one_of_everything
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended

POOL_SIZES = {"session": 60, "transaction": 2}


@pytest.fixture(scope="module")
def server() -> Iterator[InstalledServer]:
    with server_of_version(min(installed())) as running:
        yield running


@pytest.fixture(scope="module", params=POOL_SIZES)
def pooler(server: InstalledServer, request: pytest.FixtureRequest) -> Iterator[PgBouncer]:
    with pgbouncer(server, request.param, POOL_SIZES[request.param]) as running:
        yield running


@pytest.fixture(scope="module")
def transaction_pooler(server: InstalledServer) -> Iterator[PgBouncer]:
    with pgbouncer(server, "transaction", pool_size=3) as running:
        yield running


def settings_through(pooler: PgBouncer, folder: Path) -> Settings:
    through = pooler.settings(pooler.server.new_database())
    return Settings(
        data=folder,
        **through,
        secret_key=SECRET_KEY,
        port=0,
        log_level="warning",
        max_wait_seconds=60,
    )


@pytest.fixture
def service(pooler: PgBouncer, tmp_path: Path) -> Iterator[Service]:
    running = Service(settings_through(pooler, tmp_path))
    yield running
    running.stop()


# --- what clients do ----------------------------------------------------------------------------


def test_the_fixed_routes_of_many_tenants_at_once(service: Service) -> None:
    def use(number: int) -> None:
        name = f"tenant-{number}"
        with service.client() as client:
            cookie = {"domain": "shop.example", "name": name, "value": name}
            entry = {"domain": "shop.example", "key": name, "value": name}
            for _ in range(5):
                assert client.post("/v1/cookies", json=[cookie]).status_code == 200
                assert client.post("/v1/local-storage", json=[entry]).status_code == 200
                client.store("group", *(output(n, data={"of": name}) for n in range(12)))
                review = {"job_id": "job", "status": "approved", "comment": name}
                assert client.post("/v1/reviews/group", json=review).status_code == 200
                assert [one["name"] for one in client.get("/v1/cookies").json()] == [name]
                assert [one["key"] for one in client.get("/v1/local-storage").json()] == [name]
                [latest] = client.get("/v1/reviews/group").json()
                assert latest["comment"] == name
                items = client.items("group", limit=5)
                assert [item["data"] for item in items] == [{"of": name}] * 12

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(use, number) for number in range(8)]:
            done.result()


def test_every_kind_of_thing_can_be_created(service: Service) -> None:
    with service.client() as one, service.client() as two:
        names = create_one_of_everything(one)
        assert one.get(f"/v1/outputs/{names['group']}").json()["items"]
        assert two.get(f"/v1/outputs/{names['group']}").status_code == 404


def test_a_notification_ends_a_long_poll(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = note_calls(monkeypatch, Subscription, "wait")
    with service.client() as client, ThreadPoolExecutor(1) as threads:
        client.store("group", output(1))
        cursor = read_changes(client)["cursor"]
        poll = threads.submit(read_changes, client, cursor, wait=60)
        wait_until(lambda: waits)
        client.store("group", output(2))
        [change] = poll.result()["changes"]
        assert change["output"]["source_url"] == output(2)["source_url"]


def test_a_bulk_job_of_several_steps_approves_everything(service: Service) -> None:
    with service.client() as client:
        client.store("group", *(output(number) for number in range(2500)))
        review = {"job_id": "job", "status": "approved"}
        assert client.post("/v1/reviews/group", json=review).status_code == 200
        assert len(client.items("group", approved="true", limit=1000)) == 2500
        assert client.delete("/v1/groups/group").status_code == 200
        assert client.get("/v1/outputs/group").status_code == 404


def test_a_leased_session_has_one_holder(service: Service) -> None:
    with service.client() as client:
        cookie = {"domain": "shop.example", "name": "a", "value": "b"}
        assert client.post("/v1/cookies", json=[cookie]).status_code == 200
        lease = {"domain": "shop.example", "holder": "worker", "seconds": 60}
        first = client.post("/v1/sessions/leases", json=lease)
        assert first.status_code in (200, 201), first.text
        assert client.post("/v1/sessions/leases", json=lease).status_code == 409


def test_a_pooler_that_is_replaced_is_used_again(server: InstalledServer, tmp_path: Path) -> None:
    with pgbouncer(server, "transaction", pool_size=4) as pooler:
        service = Service(settings_through(pooler, tmp_path))
        client = service.client()
        client.store("group", output(1))
    assert client.get("/v1/outputs/group").status_code == 503
    with pgbouncer(server, "transaction", pool_size=4):
        wait_until(lambda: client.get("/v1/outputs/group").status_code == 200)
        client.store("group", output(2))
        assert len(client.items("group")) == 2
        client.close()
        service.stop()


def test_feeds_are_complete_while_the_pooler_changes_to_transaction_mode(
    server: InstalledServer, tmp_path: Path
) -> None:
    """The operator has forgotten to restart the service in transaction mode first."""
    with pgbouncer(server, "session", pool_size=61) as pooler:
        service = Service(settings_through(pooler, tmp_path))
        clients = [service.client() for _ in range(4)]
        for client in clients:
            client.store("group", *(output(number) for number in range(60)))
        pooler.change(pool_mode="transaction", default_pool_size=3)
        with ThreadPoolExecutor(12) as threads:
            feeds = [threads.submit(follow_feed, client) for client in clients * 12]
            assert [feed.result() for feed in feeds] == [60] * len(feeds)
        for client in clients:
            wait_until(lambda client=client: is_stored(client, output(60)))
            assert len(client.items("group")) == 61
            client.close()
        service.stop()


def follow_feed(client: Client) -> int:
    """Returns the number of changes. A page that is not available is asked for again."""
    seen, cursor = 0, 0
    while True:
        answer = client.get("/v1/changes/group", params={"cursor": cursor, "limit": 10})
        if answer.status_code == 503:
            continue
        assert answer.status_code == 200, answer.text
        page = answer.json()
        seen, cursor = seen + len(page["changes"]), page["cursor"]
        if page["metadata"]["next_cursor"] is None:
            return seen


def is_stored(client: Client, item: dict[str, Any]) -> bool:
    answer = client.post("/v1/outputs/group", json=[item])
    assert answer.status_code in (200, 503), answer.text
    return answer.status_code == 200


def test_a_pooler_that_takes_the_place_of_the_server_is_noticed(
    transaction_pooler: PgBouncer, tmp_path: Path
) -> None:
    """The address of the database leads to a pooler from some time on."""
    forwarder = Forwarder(f"{transaction_pooler.server.folder}/.s.PGSQL.5432")
    forwarder.start()
    settings = settings_through(transaction_pooler, tmp_path)
    name = str(settings.database).partition("?")[0].rpartition("/")[2]
    url = f"postgresql://postgres@127.0.0.1:{forwarder.port}/{name}"
    service = Service(replace(settings, database=url, pooling="session"))
    clients = [service.client() for _ in range(3)]
    for client in clients:
        client.store("group", *(output(number) for number in range(60)))
    forwarder.stop()
    forwarder.target = str(transaction_pooler.socket)
    forwarder.start()
    with ThreadPoolExecutor(12) as threads:
        feeds = [threads.submit(follow_feed, client) for client in clients * 12]
        assert [feed.result() for feed in feeds] == [60] * len(feeds)
    for client in clients:
        client.close()
    service.stop()
    forwarder.stop()


def test_a_migration_runs_through_the_pooler_or_directly(pooler: PgBouncer, tmp_path: Path) -> None:
    settings = settings_through(pooler, tmp_path)
    asyncio.run(prepare(settings))
    for through in (settings, replace(settings, database=direct_url(pooler, settings))):
        undo_newest_migration(replace(settings, database=direct_url(pooler, settings)))
        options = ["--database", str(through.database), "--data", str(tmp_path)]
        mode = through.pooling if through is settings else "session"
        migrated = gleanery_in_process("migrate", *options, "--pooling", mode)
        assert migrated.returncode == 0, migrated.stderr
        with_engine(settings, lambda engine: engine.check_schema())


def direct_url(pooler: PgBouncer, settings: Settings) -> str:
    name = str(settings.database).partition("?")[0].rpartition("/")[2]
    return pooler.server.url(name)


def with_engine(settings: Settings, work: Any) -> Any:
    async def run() -> Any:
        async with open_engine(settings) as engine:
            return await work(engine)

    return asyncio.run(run())


# --- tenants ------------------------------------------------------------------------------------


@pytest.fixture
def tenants(pooler: PgBouncer, tmp_path: Path) -> tuple[Settings, list[int]]:
    """A database in which several organizations have an output."""
    settings = settings_through(pooler, tmp_path)
    service = Service(settings)
    for number in range(5):
        with service.client() as client:
            client.store("group", output(number))
    service.stop()
    sql = "SELECT organization_id FROM groups"
    rows = with_engine(settings, lambda engine: engine.for_all_tenants().read(sql))
    return settings, [row[0] for row in rows]


UNFILTERED = "SELECT organization_id FROM outputs"


def test_a_tenant_sees_its_rows_only_after_errors_and_cancellations(
    tenants: tuple[Settings, list[int]],
) -> None:
    """Every statement lacks its filter by organization, so only row-level security protects."""
    settings, organizations = tenants
    choices = random.Random(22)

    async def fail(transaction: Transaction) -> None:
        await transaction.fetch("SELECT 1 / 0")

    async def read_slowly(transaction: Transaction) -> None:
        await transaction.fetch("SELECT pg_sleep(60)")

    async def disturb(engine: Engine, organization: int) -> None:
        handle = engine.for_tenant(organization)
        kind = choices.randrange(4)
        with suppress(asyncpg.DivisionByZeroError, TimeoutError, Unavailable):
            async with asyncio.timeout(choices.random() / 20):
                if kind == 0:
                    await handle.read("SELECT 1 / 0")
                elif kind == 1:
                    await handle.read("SELECT pg_sleep(60)")
                else:
                    await handle.write(fail if kind == 2 else read_slowly)

    async def check(engine: Engine, organization: int) -> int:
        handle = engine.for_tenant(organization)
        try:
            rows = await handle.read(UNFILTERED)
            written = await handle.write(lambda transaction: transaction.fetch(UNFILTERED))
        except Unavailable:  # the cancellation of another request has met this one
            return 0
        assert [row[0] for row in rows] == [row[0] for row in written] == [organization]
        return 1

    async def tenant(engine: Engine, organization: int) -> int:
        checked = 0
        for _ in range(30):
            await disturb(engine, organization)
            checked += await check(engine, organization)
        return checked

    async def run(engine: Engine) -> list[int]:
        return await asyncio.gather(*(tenant(engine, one) for one in organizations * 3))

    checked = with_engine(settings, run)
    assert min(checked) > 0
    assert with_engine(settings, lambda engine: engine.read(UNFILTERED)) == []


def test_nothing_stays_on_the_connections_of_the_server(
    transaction_pooler: PgBouncer, tmp_path: Path
) -> None:
    service = Service(settings_through(transaction_pooler, tmp_path))
    with service.client() as client:
        create_one_of_everything(client)
        client.store("group", *(output(number) for number in range(20)))  # statements over arrays
        cookies = [{"domain": "a.example", "name": f"{n}", "value": "x"} for n in range(20)]
        assert client.post("/v1/cookies", json=cookies).status_code == 200
    database = service.settings.database

    async def look() -> set[tuple[Any, ...]]:
        connections: list[Any] = [await asyncpg.connect(database) for _ in range(3)]
        found = set()
        for connection in connections:  # their transactions hold all connections of the server
            await connection.execute("BEGIN")
            found.add(tuple(await connection.fetchrow(SESSION_STATE)))
        for connection in connections:
            await connection.close()
        return found

    state = asyncio.run(look())
    service.stop()
    assert state == {("", "none", '"$user", public', "on", "on", "on", "auto", "0", "postgres")}


SESSION_STATE = """
SELECT coalesce(current_setting('gleanery.organization', true), ''), current_setting('role'),
    current_setting('search_path'), current_setting('enable_seqscan'),
    current_setting('enable_bitmapscan'), current_setting('jit'),
    current_setting('plan_cache_mode'), current_setting('lock_timeout'), current_user
"""


def test_no_row_is_visible_without_a_tenant(transaction_pooler: PgBouncer, tmp_path: Path) -> None:
    settings = settings_through(transaction_pooler, tmp_path)
    service = Service(settings)
    with service.client() as client:
        create_one_of_everything(client)
    service.stop()

    async def look(engine: Engine) -> None:
        for table in tenancy.TENANT_TABLES:
            assert not await engine.read(f"SELECT 1 FROM {table}"), table

    with_engine(settings, look)


# --- what the service refuses -------------------------------------------------------------------


def test_session_mode_behind_a_transaction_pooler_is_refused(
    transaction_pooler: PgBouncer, tmp_path: Path
) -> None:
    settings = settings_through(transaction_pooler, tmp_path)
    wrong = replace(settings, pooling="session", listen_database=None)
    with pytest.raises(SettingsError, match="--pooling transaction"):
        asyncio.run(prepare(wrong))


@pytest.mark.parametrize("pool_size", [1, 5])
def test_session_mode_is_refused_while_others_use_the_pooler(
    transaction_pooler: PgBouncer, tmp_path: Path, pool_size: int
) -> None:
    settings = settings_through(transaction_pooler, tmp_path)
    wrong = replace(settings, pooling="session", listen_database=None, pool_size=pool_size)

    async def use() -> None:
        async with other_clients(str(settings.database)):
            for _ in range(20):
                with pytest.raises(SettingsError, match="--pooling transaction"):
                    await prepare(wrong)

    asyncio.run(use())


def test_session_mode_behind_a_busy_session_pooler_is_accepted(
    server: InstalledServer, tmp_path: Path
) -> None:
    with pgbouncer(server, "session", pool_size=30) as pooler:
        settings = settings_through(pooler, tmp_path)

        async def use() -> None:
            async with other_clients(str(settings.database)):
                for _ in range(20):
                    await prepare(settings)

        asyncio.run(use())


@asynccontextmanager
async def other_clients(url: str) -> AsyncIterator[None]:
    """Clients that use the pooler all the time."""
    connections: list[Any] = [await asyncpg.connect(url) for _ in range(8)]

    async def use(connection: Any) -> None:
        while True:
            await connection.execute("BEGIN; SELECT 1; COMMIT")

    tasks = [asyncio.create_task(use(connection)) for connection in connections]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            connection.terminate()


def test_an_address_for_notifications_behind_the_pooler_is_refused(
    transaction_pooler: PgBouncer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gleanery.service.storage.postgres.listener._NOTIFY_SECONDS", 0.5)
    settings = settings_through(transaction_pooler, tmp_path)
    wrong = replace(settings, listen_database=settings.database)
    with pytest.raises(SettingsError, match="--listen-database does not receive"):
        asyncio.run(prepare(wrong))


def test_an_address_for_notifications_that_is_unreachable_is_named(
    transaction_pooler: PgBouncer, tmp_path: Path
) -> None:
    settings = settings_through(transaction_pooler, tmp_path)
    nowhere = replace(settings, listen_database="postgresql://127.0.0.1:1/x")
    with pytest.raises(SettingsError, match=r"refused.*--listen-database"):
        asyncio.run(prepare(nowhere))
    with pytest.raises(SettingsError, match="The port in --listen-database"):
        asyncio.run(prepare(replace(settings, listen_database="postgresql://a:b/x")))


@pytest.mark.parametrize("pool_size", [1, 2, 20])
@pytest.mark.parametrize("is_busy", [False, True])
def test_a_pooler_without_prepared_statements_is_refused(
    server: InstalledServer, tmp_path: Path, pool_size: int, is_busy: bool
) -> None:
    with pgbouncer(server, "transaction", pool_size, max_prepared_statements=0) as pooler:
        settings = settings_through(pooler, tmp_path)

        async def use() -> None:
            async with other_clients(str(settings.database)) if is_busy else nullcontext():
                for _ in range(5):
                    with pytest.raises(SettingsError, match="max_prepared_statements to 200"):
                        await prepare(settings)

        asyncio.run(use())


def test_a_pooler_in_session_mode_needs_to_keep_no_prepared_statements(
    server: InstalledServer, tmp_path: Path
) -> None:
    """The service is in transaction mode first, and then the pooler is changed."""
    with pgbouncer(server, "session", 10, max_prepared_statements=0) as pooler:
        settings = settings_through(pooler, tmp_path)
        direct = direct_url(pooler, settings)
        asyncio.run(prepare(replace(settings, pooling="transaction", listen_database=direct)))


def test_a_parameter_that_the_pooler_refuses_is_named(
    transaction_pooler: PgBouncer, tmp_path: Path
) -> None:
    settings = settings_through(transaction_pooler, tmp_path)
    with_options = f"{settings.database}&options=-c%20work_mem%3D8MB"
    with pytest.raises(SettingsError) as raised:
        asyncio.run(prepare(replace(settings, database=with_options)))
    assert str(raised.value) == (
        f"The server at {transaction_pooler.socket.parent} refuses the connection: unsupported "
        "startup parameter in options: work_mem. Remove it from --database, or add it to "
        "ignore_startup_parameters of PgBouncer"
    )


@pytest.mark.parametrize("pool_size", [1, 6])
def test_many_workers_that_start_together_do_not_wait_for_each_other(
    server: InstalledServer, tmp_path: Path, pool_size: int
) -> None:
    with pgbouncer(server, "transaction", pool_size) as pooler:
        settings = settings_through(pooler, tmp_path)

        async def start() -> None:
            await prepare(settings)
            engines = [create_engine(settings) for _ in range(12)]
            await asyncio.gather(*(engine.open() for engine in engines))
            await asyncio.gather(*(engine.close() for engine in engines))

        asyncio.run(start())
