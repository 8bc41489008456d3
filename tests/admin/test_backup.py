"""Backups are complete, restores are atomic, and clients sync correctly after a restore."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.maintenance import restore as restore_steps
from gleanery.service.resources.outputs import mutations
from tests.support.databases import execute_sql, run_script
from tests.support.files import store_file, with_file
from tests.support.outputs import follow_changes, output, stored_outputs
from tests.support.postgres_server import PostgresServer
from tests.support.process import (
    Running,
    free_port,
    gleanery,
    gleanery_in_process,
    kill_before_call,
    kill_before_rename,
    new_token,
    run_successfully,
    serving_process,
    serving_thread,
)
from tests.support.service import Client, new_secret_key
from tests.support.session_state import numbered_cookies, numbered_entries
from tests.support.waiting import wait_for_next_second, wait_until

# --- backups ------------------------------------------------------------------------------------


@pytest.mark.extended
@pytest.mark.thorough
def test_a_backup_under_load_is_complete_and_consistent(tmp_path: Path) -> None:
    where, copy = ["--data", str(tmp_path / "data")], ["--data", str(tmp_path / "copy")]
    archive = tmp_path / "backup.tar"
    over, failures, stored = threading.Event(), list[str](), set[int]()

    def write(url: str, token: str, writer: int) -> None:
        """Stores batches of ten outputs with one file each; a batch has one turn number."""
        turn = 0
        while not over.is_set():
            turn += 1
            with Client(url, token) as client:
                files = [{"field": "f", "id": store_file(client, turn % 7, os.urandom(5000))}]
                batch = [output(n, data={"turn": turn}, files=files) for n in range(10)]
                answer = client.post(f"/v1/outputs/group-{writer}", json=batch)
                if answer.status_code != 200:
                    failures.append(answer.text)
                stored.add(writer)

    with serving_process(where, "--workers", "2") as (url, running):
        token = new_token(where)
        with Client(url, token) as client:
            client.post("/v1/cookies", json=numbered_cookies(range(100)))
            client.store("large", *(output(n, data={"text": "x" * 2000}) for n in range(5000)))
        writers = [threading.Thread(target=write, args=(url, token, n)) for n in range(3)]
        for thread in writers:
            thread.start()
        wait_until(lambda: stored == {0, 1, 2})
        told = run_successfully("backup", str(archive), "--with-key", *where)
        over.set()
        for thread in writers:
            thread.join()
        assert failures == []
        assert not running.log
    assert "does not contain the secret key" not in told
    assert archive.stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["backup.tar", "data"]
    run_successfully("restore", str(archive), *copy)
    with serving_thread(copy) as url, Client(url, token) as client:
        for writer in range(3):
            items = client.items(f"group-{writer}")
            assert len({item["data"]["turn"] for item in items}) == 1
            for item in items:
                [file] = item["files"]
                assert client.get(file["blob_url"]).status_code == 200
        assert len(client.items("large", limit=1000)) == 5000
        assert len(client.get("/v1/cookies").json()) == 100


@pytest.mark.thorough
def test_a_backup_holds_the_key_only_with_with_key(tmp_path: Path) -> None:
    where, copy = ["--data", str(tmp_path / "data")], ["--data", str(tmp_path / "copy")]
    archive, key = tmp_path / "backup.tar", tmp_path / "data" / "secret.key"
    with serving_thread(where) as url:
        token = new_token(where)
        with Client(url, token) as client:
            client.post("/v1/cookies", json=numbered_cookies(range(3)))
            told = run_successfully("backup", str(archive), *where)
    assert "does not contain the secret key" in told
    assert key.read_bytes().strip() not in archive.read_bytes()
    with tarfile.open(archive) as held:
        assert held.getnames() == ["gleanery.sqlite", "manifest.json"]
    told = run_successfully("restore", str(archive), *copy)
    assert "Write the secret key" in told
    refused = gleanery("serve", *copy, "--port", "0")
    assert refused.returncode == 2
    assert "put it back" in refused.stderr
    shutil.copy(key, tmp_path / "copy" / "secret.key")
    with serving_thread(copy) as url, Client(url, token) as client:
        assert [one["value"] for one in client.get("/v1/cookies").json()] == ["v0", "v1", "v2"]


def test_a_file_that_is_removed_during_a_backup_does_not_stop_it(tmp_path: Path) -> None:
    where, copy = ["--data", str(tmp_path / "data")], ["--data", str(tmp_path / "copy")]
    archive = tmp_path / "backup.tar"
    with serving_thread(where) as url:
        token = new_token(where)
        with Client(url, token) as client:
            client.store("group", with_file(client, 1), with_file(client, 2))
            unnamed = store_file(client, 3)
            items = client.items("group")
            blobs = {item["source_url"]: item["files"][0]["blob_key"] for item in items}
            held = {p for p in (tmp_path / "data" / "blobs").rglob("*") if p.is_file()}
            named = {tmp_path / "data" / "blobs" / key for key in blobs.values()}
            for path in held - named:
                path.unlink()  # as the service does with an unused file
            lost = blobs[output(2)["source_url"]]
            (tmp_path / "data" / "blobs" / lost).unlink()  # an error of the operator
            told = run_successfully("backup", str(archive), "--with-key", *where)
    assert "contains the database and 1 file." in told
    assert f"already lost or damaged: {lost}" in told
    assert lost in run_successfully("restore", str(archive), *copy)
    with serving_thread(copy) as url, Client(url, token) as client:
        assert client.get(f"/v1/files/{unnamed}").status_code == 404
        found = {item["source_url"]: item["files"][0]["id"] for item in client.items("group")}
        kept, gone = (found[output(number)["source_url"]] for number in (1, 2))
        assert client.get(f"/v1/files/{kept}").content == b"1" * 1000
        assert client.get(f"/v1/files/{gone}").status_code == 404
        assert store_file(client, 2) == gone  # the upload restores it
        assert client.get(f"/v1/files/{gone}").content == b"2" * 1000


def test_a_backup_needs_the_folder_in_which_the_service_keeps_files(
    archive: Path, tmp_path: Path
) -> None:
    second, where = tmp_path / "second.tar", ["--data", str(tmp_path / "origin")]
    for elsewhere in (tmp_path / "nothing", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        refused = gleanery_in_process("backup", str(second), *where, "--blobs", str(elsewhere))
        assert refused.returncode == 2
        assert "the location that the service uses" in refused.stderr
        assert not second.exists()


def test_a_backup_into_a_missing_folder_says_so(tmp_path: Path) -> None:
    where = ["--data", str(tmp_path / "data")]
    run_successfully("migrate", *where)
    refused = gleanery_in_process("backup", str(tmp_path / "missing" / "a.tar"), *where)
    assert refused.returncode == 2
    assert f"The folder {tmp_path / 'missing'} does not exist: create it" in refused.stderr
    assert not (tmp_path / "missing").exists()


def test_a_backup_command_for_another_engine_names_the_right_one(tmp_path: Path) -> None:
    where = ["--data", str(tmp_path), "--database", "postgresql://127.0.0.1:1/x"]
    for command, words in (("backup", "pg_dump"), ("restore", "gleanery restored")):
        refused = gleanery_in_process(command, str(tmp_path / "file"), *where)
        assert refused.returncode == 2
        assert words in refused.stderr
    refused = gleanery_in_process(
        "backup", str(tmp_path / "file"), "--data", str(tmp_path / "nothing")
    )
    assert refused.returncode == 2
    assert "There is no database" in refused.stderr


@pytest.mark.thorough
def test_a_backup_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    where, archive = ["--data", str(tmp_path / "data")], tmp_path / "backup.tar"
    run_successfully("migrate", *where)
    no_room = (
        "import resource as r; from gleanery.cli import main; "
        "r.setrlimit(r.RLIMIT_FSIZE, (100_000, 100_000)); main()"
    )
    command = [sys.executable, "-c", no_room, "backup", str(archive), *where]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("gleanery: Cannot copy")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_backup_with_the_key_of_another_database_is_refused(archive: Path) -> None:
    where, second = ["--data", str(archive.parent / "origin")], str(archive.parent / "second.tar")
    for wrong in (new_secret_key(), "nonsense"):
        refused = gleanery_in_process(
            "backup", second, "--with-key", *where, GLEANERY_SECRET_KEY=wrong
        )
        assert refused.returncode == 2
        assert "GLEANERY_SECRET_KEY" in refused.stderr
    assert not Path(second).exists()


# --- restores -----------------------------------------------------------------------------------


def test_a_compressed_backup_is_refused_and_leaves_no_folder(archive: Path, tmp_path: Path) -> None:
    compressed = tmp_path / "backup.tar.gz"
    compressed.write_bytes(gzip.compress(archive.read_bytes()))
    target = tmp_path / "new" / "data"
    refused = gleanery_in_process("restore", str(compressed), "--data", str(target))
    assert refused.returncode == 2
    assert "it is compressed with gzip; decompress it first" in refused.stderr
    assert not target.parent.exists()


def test_a_restore_into_a_folder_with_a_database_is_refused(archive: Path, tmp_path: Path) -> None:
    where = ["--data", str(tmp_path / "data")]
    with serving_thread(where):
        refused = gleanery_in_process("restore", str(archive), *where)
        assert refused.returncode == 2
        assert "is using" in refused.stderr
        for path in (tmp_path / "data").glob("gleanery.sqlite*"):
            path.unlink()
        refused = gleanery_in_process(
            "restore", str(archive), *where
        )  # the service still has the database open
        assert refused.returncode == 2
        assert "is using" in refused.stderr
    for path in (tmp_path / "data").glob("gleanery.sqlite*"):
        path.unlink()
    run_successfully("migrate", "--create", *where)
    refused = gleanery_in_process("restore", str(archive), *where)
    assert refused.returncode == 2
    assert "There is a database" in refused.stderr
    refused = gleanery_in_process("backup", str(archive), *where)
    assert refused.returncode == 2
    assert "already exists" in refused.stderr


def damaged(archive: Path, found: bytes) -> None:
    """Changes one byte after these bytes."""
    content = bytearray(archive.read_bytes())
    place = content.index(found) + 700
    content[place] ^= 1
    archive.write_bytes(content)


@pytest.mark.parametrize("fault", ["cut", "database", "blob", "manifest", "stranger", "none"])
def test_a_damaged_backup_is_refused_and_leaves_nothing(
    archive: Path, tmp_path: Path, fault: str
) -> None:
    if fault == "cut":
        archive.write_bytes(archive.read_bytes()[:200_000])
    elif fault == "database":
        damaged(archive, b"SQLite format 3")
    elif fault == "blob":
        damaged(archive, b"1" * 1000)
    elif fault == "manifest":
        archive.write_bytes(archive.read_bytes().replace(b'"made"', b'"mede"'))
    elif fault == "stranger":
        with tarfile.open(archive, "a") as held:
            held.add(__file__, "../escaped")
    else:
        archive.write_bytes(b"no archive at all")
    refused = gleanery_in_process("restore", str(archive), "--data", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert "is not a complete backup, or is damaged" in refused.stderr
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "escaped").exists()


@pytest.mark.thorough
def test_a_restore_that_is_killed_can_be_run_again(archive: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    read_manifest = ("gleanery.service.admin.archive", "parse_manifest")
    kill_before_call(read_manifest, 0, "restore", str(archive), "--data", str(data))
    assert (data / "restoring" / "gleanery.sqlite").exists()
    assert not (data / "gleanery.sqlite").exists()
    assert "1999 outputs" in run_successfully("restore", str(archive), "--data", str(data))
    assert sorted(path.name for path in data.iterdir()) == ["blobs", "gleanery.sqlite"]


@pytest.mark.thorough
def test_a_restore_that_is_killed_between_its_renames_can_be_run_again(
    archive: Path, tmp_path: Path
) -> None:
    with_key, origin = tmp_path / "with-key.tar", ["--data", str(tmp_path / "origin")]
    run_successfully("backup", str(with_key), "--with-key", *origin)
    where = ["--data", str(tmp_path / "data"), "--blobs", str(tmp_path / "files")]
    (tmp_path / "files").mkdir(mode=0o750)  # like a mounted disk, the folder stays
    for renames in range(3):  # the key, the files of the one organization, the database
        kill_before_rename(renames, "restore", str(with_key), *where)
        assert not (tmp_path / "data" / "gleanery.sqlite").exists()
    assert [path.name for path in (tmp_path / "files").iterdir() if path.name == "1"]
    elsewhere = gleanery_in_process(
        "restore", str(with_key), *where[:3], str(tmp_path / "origin" / "blobs")
    )
    assert "There are files in" in elsewhere.stderr
    assert "1999 outputs and 1 file" in run_successfully("restore", str(with_key), *where)
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["1"]
    assert (tmp_path / "files").stat().st_mode & 0o777 == 0o750
    names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert names == ["gleanery.sqlite", "secret.key"]
    with serving_thread(where) as url, Client(url, new_token(where[:2])) as client:
        [item] = client.items("group", url=output(1)["source_url"])
        assert client.get(item["files"][0]["blob_url"]).content == b"1" * 1000


RESTORE_STEPS = [
    ("gleanery.service.admin.archive", "sync_folder", 1),  # the staging folders are being created
    ("gleanery.service.admin.restore", "_extract", 0),
    ("gleanery.service.admin.archive", "parse_manifest", 0),
    ("gleanery.service.admin.restore", "_verify", 0),
    ("gleanery.service.admin.restore", "_finish_database", 0),
    ("gleanery.service.maintenance.restore", "_resend_batch", 1),
    ("pathlib", "Path.replace", 0),  # the files are being published
    ("pathlib", "Path.replace", 1),  # the database is being published
]


@pytest.mark.extended
@pytest.mark.parametrize(("module", "name", "calls"), RESTORE_STEPS)
def test_a_restore_that_is_killed_is_not_served_as_an_empty_database(
    archive: Path, tmp_path: Path, module: str, name: str, calls: int
) -> None:
    where = ["--data", str(tmp_path / "data")]
    for _ in range(2):  # the second time it finds what the first one has left
        kill_before_call((module, name), calls, "restore", str(archive), *where)
        for command in (["serve", "--port", "0"], ["migrate"]):
            refused = gleanery(*command, *where)
            assert refused.returncode == 2
            assert "run gleanery restore again" in refused.stderr
        assert not (tmp_path / "data" / "gleanery.sqlite").exists()
    assert "1999 outputs" in run_successfully("restore", str(archive), *where)
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {"blobs", "gleanery.sqlite"}


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_restore_that_is_stopped_is_not_served_as_an_empty_database(
    archive: Path, tmp_path: Path, number: int
) -> None:
    stopped = (
        "import os; from gleanery.service.admin import restore; from gleanery.cli import main; "
        f"restore._verify = lambda *_: os.kill(os.getpid(), {number}); main()"
    )
    where = ["--data", str(tmp_path / "data")]
    command = [sys.executable, "-c", stopped, "restore", str(archive), *where]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    assert list((tmp_path / "data" / "restoring").iterdir()) == []
    refused = gleanery("serve", "--port", "0", *where)
    assert refused.returncode == 2
    assert "run gleanery restore again" in refused.stderr
    (tmp_path / "data" / "restoring").rmdir()  # the other advice of that message
    run_successfully("migrate", *where)


@pytest.mark.thorough
def test_the_write_ahead_log_of_an_older_database_prevents_a_restore(
    tmp_path: Path,
) -> None:
    """SQLite would apply the old log to the restored database."""
    data, archive = tmp_path / "data", tmp_path / "backup.tar"
    where, port = ["--data", str(data)], free_port()
    url = f"http://127.0.0.1:{port}"
    with Running("serve", *where, "--port", str(port)) as running:
        running.wait_ready(url)
        with Client(url, new_token(where)) as client:
            client.store("group", output(1))
            run_successfully("backup", str(archive), *where)
            client.store("group", *(output(n) for n in range(100)))
        running.stop(signal.SIGKILL)
    (data / "gleanery.sqlite").rename(tmp_path / "away")
    assert (data / "gleanery.sqlite-wal").stat().st_size > 0
    refused = gleanery_in_process("restore", str(archive), *where)
    assert refused.returncode == 2
    assert "whose names start with gleanery.sqlite" in refused.stderr
    for path in data.glob("gleanery.sqlite-*"):
        path.rename(tmp_path / path.name)
    assert "1 output and" in run_successfully("restore", str(archive), *where)


def test_a_restore_overwrites_no_files_and_no_key(archive: Path, tmp_path: Path) -> None:
    data, files, taken = tmp_path / "data", tmp_path / "files", tmp_path / "taken"
    taken.mkdir()
    (taken / "of another").touch()
    refused = gleanery_in_process(
        "restore", str(archive), "--data", str(data), "--blobs", str(taken)
    )
    assert refused.returncode == 2
    assert "There are files in" in refused.stderr
    with_key = tmp_path / "with-key.tar"
    run_successfully("backup", str(with_key), "--with-key", "--data", str(tmp_path / "origin"))
    data.mkdir()
    (data / "secret.key").write_text(new_secret_key())
    (data / "secret.key").chmod(0o600)
    refused = gleanery_in_process(
        "restore", str(with_key), "--data", str(data), "--blobs", str(files)
    )
    assert refused.returncode == 2
    assert "is not the key of the backup" in refused.stderr
    (data / "secret.key").unlink()
    run_successfully("restore", str(with_key), "--data", str(data), "--blobs", str(files))
    assert sorted(path.name for path in data.iterdir()) == ["gleanery.sqlite", "secret.key"]
    where = ["--data", str(data), "--blobs", str(files)]
    with serving_thread(where) as url, Client(url, new_token(where[:2])) as client:
        [item] = client.items("group", url=output(1)["source_url"])
        assert client.get(item["files"][0]["blob_url"]).content == b"1" * 1000


def test_a_backup_holds_unfinished_bulk_jobs(tmp_path: Path) -> None:
    where, copy = ["--data", str(tmp_path / "data")], ["--data", str(tmp_path / "copy")]
    with serving_thread(where) as url:
        token = new_token(where)
        with Client(url, token) as client:
            client.store("group", *(output(n) for n in range(5)))
    note = """
