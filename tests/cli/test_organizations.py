"""``gleanery organization``: list, rename and delete, on both engines."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gleanery.common.settings import Settings
from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.tenancy import TENANT_TABLES
from tests.support.citus import citus_workers
from tests.support.files import upload, with_blob_store
from tests.support.locks import LockHolder
from tests.support.outputs import output
from tests.support.process import (
    Running,
    database_options,
    environment,
    gleanery_in_process,
    kill_before_call,
    new_token,
    run_successfully,
    served,
)
from tests.support.s3 import Bucket
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.tenants import create_one_of_everything
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

AUDIT_TABLES = {"audit_log", "audit_positions"}
EMPTY_TABLES = {"bulk_jobs", "unreferenced_blobs", "webhook_positions"}
STEP = ("gleanery.service.maintenance.organization_removal", "_empty_table")


def rows_of(settings: Settings, organization_id: int) -> dict[str, int]:
    """Number of the organization's rows in each table that has some."""

    async def count() -> dict[str, int]:
        async with open_engine(settings) as engine:
            everyone = engine.for_all_tenants()
            found = {}
            for table in (*TENANT_TABLES, "tokens"):
                sql = f"SELECT count(*) FROM {table} WHERE organization_id = $1"
                [[found[table]]] = await everyone.read(sql, organization_id)
            return {table: rows for table, rows in found.items() if rows}

    return asyncio.run(count())


def blobs_of(settings: Settings, bucket: Bucket | None, organization_id: int) -> list[str]:
    """Files and folders, or objects, of the organization in the store."""
    if bucket is not None:
        objects = bucket.keys()
        return [key for key in objects if f"/{organization_id}/" in key]
    folder = settings.data / "blobs" / str(organization_id)
    return [str(path) for path in (folder, *folder.rglob("*")) if path.exists()]


def listed(where: list[str], *options: str) -> dict[str, list[str]]:
    """Cells of each row of ``organization list``, by the name of the organization."""
    lines = run_successfully("organization", "list", *options, *where).splitlines()[1:]
    rows = [line.split() for line in lines]
    return {row[1]: row for row in rows}


def fill(client: Client, blob_store: str = "folder") -> None:
    """One of everything, more outputs than one step removes, and a tombstone."""
    if blob_store == "folder":
        create_one_of_everything(client)
    file = upload(client, os.urandom(100), source_url="https://large.example")["id"]
    client.store("large", *(output(n, files=[{"field": "f", "id": file}]) for n in range(1200)))
    deleted = client.items("large", limit=1)[0]["output_id"]
    assert client.delete(f"/v1/outputs/large/{deleted}").status_code == 200


