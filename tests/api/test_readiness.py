"""Readiness: a worker without its database, with a wrong key, and with another schema."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import apsw
import asyncpg
import httpx2
import pytest

from gleanery.common.settings import Settings
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.processes.start import prepare
from gleanery.service.storage import migrations
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.sqlite import connections
from tests.support.databases import pretend_newer_schema, run_script, undo_newest_migration
from tests.support.forwarder import Forwarder
from tests.support.postgres_server import PostgresServer
from tests.support.service import Client, Service, new_secret_key
from tests.support.settings import fresh_settings
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

NEWEST = migrations.newest("sqlite")
OUTPUT = {"job_id": "j", "source_url": "https://a.example/", "data": {"n": 1}}


@pytest.fixture
def prepared(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    settings = fresh_settings(engine, request, tmp_path / "data")
    asyncio.run(prepare(settings))
    return settings


@contextmanager
def worker(settings: Settings) -> Iterator[Service]:
    """A worker on a database that was prepared before."""
    service = Service(settings, is_prepared=True)
    try:
        yield service
    finally:
        service.stop()


def wait_ready(client: Client) -> None:
    wait_until(lambda: client.get("/readyz").status_code == 200)


def assert_unavailable(answer: httpx2.Response) -> str:
    """Returns the message of a response that tells the client to try again."""
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) > 0
    return str(answer.json()["detail"][0]["msg"])


# --- a worker without its database --------------------------------------------------------------


class Away:
    """A database that can be made unreachable."""

    def __init__(
        self, settings: Settings, leave: Callable[[], None], come_back: Callable[[], None]
    ) -> None:
        self.settings, self.leave, self.come_back = settings, leave, come_back


def _removable_disk(settings: Settings, shelf: Path) -> Away:
    shelf.mkdir()

    def move(source: Path, target: Path) -> None:
        for file in source.glob("[gs]*"):  # the database and its key
            file.replace(target / file.name)

    return Away(settings, lambda: move(settings.data, shelf), lambda: move(shelf, settings.data))


def _forwarded(settings: Settings) -> tuple[Settings, Forwarder]:
    assert settings.database is not None
    parts = urlsplit(settings.database)
    forwarder = Forwarder(f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432")
    url = f"postgresql://postgres@127.0.0.1:{forwarder.port}{parts.path}"
    return replace(settings, database=url), forwarder


def _refused(settings: Settings) -> Away:
    forwarded, forwarder = _forwarded(settings)
    return Away(forwarded, forwarder.stop, forwarder.start)


def _closed(settings: Settings, server: PostgresServer) -> Away:
    """A server that answers, and accepts no connection to the database."""
    name = urlsplit(settings.database or "").path[1:]

    def allow(allowed: bool) -> None:
        server.run(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS {allowed}")

    return Away(settings, lambda: allow(False), lambda: allow(True))


@pytest.fixture(params=["sqlite", "postgres refuses", "postgres is closed"])
def away(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Away]:
    """A prepared database that is away."""
    engine = str(request.param).split()[0]
    settings = fresh_settings(engine, request, tmp_path / "data")
    asyncio.run(prepare(settings))
    if engine == "sqlite":
        made = _removable_disk(settings, tmp_path / "shelf")
    elif request.param == "postgres refuses":
        made = _refused(settings)
    else:
        made = _closed(settings, request.getfixturevalue("postgres"))
    made.leave()
    yield made
    made.leave()


@pytest.mark.thorough
def test_a_worker_starts_without_its_database_and_connects_when_it_can(
    away: Away, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gleanery")
    with worker(away.settings) as service, service.stranger() as nobody:
        assert nobody.get("/healthz").status_code == 200
        assert nobody.get("/metrics").status_code == 200
        assert "not available" in assert_unavailable(nobody.get("/readyz"))
        assert_unavailable(nobody.get("/v1/groups"))
        assert_unavailable(nobody.post("/v1/outputs/group", json=[]))
        away.come_back()
        wait_ready(nobody)
        with service.client() as client:
            client.store("group", OUTPUT)
            assert len(client.items("group")) == 1
    told = [record.getMessage() for record in caplog.records if record.name == "gleanery"]
    assert told.count("the service is not ready") == 1
    assert told.count("the service is ready") == 1


@pytest.fixture
def on_postgres(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    settings = fresh_settings("postgres", request, tmp_path / "data")
    asyncio.run(prepare(settings))
    return settings


@pytest.mark.thorough
def test_a_worker_stops_while_its_database_does_not_respond(on_postgres: Settings) -> None:
    settings, forwarder = _forwarded(on_postgres)
    forwarder.start()
    with worker(settings) as service, service.stranger() as nobody:
        wait_ready(nobody)
        forwarder.freeze()
        assert forwarder.withholds.wait(TIMEOUT_SECONDS)  # the next check of the schema
        service.stop()
    forwarder.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("query", ["", "&target_session_attrs=read-write"])
def test_a_primary_that_is_set_read_only_is_read(
    on_postgres: Settings, postgres: PostgresServer, query: str
) -> None:
    url = on_postgres.database or ""
    name = urlsplit(url).path[1:]
    with (
        worker(replace(on_postgres, database=f"{url}{query}")) as service,
        service.client() as client,
    ):
        client.store("group", OUTPUT)
        postgres.run(
            f"ALTER DATABASE {name} SET default_transaction_read_only = on; "
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        )
        wait_until(lambda: client.get("/v1/outputs/group").status_code == 200)
        assert_unavailable(client.post("/v1/outputs/group", json=[OUTPUT | {"job_id": "late"}]))
        assert client.get("/v1/outputs/group").status_code == 200
        wait_until(lambda: client.get("/readyz").status_code == 200)


def test_a_database_that_is_removed_is_unavailable(
    on_postgres: Settings, postgres: PostgresServer
) -> None:
    name = urlsplit(on_postgres.database or "").path[1:]
    with worker(on_postgres) as service, service.client() as client:
        assert client.get("/v1/groups").status_code == 200
        postgres.run(f"DROP DATABASE {name} WITH (FORCE)")
        wait_until(lambda: client.get("/readyz").status_code != 200)
        assert_unavailable(client.get("/readyz"))
        assert_unavailable(client.get("/v1/groups"))


@pytest.mark.thorough
def test_a_database_that_does_not_respond_delays_the_readiness_little(
    on_postgres: Settings,
) -> None:
    settings, forwarder = _forwarded(on_postgres)
    forwarder.start()
    with worker(settings) as service, service.stranger() as nobody:
        wait_ready(nobody)
        forwarder.freeze()
        wait_until(lambda: "does not respond" in nobody.get("/readyz").text)
        forwarder.thaw()
        wait_ready(nobody)
    forwarder.stop()


def test_a_worker_with_a_wrong_key_is_not_ready(prepared: Settings) -> None:
    settings = replace(prepared, secret_key=new_secret_key())
    with worker(settings) as service, service.stranger() as nobody:
        assert nobody.get("/healthz").status_code == 200
        assert "is not the one that encrypts" in assert_unavailable(nobody.get("/readyz"))
        assert_unavailable(nobody.get("/v1/cookies"))


def test_a_worker_that_finds_another_schema_waits_until_it_fits(prepared: Settings) -> None:
    pretend_newer_schema(prepared)
    with worker(prepared) as service, service.stranger() as nobody:
        message = assert_unavailable(nobody.get("/readyz"))
        assert f"has schema {NEWEST + 1}, and this program needs schema {NEWEST}" in message
        run_script(prepared, f"DELETE FROM migrations WHERE number > {NEWEST}")
        wait_ready(nobody)


def test_a_worker_starts_on_a_newer_schema_that_is_compatible(prepared: Settings) -> None:
    pretend_newer_schema(prepared, NEWEST)
    asyncio.run(prepare(prepared))
    with worker(prepared) as service, service.client() as client:
        wait_ready(client)
        client.store("group", OUTPUT)


# --- a database that goes away while the service runs ---------------------------------------------


@pytest.mark.thorough
def test_an_outage_is_logged_once_and_each_request_in_one_line(
    request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = fresh_settings("postgres", request, tmp_path / "data")
    asyncio.run(prepare(settings))
    database = _refused(settings)
    database.come_back()

    def levels(message: str) -> list[str]:
        return [line.levelname for line in caplog.records if line.getMessage() == message]

    with worker(database.settings) as service, service.client() as client:
        client.store("group", OUTPUT)
        database.leave()
        wait_until(lambda: levels("the service is not ready"))
        for _ in range(3):
            assert_unavailable(client.get("/v1/groups"))  # it is tried: the database may be back
        database.come_back()
        wait_until(lambda: client.get("/v1/groups").status_code == 200)
        wait_until(lambda: levels("the service is ready"))
    assert levels("the service is not ready") == ["ERROR"]
    assert levels("the service is ready") == ["INFO"]
    refused = [line for line in caplog.records if line.getMessage() == "unavailable"]
    assert len(refused) >= 3
    assert all(vars(line)["reason"] and not line.exc_info for line in refused)
    assert not [line for line in caplog.records if line.name.startswith("asyncpg")]


def test_a_full_disk_is_the_reason_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect_with_little_space(path: Path) -> apsw.Connection:
        connection = connections.connect(path)
        connection.pragma("max_page_count", connection.pragma("page_count") + 100)
        return connection

    settings = Settings(data=tmp_path / "data", secret_key=new_secret_key(), port=0)
    asyncio.run(prepare(settings))
    monkeypatch.setattr(
        "gleanery.service.storage.sqlite.database.connect", connect_with_little_space
    )
    with worker(settings) as service, service.client() as client:
        large = OUTPUT | {"data": {"text": "x" * 5_000_000}}
        assert_unavailable(client.post("/v1/outputs/group", json=[large]))
    [line] = [line for line in caplog.records if line.getMessage() == "unavailable"]
    assert vars(line)["reason"] == "the disk is full: free some space"
    assert not line.exc_info


# --- SQLite files that do not stay in their place -----------------------------------------------


def _delete(*names: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / name).unlink() for name in names] and None


def _move(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def _replace(folder: Path) -> None:
    """Puts a copy with another identity in the place of the folder, as a bad restore does."""
    shutil.copytree(folder, folder.with_name("copy"))
    _move(folder)
    folder.with_name("copy").rename(folder)


def _replace_with_link(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("copy"))
    _move(folder)
    folder.symlink_to("copy")


DAMAGE = {
    "deleted folder": shutil.rmtree,
    "moved folder": _move,
    "replaced folder": _replace,
    "replaced with a link": _replace_with_link,
    "deleted database": _delete("gleanery.sqlite"),
    "deleted log": _delete("gleanery.sqlite-wal"),
    "deleted index": _delete("gleanery.sqlite-shm"),
    "deleted log and index": _delete("gleanery.sqlite-wal", "gleanery.sqlite-shm"),
}


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Settings:
    settings = Settings(data=tmp_path / "data", port=0)
    asyncio.run(prepare(settings))
    return settings


@pytest.mark.parametrize("damage", DAMAGE)
def test_no_write_is_acknowledged_into_files_that_are_not_in_their_place(
    on_sqlite: Settings, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with worker(on_sqlite) as service, service.client() as client:
        client.store("group", OUTPUT)
        DAMAGE[damage](on_sqlite.data)
        answer = client.post("/v1/outputs/group", json=[OUTPUT | {"job_id": "late"}])
        assert "moved, replaced or deleted" in assert_unavailable(answer)
        assert str(on_sqlite.data) not in answer.text
        wait_until(lambda: client.get("/readyz").status_code == 503)
        assert "moved, replaced or deleted" in assert_unavailable(client.get("/readyz"))
        for path in ("/v1/outputs/group", "/v1/changes/group", "/v1/exports/group"):
            assert_unavailable(client.get(path))
        assert client.get("/healthz").status_code == 200
    lines = [line for line in caplog.records if line.getMessage() == "the service is not ready"]
    assert [line.levelname for line in lines] == ["ERROR"]
    assert f"{on_sqlite.sqlite_file}" in vars(lines[0])["reason"]


def test_an_idle_service_notices_a_deleted_folder(on_sqlite: Settings) -> None:
    with worker(on_sqlite) as service, service.client() as client:
        client.store("group", OUTPUT)
        shutil.rmtree(on_sqlite.data)
        wait_until(lambda: client.get("/readyz").status_code == 503)
        assert_unavailable(client.get("/v1/outputs/group"))


def test_a_folder_that_comes_back_is_used_again(on_sqlite: Settings) -> None:
    moved = on_sqlite.data.with_name("moved")
    with worker(on_sqlite) as service, service.client() as client:
        client.store("group", OUTPUT)
        on_sqlite.data.rename(moved)
        wait_until(lambda: client.get("/readyz").status_code == 503)
        assert_unavailable(client.post("/v1/outputs/group", json=[OUTPUT | {"job_id": "late"}]))
        moved.rename(on_sqlite.data)
        wait_ready(client)
        client.store("group", OUTPUT | {"job_id": "later"})
        assert {item["root_job_id"] for item in client.items("group")} == {"j", "later"}


def test_a_large_read_does_not_open_another_file(on_sqlite: Settings) -> None:
    """Large reads connect late: they would find the database that is there now."""

    async def read() -> None:
        async with open_engine(on_sqlite) as database:
            _replace(on_sqlite.data)
            with pytest.raises(Unavailable):
                await database.read_large("SELECT count(*) FROM migrations")

    asyncio.run(read())


def test_no_file_is_stored_in_a_folder_that_was_replaced(on_sqlite: Settings) -> None:
    """For instance below a disk that is not mounted any more."""
    blobs = on_sqlite.data / "blobs"
    with worker(on_sqlite) as service, service.client() as client:
        upload = partial(client.post, "/v1/files", params={"source_url": "https://a.example/"})
        assert upload(content=b"one").status_code == 200
        blobs.rename(on_sqlite.data / "disk")
        blobs.mkdir()
        assert_unavailable(upload(content=b"two"))
        shutil.rmtree(blobs)
        (on_sqlite.data / "disk").rename(blobs)
        assert upload(content=b"two").status_code == 200


def test_what_was_acknowledged_before_the_log_was_deleted_is_saved(
    on_sqlite: Settings, tmp_path: Path
) -> None:
    with worker(on_sqlite) as service, service.client() as client:
        client.store("group", OUTPUT)
        _delete("gleanery.sqlite-wal")(on_sqlite.data)
        wait_until(lambda: client.post("/v1/cookies", json=[]).status_code == 503)
        assert_unavailable(client.post("/v1/outputs/group", json=[OUTPUT | {"job_id": "late"}]))
        # A service that is killed now leaves only this file.
        shutil.copy(on_sqlite.sqlite_file, tmp_path / "killed.sqlite")
    connection = apsw.Connection(str(tmp_path / "killed.sqlite"))
    assert connection.execute("SELECT count(*) FROM outputs").get == 1
    connection.close()


# --- a schema that changes while the service runs -----------------------------------------------


@pytest.fixture
def own_service(prepared: Settings) -> Iterator[Service]:
    with worker(prepared) as service:
        yield service


def test_nothing_is_written_into_another_schema(own_service: Service) -> None:
    """The first write after a migration is refused, not only those after the next check."""
    with own_service.client() as client:
        client.store("group", OUTPUT)
        pretend_newer_schema(own_service.settings)
        assert_unavailable(client.post("/v1/outputs/group", json=[OUTPUT | {"job_id": "late"}]))
        assert_unavailable(client.post("/v1/cookies", json=[]))
        run_script(own_service.settings, f"DELETE FROM migrations WHERE number > {NEWEST}")
        wait_ready(client)
        assert [item["root_job_id"] for item in client.items("group")] == ["j"]


@pytest.mark.thorough
def test_every_operation_is_unavailable_while_the_schema_differs(own_service: Service) -> None:
    with own_service.client() as client:
        client.store("group", OUTPUT)
        pretend_newer_schema(own_service.settings)
        wait_until(lambda: client.get("/v1/outputs/group").status_code == 503)
        for path in ("/v1/outputs/group", "/v1/groups", "/v1/cookies", "/v1/changes/group"):
            message = assert_unavailable(client.get(path))
            assert f"has schema {NEWEST + 1}, and this program needs schema {NEWEST}" in message
        assert client.get("/healthz").status_code == 200
        assert_unavailable(client.get("/readyz"))


def test_a_statement_that_another_schema_breaks_is_unavailable(own_service: Service) -> None:
    """Also in the moment before the service notices the migration."""
    with own_service.client() as client:
        client.store("group", OUTPUT)
        for _ in range(3):  # repeated pages are read in batches
            assert len(client.items("group")) == 1
        rename = "ALTER TABLE outputs RENAME COLUMN item TO item_text"
        record = f"INSERT INTO migrations VALUES ({NEWEST + 1}, 'rename', 0, NULL)"
        run_script(own_service.settings, f"BEGIN; {rename}; {record}; COMMIT")
        assert_unavailable(client.get("/v1/outputs/group"))
        assert_unavailable(client.post("/v1/outputs/group", json=[OUTPUT]))


def test_requests_go_on_while_the_newer_schema_is_compatible(
    own_service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    settings = own_service.settings
    with own_service.client() as client:
        client.store("group", OUTPUT)
        assert client.get("/readyz").json() == {"status": "ready"}
        pretend_newer_schema(settings, NEWEST)
        wait_until(lambda: client.get("/readyz").json() != {"status": "ready"})
        answer = client.get("/readyz")
        assert answer.status_code == 200
        assert f"has schema {NEWEST + 1}, and this program needs" in answer.json()["warning"]
        client.store("group", OUTPUT | {"job_id": "late"})
        assert client.post("/v1/cookies", json=[]).status_code == 200
        assert len(client.items("group")) == 2
        warning = "the schema is newer than this program"
        assert [line.getMessage() for line in caplog.records].count(warning) == 1
        run_script(settings, f"DELETE FROM migrations WHERE number > {NEWEST}")
        wait_until(lambda: client.get("/readyz").json() == {"status": "ready"})


@pytest.mark.parametrize("compatible_from", [(NEWEST, NEWEST + 2), (NEWEST + 1, NEWEST)])
def test_one_incompatible_migration_of_several_is_enough(
    own_service: Service, compatible_from: tuple[int, int]
) -> None:
    with own_service.client() as client:
        client.store("group", OUTPUT)
        pretend_newer_schema(own_service.settings, *compatible_from)
        assert_unavailable(client.post("/v1/outputs/group", json=[OUTPUT | {"job_id": "late"}]))
        wait_until(lambda: client.get("/v1/outputs/group").status_code == 503)
        # The service may have seen the first of the two migrations alone.
        message = f"has schema {NEWEST + 2}, and this program needs schema {NEWEST}"
        wait_until(lambda: message in assert_unavailable(client.get("/readyz")))


@contextmanager
def migration(settings: Settings) -> Iterator[Callable[[str], None]]:
    """A transaction with the lock of a migration. Runs SQL in it; ends it without a commit."""

    async def begin() -> asyncpg.Connection[asyncpg.Record]:
        connection = await asyncpg.connect(settings.database)
        await connection.execute("BEGIN; LOCK TABLE migrations IN ACCESS EXCLUSIVE MODE")
        return connection

    with asyncio.Runner() as runner:
        connection = runner.run(begin())
        try:
            yield lambda sql: runner.run(connection.execute(sql)) and None
        finally:
            runner.run(connection.close())


@pytest.mark.thorough
def test_a_worker_is_ready_and_reads_while_a_migration_runs(on_postgres: Settings) -> None:
    with worker(on_postgres) as service, service.client() as client:
        client.store("group", OUTPUT)
        with migration(on_postgres):
            for _ in range(4):  # each with a check of its own
                began = time.monotonic()
                assert client.get("/readyz").json() == {"status": "ready"}
                assert time.monotonic() - began < 2
                assert len(client.items("group")) == 1
                time.sleep(1.1)


@pytest.mark.thorough
def test_a_write_that_waits_for_an_incompatible_migration_is_refused(
    on_postgres: Settings,
) -> None:
    late = OUTPUT | {"job_id": "late"}
    record = f"INSERT INTO migrations VALUES ({NEWEST + 1}, 'next', 0, NULL)"
    with worker(on_postgres) as service, service.client() as client:
        client.store("group", OUTPUT)
        with migration(on_postgres) as run, ThreadPoolExecutor(1) as threads:
            run(record)
            write = threads.submit(client.post, "/v1/outputs/group", json=[late])
            wait_until(lambda: waits_for_lock(on_postgres))
            assert client.get("/readyz").status_code == 200
            run("COMMIT")
            assert_unavailable(write.result())
        wait_until(lambda: client.get("/readyz").status_code == 503)
        run_script(on_postgres, f"DELETE FROM migrations WHERE number > {NEWEST}")
        wait_ready(client)
        assert [item["root_job_id"] for item in client.items("group")] == ["j"]


def waits_for_lock(settings: Settings) -> bool:
    """Returns True if a transaction that writes waits for the table of migrations."""
    sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'number >='"

    async def look() -> bool:
        connection = await asyncpg.connect(settings.database)
        try:
            return bool(await connection.fetch(sql))
        finally:
            await connection.close()

    return asyncio.run(look())


@pytest.mark.thorough
def test_a_schema_that_is_locked_for_long_is_not_ready(
    on_postgres: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gleanery.service.api.readiness._MAX_LOCKED_SECONDS", 1.5)
    with worker(on_postgres) as service, service.stranger() as nobody:
        wait_ready(nobody)
        with migration(on_postgres):
            wait_until(lambda: nobody.get("/readyz").status_code == 503)
            assert "schema is locked" in assert_unavailable(nobody.get("/readyz"))
        wait_ready(nobody)
    reasons = [vars(line).get("reason", "") for line in caplog.records]
    assert any("table migrations is locked" in reason for reason in reasons)


def test_nothing_is_written_into_an_older_schema(own_service: Service) -> None:
    """For instance if a dump of an earlier version was loaded under the service."""
    with own_service.client() as client:
        client.store("group", OUTPUT)
        undo_newest_migration(own_service.settings)
        assert_unavailable(client.post("/v1/outputs/group", json=[OUTPUT | {"job_id": "late"}]))