INSERT INTO bulk_jobs (organization_id, group_id, job_id, kind, until_seq, done_seq, as_of)
SELECT 1, groups.id, jobs.id, 'approve', last_seq, 0, last_seq FROM groups, jobs
"""
    execute_sql(Settings(data=tmp_path / "data"), note)
    run_successfully("backup", str(tmp_path / "backup.tar"), "--with-key", *where)
    run_successfully("restore", str(tmp_path / "backup.tar"), *copy)
    with serving_thread(copy) as url, Client(url, token) as client:
        assert [item["is_approved"] for item in client.items("group")] == [True] * 5


# --- clients after a restore --------------------------------------------------------------------


class Place(NamedTuple):
    """A service that can be restored to an earlier state, on either engine."""

    where: list[str]
    variables: dict[str, str]
    back_up: Callable[[], None]
    go_back: Callable[[], list[str]]


@pytest.fixture
def place(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if engine == "sqlite":
        where, file = ["--data", str(tmp_path / "data")], str(tmp_path / "backup.tar")

        def back_up() -> None:
            run_successfully("backup", file, "--with-key", *where)

        def go_back() -> list[str]:
            (tmp_path / "data").rename(tmp_path / "broken")
            run_successfully("restore", file, *where)
            return where

        return Place(where, {}, back_up, go_back)
    server: PostgresServer = request.getfixturevalue("postgres")
    owner = server.new_user("CREATEROLE")
    url, dump = server.new_database(owner), tmp_path / "dump.sql"
    where = ["--data", str(tmp_path / "data"), "--database", url]

    def take_dump() -> None:
        """Follows docs/operations/back-up-and-restore.md."""
        options = ("--enable-row-security", "--no-owner", "--no-privileges")
        everyone = {"PGOPTIONS": "-c gleanery.organization=-1"}
        dump.write_bytes(server.dump(url, *options, **everyone))

    def load_dump() -> list[str]:
        again = [*where[:-1], server.new_database(owner)]
        server.load(again[-1], dump.read_bytes())
        run_successfully("restored", "--yes", *again)
        return again

    return Place(where, {"GLEANERY_SECRET_KEY": new_secret_key()}, take_dump, load_dump)


@pytest.mark.thorough
def test_a_database_whose_restore_was_interrupted_is_not_served(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_thread(place.where, **place.variables) as url:
        token = new_token(place.where)
        with Client(url, token) as client:
            client.store("group", *(output(n) for n in range(50)))
    steps, send = iter(range(3)), mutations.resend_range

    async def send_or_fail(*some: Any) -> int:
        if next(steps, None) is None:
            raise SettingsError("interrupted")
        return await send(*some)

    monkeypatch.setattr(restore_steps, "_BATCH_SIZE", 10)
    monkeypatch.setattr(mutations, "resend_range", send_or_fail)
    assert "interrupted" in gleanery_in_process("restored", "--yes", *place.where).stderr
    monkeypatch.undo()
    refused = gleanery("serve", *place.where, "--port", "0", **place.variables)
    assert refused.returncode == 2
    assert "run it again" in refused.stderr
    assert "50 outputs" in run_successfully("restored", "--yes", *place.where)
    with serving_thread(place.where, **place.variables) as url, Client(url, token) as client:
        assert len(client.items("group")) == 50


@pytest.mark.thorough
def test_restored_is_not_run_by_mistake(place: Place) -> None:
    """Its name is one letter longer than restore, and it makes every client sync again."""
    in_use = "give --yes to make every client sync again"
    options = list(place.where)
    if "--database" not in place.where:
        in_use = "A service or another command is using"
        options.append("--yes")
    with (
        serving_thread(place.where, **place.variables) as url,
        Client(url, new_token(place.where)) as client,
    ):
        client.store("group", output(1))
        before = client.get("/v1/changes/group").json()
        refused = gleanery_in_process("restored", *options)
        assert refused.returncode == 2
        assert in_use in refused.stderr
        assert client.get("/v1/changes/group").json() == before
    refused = gleanery_in_process("restored", *place.where)
    assert refused.returncode == 2
    assert "give --yes to make every client sync again" in refused.stderr
    assert "1 output" in run_successfully("restored", "--yes", *place.where)


RESTORED_STEPS = [
    ("gleanery.service.maintenance.restore", "_last_change"),
    ("gleanery.service.resources.outputs.bulk_jobs", "unfinished"),
    ("gleanery.service.maintenance.restore", "_begin_restore"),
    ("gleanery.service.maintenance.restore", "_move_groups"),
    ("gleanery.service.maintenance.restore", "_resend_batch"),
    ("gleanery.service.storage.metadata", "finish_restore"),
]


@pytest.mark.extended
def test_a_database_is_not_served_after_any_killed_step_of_restored(place: Place) -> None:
    with serving_thread(place.where, **place.variables) as url:
        token = new_token(place.where)
        with Client(url, token) as client:
            client.store("group", *(output(n) for n in range(5)))
    for step in RESTORED_STEPS:
        kill_before_call(step, 0, "restored", "--yes", *place.where)
        refused = gleanery("serve", *place.where, "--port", "0", **place.variables)
        assert refused.returncode == 2, step
        assert "If it was interrupted, run it again" in refused.stderr
        run_successfully("restored", "--yes", *place.where)
    with serving_thread(place.where, **place.variables) as url, Client(url, token) as client:
        assert len(client.items("group")) == 5


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["COPY public.cookies ", "COPY public.outputs ", "CREATE INDEX "])
def test_a_dump_that_is_loaded_in_part_is_not_served(
    postgres: PostgresServer, tmp_path: Path, end: str
) -> None:
    variables = {"GLEANERY_SECRET_KEY": new_secret_key()}
    owner = postgres.new_user("CREATEROLE")
    where = ["--data", str(tmp_path), "--database", postgres.new_database(owner)]
    with serving_thread(where, **variables) as url, Client(url, new_token(where)) as client:
        client.store("group", output(1))
    everyone = {"PGOPTIONS": "-c gleanery.organization=-1"}
    options = ("--enable-row-security", "--no-owner", "--no-privileges")
    dump = postgres.dump(where[-1], *options, **everyone)
    copy = postgres.new_database(owner)
    postgres.load(copy, dump[: dump.index(end.encode())])
    for command in (["serve", "--port", "0"], ["restored", "--yes"]):
        refused = gleanery(*command, *where[:-1], copy, **variables)
        assert refused.returncode == 2
        assert "load the dump again into a new database" in refused.stderr


_DUMP_OPTIONS = ("--enable-row-security", "--no-owner", "--no-privileges")


def assert_not_served(where: Sequence[str], variables: Mapping[str, str]) -> None:
    refused = gleanery("serve", *where, "--port", "0", **variables)
    assert refused.returncode == 2, refused.stderr
    assert "run gleanery restored" in refused.stderr
    assert "--same-data" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.thorough
@pytest.mark.parametrize("is_restricted", [False, True])
def test_a_dump_that_was_loaded_and_not_announced_is_not_served(
    postgres: PostgresServer, tmp_path: Path, is_restricted: bool
) -> None:
    """Without the right to read the cluster's identifier, the OIDs of the database tell it."""
    variables = {"GLEANERY_SECRET_KEY": new_secret_key()}
    owner = postgres.new_user("CREATEROLE")
    where = ["--data", str(tmp_path), "--database", postgres.new_database(owner)]
    if is_restricted:
        run_script(
            Settings(data=tmp_path, database=where[-1].replace(f"//{owner}:", "//postgres:")),
            "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
        )
    with serving_thread(where, **variables) as url, Client(url, new_token(where)) as client:
        client.store("group", output(1))
    with serving_thread(where, **variables):
        pass  # the same database is served again
    everyone = {"PGOPTIONS": "-c gleanery.organization=-1"}
    dump = postgres.dump(where[-1], *_DUMP_OPTIONS, **everyone)
    moved, restored = ([*where[:-1], postgres.new_database(owner)] for _ in range(2))
    for copy in (moved, restored):
        postgres.load(copy[-1], dump)
        run_successfully("migrate", *copy)  # grants the rights that the dump lacks
        assert_not_served(copy, variables)
    with serving_process(moved, "--same-data", **variables):
        pass
    run_successfully("restored", "--yes", *restored)
    for copy in (moved, restored):
        with serving_thread(copy, **variables):
            pass
    clean = postgres.dump(moved[-1], *_DUMP_OPTIONS, "--clean", **everyone)
    postgres.load(moved[-1], clean)  # into the same database
    run_successfully("migrate", *moved)
    assert_not_served(moved, variables)