@pytest.fixture
def fresh(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return fresh_settings(engine, request, tmp_path / "data")


# --- list and rename ----------------------------------------------------------------------------


@pytest.mark.thorough
def test_organizations_are_listed_with_their_counts(fresh: Settings) -> None:
    where = database_options(fresh)
    service = Service(fresh)
    with Client(service.url, new_token(where, "first")) as client:
        create_one_of_everything(client)
    new_token(where, "second")
    service.stop()
    found = listed(where)
    # id, name, created, groups, outputs, files, cookies, local storage, tokens, state
    assert found["first"][3:] == ["2", "3", "1", "3", "3", "1", "active"]
    assert found["second"][3:] == ["0", "0", "0", "0", "0", "1", "active"]
    assert found["first"][2].endswith("Z")


@pytest.mark.thorough
def test_a_renamed_organization_keeps_its_tokens_and_data(fresh: Settings) -> None:
    where = database_options(fresh)
    service = Service(fresh)
    with Client(service.url, new_token(where, "old")) as client:
        client.store("group", output(1))
        new_token(where, "taken")
        refused = gleanery_in_process("organization", "rename", "old", "taken", *where)
        assert refused.returncode == 2
        assert "already an organization of the new name" in refused.stderr
        refused = gleanery_in_process("organization", "rename", "old", "a\nb", *where)
        assert refused.returncode == 2
        assert "NEW_NAME must be" in refused.stderr
        refused = gleanery_in_process("organization", "rename", "unknown", "new", *where)
        assert refused.returncode == 2
        assert "gleanery organization list" in refused.stderr
        run_successfully("organization", "rename", "old", "new", *where)
        assert list(listed(where)) == ["new", "taken"]
        assert len(client.items("group")) == 1
        log = client.get("/v1/audit").json()["entries"]
        assert [entry["action"] for entry in log] == ["create_token", "rename_organization"]
    service.stop()


@pytest.mark.thorough
@pytest.mark.skipif(citus_workers() > 0, reason="on Citus the command waits on a worker")
@pytest.mark.parametrize("engine", ["postgres"], indirect=True)  # SQLite has one writer at a time
def test_a_name_that_another_command_takes_meanwhile_is_reported(fresh: Settings) -> None:
    where = database_options(fresh)
    service = Service(fresh)
    for name in ("old", "other"):
        new_token(where, name)
    take_name = "UPDATE organizations SET name = 'taken' WHERE name = 'other'"
    with (
        LockHolder(service, take_name) as holder,
        Running("organization", "rename", "old", "taken", *where) as command,
    ):
        command.wait_for(lambda: is_waiting_for_a_lock(fresh))
        holder.release()
        assert command.process.wait(TIMEOUT_SECONDS) == 2
    assert command.log == [
        "gleanery: There is already an organization of the new name: choose another\n"
    ]
    service.stop()


def is_waiting_for_a_lock(settings: Settings) -> bool:
    async def count() -> int:
        connection = await asyncpg.connect(settings.database)
        sql = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        try:
            return int(await connection.fetchval(sql))
        finally:
            await connection.close()

    return asyncio.run(count()) > 0


# --- delete -------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "blob_store", ["folder", pytest.param("s3", marks=pytest.mark.extended)], indirect=True
)
def test_a_deletion_removes_all_rows_and_blobs(
    fresh: Settings, blob_store: str, bucket_or_none: Bucket | None
) -> None:
    settings = with_blob_store(fresh, blob_store)
    where, store = database_options(settings), ["--blobs", settings.blobs_location]
    variables = bucket_or_none.variables if bucket_or_none else {}
    # The sweep runs all the time beside the deletion.
    options = (*store, "--sweep-seconds", "0.05", "--token-cache-seconds", "0.1")
    with served(settings, *options, with_token=False, **variables) as (running, url, _):
        tokens = [new_token(where, name) for name in ("deleted", "kept")]
        with Client(url, tokens[0]) as deleted, Client(url, tokens[1]) as kept:
            for client in (deleted, kept):
                fill(client, blob_store)
            wait_until(lambda: "organization_usage" in rows_of(settings, 2))
            before = rows_of(settings, 2)
            if blob_store == "folder":
                assert before.keys() >= set(TENANT_TABLES) - EMPTY_TABLES
            assert blobs_of(settings, bucket_or_none, 1)
            told = run_successfully(
                *("organization", "delete", "deleted", "--yes", *where, *store), **variables
            )
            outputs, files = ("1199", "1") if blob_store == "s3" else ("1202", "2")
            assert f"{outputs} outputs, {files} file" in told
            wait_until(lambda: deleted.get("/v1/cookies").status_code == 401)
            assert rows_of(settings, 1).keys() == AUDIT_TABLES
            assert blobs_of(settings, bucket_or_none, 1) == []
            after = rows_of(settings, 2)
            assert {t: n for t, n in after.items() if before[t] != n} == {}
            assert len(kept.items("large", limit=1000)) == 1199
        assert list(listed(where)) == ["kept"]
        record = listed(where, "--deleted")["deleted"]
        assert record[2:4] == [outputs, files]
        assert record[-1].endswith("Z")
        with Client(url, new_token(where, "deleted")) as again:  # another one of the same name
            assert again.get("/v1/groups").json() == []
        assert listed(where)["deleted"][0] == "3"
        assert not running.log
        running.stop()


@pytest.mark.extended
@pytest.mark.thorough
def test_a_killed_deletion_continues_on_the_next_call(fresh: Settings) -> None:
    where = database_options(fresh)
    service = Service(replace(fresh, token_cache_seconds=0.0))
    with Client(service.url, new_token(where, "a")) as client:
        fill(client)
        deletion = ("organization", "delete", "a", "--yes", *where)
        for calls in (0, 3, 8):
            kill_before_call(STEP, calls, *deletion)
            assert client.get("/v1/cookies").status_code == 401
            assert listed(where)["a"][-2:] == ["being", "deleted"]
            assert listed(where, "--deleted")["a"][-2:] == ["not", "yet"]
            refused = gleanery_in_process("token", "create", "--organization", "a", *where)
            assert refused.returncode == 2
            assert "run gleanery organization delete" in refused.stderr
        assert rows_of(fresh, 1).keys() - AUDIT_TABLES - {"tokens"}
        kill_before_call((STEP[0], "_finish"), 0, *deletion)
        assert rows_of(fresh, 1).keys() == AUDIT_TABLES | {"tokens"}
        service.sweep(timestamps.now)
        run_successfully(*deletion)
    service.stop()
    assert rows_of(fresh, 1).keys() == AUDIT_TABLES
    assert blobs_of(fresh, None, 1) == []
    assert listed(where) == {}
    assert listed(where, "--deleted")["a"][2:4] == ["1202", "2"]


