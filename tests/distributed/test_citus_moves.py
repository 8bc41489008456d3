"""Shards of Citus move to a new worker while organizations write."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gleanery.common.settings import Settings
from gleanery.service.storage.database import Engine
from gleanery.service.storage.engines import open_engine
from tests.support.citus import CitusServer, citus_server, execute
from tests.support.outputs import output, read_changes
from tests.support.postgres_versions import InstalledServer
from tests.support.service import SECRET_KEY, Client, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended

PAGE = Path(__file__).parents[2] / "docs/operations/run-on-postgresql.md"
KEYS = 20
ORGANIZATIONS = 8
SHARD_COUNT = 4
# A table of the shards that move, but of no request of this test.
OTHER_TABLE = "session_leases"
STATUS = "SELECT state::text FROM citus_rebalance_status()"
PLACES = """
SELECT get_shard_id_for_distribution_column('outputs', id), nodename FROM organizations
JOIN pg_dist_shard_placement
    ON shardid = get_shard_id_for_distribution_column('outputs', organizations.id)
"""
SHARDS = f"SELECT relname FROM pg_class WHERE relname ~ '^{OTHER_TABLE}_[0-9]+$'"
UNFILTERED = "SELECT DISTINCT organization_id FROM groups"


class Writer:
    """Stores newer and newer values of an organization; repeats what was not acknowledged."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.stored: dict[str, int] = {}
        self.statuses: Counter[int] = Counter()
        self.slowest = 0.0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        version = 0
        while not self.stopped.is_set():
            version += 1
            outputs = [output((version + n) % KEYS, data={"version": version}) for n in range(3)]
            while not self._send(outputs):
                pass
            self.stored |= {one["source_url"]: version for one in outputs}
            time.sleep(0.02)

    def _send(self, outputs: list[dict[str, Any]]) -> bool:
        start = time.monotonic()
        status = self.client.post("/v1/outputs/group", json=outputs).status_code
        self.slowest = max(self.slowest, time.monotonic() - start)
        self.statuses[status] += 1
        return status == 200

    def check(self) -> None:
        """Fails unless pages and changes have exactly what was acknowledged."""
        pages = self.client.items("group")
        changes = [change["output"] for change in read_changes(self.client, limit=1000)["changes"]]
        for found in (pages, changes):
            assert len(found) == len(self.stored)
            versions = {item["source_url"]: item["data"]["version"] for item in found}
            assert versions == self.stored


@contextmanager
def locked_table(url: str) -> Iterator[None]:
    """Locks a table of each shard on the worker of this URL, so that no shard can be copied."""

    async def hold() -> None:
        connection: Any = await asyncpg.connect(url)
        await connection.execute("SET citus.override_table_visibility = off")
        await connection.execute("SET citus.enable_manual_changes_to_shards = on")
        names = [row[0] for row in await connection.fetch(SHARDS)]
        await connection.execute("BEGIN")
        for name in names:
            await connection.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
        is_locked.set()
        await asyncio.to_thread(is_done.wait)
        await connection.close()

    is_locked, is_done = threading.Event(), threading.Event()
    thread = threading.Thread(target=asyncio.run, args=[hold()])
    thread.start()
    try:
        assert is_locked.wait(60)
        yield
    finally:
        is_done.set()
        thread.join()


@contextmanager
def cluster_with_spare(*options: str) -> Iterator[tuple[CitusServer, InstalledServer]]:
    """A coordinator with one worker, and a server that can become the second one."""
    with citus_server(2, f"citus.shard_count={SHARD_COUNT}", *options) as citus:
        for server in (citus.coordinator, *citus.workers):
            server.run(f"ALTER SYSTEM SET citus.local_hostname = '{server.folder}'")
            server.run("SELECT pg_reload_conf()")
        first, spare = citus.workers
        yield CitusServer(citus.coordinator, [first]), spare