class Syncer:
    """A client that keeps a copy by pages, with the latest date it has seen, as dlt does."""

    def __init__(self) -> None:
        self.copy: dict[str, Any] = {}
        self.latest = "2020-01-01T00:00:00Z"

    def sync(self, client: Client) -> None:
        for item in client.items("group", created_after=self.latest, limit=3):
            if item["update_date"] >= self.latest:  # dlt drops older items itself
                self.copy[item["output_id"]] = item
        dates = [item["update_date"] for item in self.copy.values()]
        self.latest = max([self.latest, *dates])


class Follower:
    """A client that keeps a copy by the change feed of a view."""

    def __init__(self, view: str = "full") -> None:
        self.view = view
        self.copy: dict[str, Any] = {}
        self.cursor = 0
        self.restarts = 0

    def sync(self, client: Client) -> None:
        query = {"cursor": self.cursor, "view": self.view}
        if client.get("/v1/changes/group", params=query).status_code == 410:
            self.copy, self.cursor, self.restarts = {}, 0, self.restarts + 1
        self.cursor = follow_changes(client, self.copy, self.cursor, view=self.view)


@pytest.mark.thorough
def test_clients_have_the_right_copy_after_a_restore(place: Place) -> None:
    syncer, follower = Syncer(), Follower()
    with serving_thread(place.where, **place.variables) as url:
        token = new_token(place.where)
        with Client(url, token) as client:
            client.store("group", *(output(n) for n in range(10)))
            gone = [client.store("group", output(n))["results"][0] for n in (8, 9)]
            client.delete(f"/v1/outputs/group/{gone[0]['output_id']}")
            client.post("/v1/local-storage", json=numbered_entries(range(2)))
            [emptied] = client.store("emptied", output(1))["results"]
            client.delete(f"/v1/outputs/emptied/{emptied['output_id']}")
            for one in (syncer, follower):
                one.sync(client)
            rested = follower.cursor
    place.back_up()
    wait_for_next_second()
    with serving_thread(place.where, **place.variables) as url, Client(url, token) as client:
        # The clients see these changes before the restore loses them.
        client.store("group", output(1, data={"lost": True}), output(20), output(21))
        client.store("another", output(1))
        client.delete(f"/v1/outputs/group/{gone[1]['output_id']}")
        client.post("/v1/local-storage", json=numbered_entries(range(10, 12)))
        for one in (syncer, follower):
            one.sync(client)
        lost_ids = {item["id"] for item in client.items("group") + client.items("another")}
        lost_entries = {one["id"] for one in client.get("/v1/local-storage").json()}
        lost_groups = {one["id"] for one in client.get("/v1/groups").json()}
        page = client.get("/v1/outputs/group", params={"limit": 9}).json()["metadata"]
        feed = client.get("/v1/changes/another").json()["cursor"]
        log = client.get("/v1/audit").json()["cursor"]
    again = place.go_back()
    with serving_thread(again, **place.variables) as url, Client(url, token) as client:
        check(client, syncer, follower, restarts=1)
        assert len(stored_outputs(client)) == 9
        # A client in the middle of its pages gets the current state of everything.
        rest = client.items("group", cursor=page["next_cursor"])
        assert {item["output_id"]: item for item in rest} == stored_outputs(client)
        # A client that paused since before the backup must start again.
        stale = client.get("/v1/changes/group", params={"cursor": rested})
        assert stale.status_code == 410
        # A client that starts at the current end of the feed is accepted.
        stands = client.get("/v1/groups/emptied").json()["cursor"]
        assert client.get("/v1/changes/emptied", params={"cursor": stands}).status_code == 200
        # A client that follows the audit log sees the restore, and continues.
        follows = client.get("/v1/audit", params={"cursor": log}).json()["entries"]
        assert [entry["action"] for entry in follows] == ["restore"]
        # New outputs are recognised as new.
        client.store("group", output(1, data={"new": True}), output(30), output(31))
        client.delete(f"/v1/outputs/group/{next(iter(stored_outputs(client)))}")
        check(client, syncer, follower, restarts=1)
        fresh = Follower()
        fresh.sync(client)
        assert fresh.copy == stored_outputs(client)
        kept = {item["id"] for item in stored_outputs(client).values()}
        assert client.store("group", output(40))["results"][0]["id"] not in lost_ids | kept
        # A group that was lost and comes back: its old cursors are refused as well.
        assert client.get("/v1/outputs/another").status_code == 404
        client.store("another", output(1))
        old = client.get("/v1/changes/another", params={"cursor": feed})
        assert old.status_code == 410
        assert client.get("/v1/groups/another").json()["id"] not in lost_groups
        client.post("/v1/local-storage", json=numbered_entries(range(50, 52)))
        entry_ids = {one["id"] for one in client.get("/v1/local-storage").json()}
        assert len(entry_ids - lost_entries) == 2


