"""Space that deleted data has left: the SQLite file shrinks in the sweep, and with a command."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from gleanery.common.settings import Settings
from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.sqlite import space
from tests.support.process import gleanery_in_process, run_successfully
from tests.support.service import Client, Service
from tests.support.waiting import wait_until

ITEMS = 1500
TEXT = "x" * 3000


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[Service]:
    service = Service(Settings(data=tmp_path / "data", port=0, log_level="warning"))
    yield service
    service.stop()


def fill(client: Client, group: str, count: int = ITEMS) -> None:
    for start in range(0, count, 500):
        outputs = [
            {
                "job_id": "j",
                "source_url": f"https://a/{number}",
                "data": {"text": TEXT, "n": number},
            }
            for number in range(start, min(start + 500, count))
        ]
        client.store(group, *outputs)


def size(settings: Settings) -> int:
    """Bytes of the database file, at least as soon as its write-ahead log is copied into it."""
    return max(settings.sqlite_file.stat().st_size, int(pragma(settings, "page_count")) * 16384)


def integrity(settings: Settings) -> str:
    return pragma(settings, "integrity_check")


def pragma(settings: Settings, name: str) -> str:
    connection = apsw.Connection(str(settings.sqlite_file))
    try:
        return str(connection.execute(f"PRAGMA {name}").get)
    finally:
        connection.close()


def sweep_until_smaller(service: Service, limit: float) -> None:
    """Sweeps until the file is smaller: somebody who reads can delay that."""
    wait_until(lambda: service.sweep(timestamps.now) or size(service.settings) < limit)


def delete_most(service: Service, client: Client) -> int:
    """Stores two groups, deletes the larger one, and returns the size before."""
    fill(client, "large")
    fill(client, "small", 20)
    before = size(service.settings)
    assert client.delete("/v1/groups/large").json()["deleted"] == ITEMS
    return before


def test_the_sweep_shrinks_the_file(own_service: Service) -> None:
    with own_service.client() as client:
        before = delete_most(own_service, client)
        expected = client.items("small")
        with ThreadPoolExecutor(1) as threads:  # others write meanwhile
            writes = threads.submit(fill, client, "new", 20)
            own_service.sweep(timestamps.now)
            writes.result()
        sweep_until_smaller(own_service, before / 2)
        assert client.items("small") == expected
        assert len(client.items("new")) == 20
    assert integrity(own_service.settings) == "ok"


def test_the_sweep_keeps_free_pages_that_the_next_writes_use(own_service: Service) -> None:
    with own_service.client() as client:
        fill(client, "group", 500)
        client.delete("/v1/outputs/group/" + client.items("group")[0]["output_id"])
        before = own_service.settings.sqlite_file.stat().st_size
        own_service.sweep(timestamps.now)
        assert own_service.settings.sqlite_file.stat().st_size >= before


def test_the_sweep_empties_a_large_log(
    own_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "LARGE_LOG_BYTES", 0)
    log = own_service.settings.sqlite_file.with_name("gleanery.sqlite-wal")
    with own_service.client() as client:
        fill(client, "group", 20)
        assert log.stat().st_size
        wait_until(lambda: own_service.sweep(timestamps.now) or not log.stat().st_size)
        assert len(client.items("group")) == 20


# --- gleanery compact ---------------------------------------------------------------------------


def test_compact_shrinks_the_file_while_the_service_runs(own_service: Service) -> None:
    data = ("--data", str(own_service.settings.data))
    with own_service.client() as client:
        before = delete_most(own_service, client)
        printed = run_successfully("compact", *data)
        assert printed.startswith(f"{own_service.settings.sqlite_file} has ")
        assert size(own_service.settings) < before / 2
        assert len(client.items("small")) == 20
        fill(client, "more", 20)
    assert integrity(own_service.settings) == "ok"


@pytest.fixture
def older(tmp_path: Path) -> Settings:
    """A database in which deleted data has left space, created without automatic vacuum."""
    settings = Settings(data=tmp_path / "data", port=0, log_level="warning")
    settings.data.mkdir()
    connection = apsw.Connection(str(settings.sqlite_file))
    connection.pragma("page_size", 16384)
    connection.pragma("journal_mode", "wal")
    connection.close()
    service = Service(settings)
    with service.client(organization="older") as client:
        delete_most(service, client)
    service.stop()
    return settings


def test_compact_rewrites_an_older_file_once(older: Settings) -> None:
    data, before = ("--data", str(older.data)), size(older)
    service = Service(older)
    service.sweep(timestamps.now)
    assert size(older) >= before  # it cannot shrink yet
    refused = gleanery_in_process("compact", *data)
    assert refused.returncode == 2
    assert "A service or another command is using" in refused.stderr
    service.stop()
    run_successfully("compact", *data)
    assert size(older) < before / 2
    assert integrity(older) == "ok"
    service = Service(older)
    with service.client(organization="older") as client:
        assert len(client.items("small")) == 20
        fill(client, "large")
        grown = size(older)
        client.delete("/v1/groups/large")
        run_successfully("compact", *data)
        assert size(older) < grown / 2
    service.stop()
    assert {path.name for path in older.data.iterdir()} <= {
        "blobs",
        "gleanery.sqlite",
        "secret.key",
    }


def test_compact_says_how_much_space_it_needs(
    older: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(older.data)._replace(free=1000)
    monkeypatch.setattr(space.shutil, "disk_usage", lambda folder: usage)
    before = older.sqlite_file.read_bytes()
    refused = gleanery_in_process("compact", "--data", str(older.data))
    assert refused.returncode == 2
    assert "free some space" in refused.stderr
    assert older.sqlite_file.read_bytes() == before


def test_compact_without_a_database_creates_none(tmp_path: Path) -> None:
    refused = gleanery_in_process("compact", "--data", str(tmp_path))
    assert "There is no database" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_compact_leaves_postgresql_to_its_own_vacuum() -> None:
    url = "postgresql://u@127.0.0.1:1/x"
    assert "autovacuum" in run_successfully("compact", "--database", url)