def name_of(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def add_worker(url: str, worker: InstalledServer) -> None:
    worker.run(f"CREATE DATABASE {name_of(url)}")
    execute(worker.url(name_of(url)), "CREATE EXTENSION citus")
    execute(url, f"SELECT citus_add_node('{worker.folder}', 5432)")


def documented(function: str) -> str:
    """The call of a function of Citus, as the page of operators has it."""
    [call] = set(re.findall(rf"`(SELECT {function}\([^`]*\))`", PAGE.read_text()))
    return str(call)


def state_of_rebalance(url: str) -> str:
    return str(execute(url, STATUS)[0][0])


@contextmanager
def writers_on(url: str, folder: Path) -> Iterator[list[Writer]]:
    """Writers of several organizations, of which every shard has one; checks what they stored."""
    settings = Settings(
        data=folder, database=url, secret_key=SECRET_KEY, port=0, log_level="error", pool_size=20
    )
    service = Service(settings)
    names = [f"organization {number}" for number in range(ORGANIZATIONS)]
    writers = [Writer(service.client(service.token(name))) for name in names]
    assert len({shard for shard, _ in execute(url, PLACES)}) == SHARD_COUNT
    for writer in writers:
        writer.client.store("group", output(0, data={"version": 0}))
        writer.stored[output(0)["source_url"]] = 0
        writer.thread.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.stopped.set()
        for writer in writers:
            writer.thread.join()
    for writer in writers:
        assert {*writer.statuses} <= {200, 503}
        writer.check()
        writer.client.close()
    asyncio.run(check_isolation(settings))
    service.stop()


async def check_isolation(settings: Settings) -> None:
    """Fails if a tenant sees rows of another one: the moved shards have their policies."""

    async def look(engine: Engine) -> None:
        for [organization] in await engine.read("SELECT id FROM organizations"):
            rows = await engine.for_tenant(organization).read(UNFILTERED)
            assert [row[0] for row in rows] == [organization]

    async with open_engine(settings) as engine:
        await look(engine)


def move_slowly(url: str, source: InstalledServer, target: InstalledServer) -> None:
    """Moves the shard of an organization as a rebalance does, without asking for its size."""

    async def move() -> None:
        connection: Any = await asyncpg.connect(url)
        await connection.execute("SELECT replicate_reference_tables('block_writes')")
        await connection.execute("SET citus.check_available_space_before_move = off")
        await connection.execute(
            f"SELECT citus_move_shard_placement({shard}, '{source.folder}', 5432, "
            f"'{target.folder}', 5432, 'block_writes')"
        )
        await connection.close()

    shard = execute(url, PLACES)[0][0]
    asyncio.run(move())


def test_writes_wait_for_a_shard_that_moves(tmp_path: Path) -> None:
    with cluster_with_spare() as (citus, spare), ThreadPoolExecutor(1) as threads:
        url = citus.new_database()
        [first] = citus.workers
        with writers_on(url, tmp_path) as writers:
            add_worker(url, spare)
            with locked_table(first.url(name_of(url))):  # the copy takes long
                move = threads.submit(move_slowly, url, first, spare)
                wait_until(lambda: any(writer.statuses[503] for writer in writers))
                for writer in writers:
                    assert writer.client.get("/v1/outputs/group").status_code == 200
            move.result()
            for writer in writers:
                before = writer.statuses[200]
                wait_until(lambda w=writer, n=before: w.statuses[200] > n + 3)  # type: ignore[misc]
        assert 9 < max(writer.slowest for writer in writers) < 30


def test_shards_move_to_a_new_worker_while_organizations_write(tmp_path: Path) -> None:
    with cluster_with_spare() as (citus, spare):
        url = citus.new_database()
        with writers_on(url, tmp_path):
            add_worker(url, spare)
            rebalance(url)
        check_places(url, citus.workers[0], spare)


def rebalance(url: str) -> None:
    execute(url, documented("citus_rebalance_start"))
    wait_until(lambda: state_of_rebalance(url) == "finished")


def check_places(url: str, *workers: InstalledServer) -> None:
    """Fails unless each of the workers has as many shards of organizations."""
    places = Counter(place for _, place in {*execute(url, PLACES)})
    assert places == {worker.socket_folder: SHARD_COUNT // len(workers) for worker in workers}


def test_a_move_by_replication_can_be_replaced(tmp_path: Path) -> None:
    """Row-level security keeps it from ending: the steps of the page for that case."""
    with cluster_with_spare("wal_level=logical", "max_replication_slots=40") as (citus, spare):
        url = citus.new_database()
        [first] = citus.workers
        slots = "SELECT slot_name FROM pg_replication_slots"
        with writers_on(url, tmp_path):
            add_worker(url, spare)
            execute(url, "SELECT citus_rebalance_start()")
            wait_until(lambda: b"row-level security enabled" in spare.log())
            assert state_of_rebalance(url) == "running"
            assert first.run(slots)

            execute(url, documented("citus_rebalance_stop"))
            wait_until(lambda: state_of_rebalance(url) == "cancelled")
            execute(url, "CALL citus_cleanup_orphaned_resources()")
            wait_until(lambda: not first.run(slots))
            rebalance(url)
        check_places(url, first, spare)