@pytest.mark.thorough
def test_the_sweep_removes_what_late_requests_store(fresh: Settings) -> None:
    where = database_options(fresh)
    service = Service(replace(fresh, token_cache_seconds=3600.0))
    with Client(service.url, new_token(where, "a")) as client:
        client.store("group", output(1))  # from now on the service has the token in its cache
        run_successfully("organization", "delete", "a", "--yes", *where)
        assert rows_of(fresh, 1).keys() == AUDIT_TABLES
        client.store("group", output(2), output(3))
        upload(client)
        client.post("/v1/cookies", json=[{"domain": "a.com", "name": "n", "value": "v"}])
        assert rows_of(fresh, 1).keys() >= {"outputs", "groups", "files", "cookies"}
        assert blobs_of(fresh, None, 1)
        service.sweep(timestamps.now)
        assert rows_of(fresh, 1).keys() == AUDIT_TABLES
        assert blobs_of(fresh, None, 1) == []
    service.stop()


@pytest.mark.thorough
def test_an_upload_that_ends_after_the_deletion_leaves_no_blob(fresh: Settings) -> None:
    where = database_options(fresh)
    service = Service(fresh)

    def stored_files() -> list[Path]:
        return [path for path in (fresh.data / "blobs").rglob("*") if path.is_file()]

    with Client(service.url, new_token(where, "a")) as client:

        def content() -> Any:
            yield b"x" * 3_000_000
            # The socket can take all of this before the service has read the token.
            wait_until(stored_files)
            run_successfully("organization", "delete", "a", "--yes", *where)
            yield b"y" * 3_000_000

        assert client.post("/v1/files", content=content()).status_code == 503
    assert rows_of(fresh, 1).keys() == AUDIT_TABLES
    assert stored_files() == []
    service.stop()


@pytest.mark.thorough
def test_a_deletion_needs_the_location_of_the_files(fresh: Settings, tmp_path: Path) -> None:
    where = database_options(fresh)
    service = Service(fresh)
    with Client(service.url, new_token(where, "a")) as client:
        upload(client)
    deletion = ("organization", "delete", "a", "--yes", *where)
    for wrong in (tmp_path / "nothing", tmp_path):
        refused = gleanery_in_process(*deletion, "--blobs", str(wrong))
        assert refused.returncode == 2
        assert "the location that the service uses" in refused.stderr
    assert not (tmp_path / "nothing").exists()
    assert listed(where)["a"][-1] == "active"
    run_successfully(*deletion, "--blobs", str(tmp_path / "nothing"), "--ignore-missing-files")
    assert rows_of(fresh, 1).keys() == AUDIT_TABLES
    service.stop()


def test_a_deletion_leaves_the_files_of_another_database(fresh: Settings, tmp_path: Path) -> None:
    """Organizations of two databases can have the same number, which names the folder."""
    where = database_options(fresh)
    service = Service(fresh)
    new_token(where, "a")
    other = tmp_path / "other" / "1" / "blob"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"bytes")
    run_successfully(
        "organization", "delete", "a", "--yes", *where, "--blobs", str(tmp_path / "other")
    )
    assert other.read_bytes() == b"bytes"
    service.stop()


def answer_on_a_terminal(answer: str, *arguments: str) -> tuple[int, str]:
    """Runs the command on a terminal, types the answer, and returns status and output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gleanery", *arguments],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )
    os.close(theirs)
    os.write(ours, answer.encode() + b"\n")
    output, _ = process.communicate()
    os.close(ours)
    return process.returncode, output


@pytest.mark.thorough
def test_a_deletion_asks_for_the_name(tmp_path: Path) -> None:
    where = ["--data", str(tmp_path)]
    new_token(where, "some name")
    deletion = ("organization", "delete", "some name", *where)
    refused = gleanery_in_process(*deletion)
    assert refused.returncode == 2
    assert "give --yes" in refused.stderr
    status, text = answer_on_a_terminal("other", *deletion)
    assert status == 2
    assert "nothing is deleted" in text
    assert rows_of(Settings(data=tmp_path), 1)["tokens"] == 1
    status, text = answer_on_a_terminal("some name", *deletion)
    assert status == 0
    assert "0 groups, 0 outputs" in text
    assert listed(where) == {}
    unknown = gleanery_in_process("organization", "delete", "some name", "--yes", *where)
    assert unknown.returncode == 2
    assert "There is no organization" in unknown.stderr