@pytest.mark.thorough
def test_a_reader_of_the_approved_view_has_the_right_copy_after_a_restore(place: Place) -> None:
    reader = Follower("approved")
    with serving_thread(place.where, **place.variables) as url:
        token = new_token(place.where)
        with Client(url, token) as client:
            client.store("group", *(output(n, job_id=f"job {n % 2}") for n in range(6)))
            approve(client, "job 0")
            approve(client, "job 1")
            client.store("group", output(2, job_id="job 0", data={"newer": True}))
            reader.sync(client)
            kept = {key: item["data"] for key, item in reader.copy.items()}
            assert len(kept) == 6
    place.back_up()
    wait_for_next_second()
    with serving_thread(place.where, **place.variables) as url, Client(url, token) as client:
        approve(client, "job 0")  # these changes are lost
        approve(client, "job 1", "rejected")
        reader.sync(client)
        assert len(reader.copy) == 3
    again = place.go_back()
    with serving_thread(again, **place.variables) as url, Client(url, token) as client:
        reader.sync(client)
        assert reader.restarts == 1
        assert {key: item["data"] for key, item in reader.copy.items()} == kept
        for page in client.get("/v1/changes/group?view=approved").json()["changes"]:
            assert page["change_date"] == page["output"]["update_date"]
        approve(client, "job 0")
        approve(client, "job 1", "rejected")
        reader.sync(client)
        assert len(reader.copy) == 3
        fresh = Follower("approved")
        fresh.sync(client)
        assert fresh.copy == reader.copy
        assert reader.restarts == 1


@pytest.mark.thorough
def test_outputs_have_their_history_after_a_restore(place: Place) -> None:
    with serving_thread(place.where, **place.variables) as url:
        token = new_token(place.where)
        with Client(url, token) as client:
            ids = [history_of(client, number, range(12)) for number in (1, 2)]
            client.delete(f"/v1/outputs/group/{ids[1]}")
            kept = versions(client, ids[0])
            assert len(versions(client, ids[1])) == 13
    place.back_up()
    with serving_thread(place.where, **place.variables) as url, Client(url, token) as client:
        history_of(client, 1, range(20, 23))
    again = place.go_back()
    with serving_thread(again, **place.variables) as url, Client(url, token) as client:
        assert versions(client, ids[0]) == kept
        # A restore deletes the tombstones, and with them the history of deleted outputs.
        assert client.get(f"/v1/outputs/group/{ids[1]}/history").status_code == 404
        history_of(client, 1, [30])
        assert versions(client, ids[0])[1:] == kept


def history_of(client: Client, number: int, prices: Iterable[int]) -> str:
    """Stores versions of an output, and returns its id."""
    for price in prices:
        [result] = client.store("group", output(number, data={"price": price}))["results"]
    return str(result["output_id"])


def versions(client: Client, output_id: str) -> list[tuple[Any, Any]]:
    """What changed in each version of an output, newest first."""
    answer = client.get(f"/v1/outputs/group/{output_id}/history")
    return [(one.get("value_hash"), one.get("fields")) for one in answer.json()["versions"]]


def approve(client: Client, job: str, status: str = "approved") -> None:
    answer = client.post("/v1/reviews/group", json={"job_id": job, "status": status})
    assert answer.status_code == 200


def check(client: Client, syncer: Syncer, follower: Follower, restarts: int) -> None:
    """Both copies match the database; only the feed reports deletions."""
    now = stored_outputs(client)
    for one in (syncer, follower):
        one.sync(client)
    assert follower.copy == now
    assert {key: syncer.copy[key] for key in now} == now
    assert follower.restarts == restarts
