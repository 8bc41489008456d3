"""A backup changes nothing but its own file, and reports why it could not be written."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.support.process import (
    Running,
    environment,
    free_port,
    gleanery,
    gleanery_in_process,
    kill_before_call,
    new_token,
    run_successfully,
    serving_thread,
)
from tests.support.service import Client
from tests.support.session_state import numbered_cookies
from tests.support.waiting import TIMEOUT_SECONDS, wait_until


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def origin(backed_up: Path) -> list[str]:
    """Options for a database that no service uses."""
    return ["--data", str(backed_up / "origin")]


def run(*arguments: str, program: tuple[str, ...] = ("-m", "gleanery"), **streams: Any) -> Any:
    """Runs the command with these streams. Its output is bytes."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    command = [sys.executable, *program, *arguments]
    return subprocess.run(
        command, env=environment(), timeout=TIMEOUT_SECONDS, check=False, **streams
    )


# --- names --------------------------------------------------------------------------------------


def test_a_backup_keeps_files_with_similar_names(origin: list[str], tmp_path: Path) -> None:
    own = [tmp_path / f"backup.tar.{suffix}" for suffix in ("partial", "database")]
    for path in own:
        path.write_text("mine")
    run_successfully("backup", str(tmp_path / "backup.tar"), *origin)
    assert [path.read_text() for path in own] == ["mine", "mine"]
    assert names(tmp_path) == ["backup.tar", "backup.tar.database", "backup.tar.partial"]


@pytest.mark.thorough
def test_a_killed_backup_leaves_only_its_own_folder(origin: list[str], tmp_path: Path) -> None:
    kill_before_call(
        ("gleanery.service.admin.archive", "add_file"),
        1,
        "backup",
        str(tmp_path / "b.tar"),
        *origin,
    )
    [left] = tmp_path.iterdir()
    assert left.match("gleanery-backup-*.partial")
    assert left.stat().st_mode & 0o777 == 0o700
    run_successfully("backup", str(tmp_path / "b.tar"), *origin)
    assert names(tmp_path) == ["b.tar", left.name]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.thorough
def test_a_stopped_backup_leaves_nothing(origin: list[str], tmp_path: Path, number: int) -> None:
    stopped = (
        "import os; from gleanery.service.admin import archive; from gleanery.cli import main; "
        f"archive.add_file = lambda *_: os.kill(os.getpid(), {number}); main()"
    )
    assert run("backup", str(tmp_path / "b.tar"), *origin, program=("-c", stopped)).returncode != 0
    assert names(tmp_path) == []


WAITS_BEFORE_ITS_END = """
import os, sys
from gleanery.cli import main
fsync = os.fsync

def wait_and_fsync(descriptor):
    print("almost", flush=True)
    sys.stdin.read()
    fsync(descriptor)

os.fsync = wait_and_fsync
main()
"""


@pytest.mark.thorough
def test_of_two_backups_with_one_name_one_is_refused(origin: list[str], tmp_path: Path) -> None:
    file = tmp_path / "b.tar"
    with subprocess.Popen(
        [sys.executable, "-c", WAITS_BEFORE_ITS_END, "backup", str(file), *origin],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"almost\n"
        run_successfully("backup", str(file), *origin)
        content = file.read_bytes()
        _, errors = first.communicate(timeout=TIMEOUT_SECONDS)
    assert first.returncode == 2
    assert f"Another program has created {file} during the backup" in errors.decode()
    assert names(tmp_path) == ["b.tar"]
    assert file.read_bytes() == content


def test_a_backup_replaces_no_file_folder_or_link(origin: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "broken").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("file", "already exists"),
        ("folder", "is a folder: give the name of a new file in it"),
        ("link", "already exists"),
        ("broken", "already exists"),
        ("pipe", "already exists"),
        ("x" * 300, "name too long"),
    ):
        refused = gleanery_in_process("backup", str(tmp_path / name), *origin)
        assert refused.returncode == 2
        assert message in refused.stderr
    assert names(tmp_path) == ["broken", "file", "folder", "link", "pipe"]
    assert (tmp_path / "file").read_text() == "mine"
    assert (tmp_path / "broken").is_symlink()


def test_a_backup_may_have_the_longest_name(origin: list[str], tmp_path: Path) -> None:
    run_successfully("backup", str(tmp_path / ("x" * 255)), *origin)
    assert names(tmp_path) == ["x" * 255]


@pytest.mark.thorough
@pytest.mark.thorough
def test_a_backup_is_private_under_any_umask(origin: list[str], tmp_path: Path) -> None:
    file, copy = tmp_path / "b.tar", tmp_path / "copy"
    (copy / "blobs").mkdir(parents=True)
    made = run("backup", str(file), *origin, umask=0)
    assert made.returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600
    restored = run("restore", str(file), "--data", str(copy), umask=0)
    assert restored.returncode == 0, restored.stderr
    created = [path for path in copy.rglob("*") if path != copy / "blobs"]
    assert len(created) == 4
    assert [path for path in created if path.stat().st_mode & 0o077] == []


# --- disks --------------------------------------------------------------------------------------


def in_mount_namespace(script: str, *arguments: str) -> Any:
    """Runs a shell script that may mount disks, which nobody else sees."""
    unshare = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else [])]
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            [*unshare, "mount", "-t", "tmpfs", "none", tempfile.gettempdir()], check=False
        ).returncode
    ):
        pytest.skip("mounts disks, which needs root or user namespaces, and Linux's unshare")
    return subprocess.run(
        [*unshare, "sh", "-c", script, sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


FULL_DISK = """
mount -t tmpfs -o size="$1"k none "$2" || exit 1
folder=$2
shift 2
"$0" -m gleanery "$@" > /dev/null
status=$?
ls -A "$folder"
exit $status
"""


@pytest.mark.thorough
def test_a_backup_on_a_full_disk_leaves_no_files_of_sqlite(
    origin: list[str], tmp_path: Path
) -> None:
    size = (Path(origin[1]) / "gleanery.sqlite").stat().st_size // 1024
    (tmp_path / "disk").mkdir()
    disk = str(tmp_path / "disk")
    # There is no space for: the copy, its lock file, the archive.
    for kibibytes in (size // 2, size + 8, size + 1000):
        backup = ("backup", f"{disk}/b.tar", *origin)
        refused = in_mount_namespace(FULL_DISK, str(kibibytes), disk, *backup)
        assert refused.returncode == 2, refused.stderr
        assert refused.stderr.startswith("gleanery: Cannot ")
        assert "Error of SQLite" not in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert refused.stdout == ""


TOKEN_ON_A_FULL_DISK = """
mount -t tmpfs -o size=4M none "$1" || exit 1
"$0" -m gleanery token create --organization a --data "$1" > /dev/null 2>&1 || exit 1
dd if=/dev/zero of="$1/filler" bs=4k > /dev/null 2>&1
"$0" -m gleanery token create --organization b --data "$1"
"""


@pytest.mark.thorough
def test_a_command_on_a_full_disk_says_that_the_disk_is_full(tmp_path: Path) -> None:
    refused = in_mount_namespace(TOKEN_ON_A_FULL_DISK, str(tmp_path))
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.startswith("gleanery: ")
    assert "the disk is full: free some space" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.thorough
def test_a_restore_on_a_full_disk_leaves_no_files(archive: Path, tmp_path: Path) -> None:
    size = archive.stat().st_size // 1024
    (tmp_path / "disk").mkdir()
    disk = str(tmp_path / "disk")
    # There is no space for: the database, its lock file, its changes.
    for kibibytes, message in (
        (size // 2, "Cannot restore into"),
        (size + 24, "Cannot use the database"),
        (size + 200, "Cannot restore into"),
    ):
        restore = ("restore", str(archive), "--data", disk)
        refused = in_mount_namespace(FULL_DISK, str(kibibytes), disk, *restore)
        assert refused.returncode == 2, refused.stderr
        assert refused.stderr.startswith(f"gleanery: {message}")
        assert refused.stderr.count("\n") == 1
        assert set(refused.stdout.split()) <= {"restoring"}  # so that no service starts


def without_privileges() -> list[str]:
    """Prefix of a command that lets root write only where permissions allow it."""
    if os.getuid():
        return []
    prefix = ["setpriv", "--bounding-set=-dac_override"]
    if shutil.which("setpriv") is None or subprocess.run([*prefix, "true"], check=False).returncode:
        pytest.skip("root can write everywhere; setpriv is missing or may not change that")
    return prefix


@pytest.fixture
def data(origin: list[str], tmp_path: Path) -> Path:
    """A copy of the database."""
    return shutil.copytree(origin[1], tmp_path / "data")


def assert_complete(archive: Path, copy: Path) -> None:
    told = run_successfully("restore", str(archive), "--data", str(copy))
    assert "1999 outputs and 1 file" in told


def back_up_read_only(data: Path, file: Path, *program: str) -> Any:
    """Runs a backup of a folder in which it can create and change nothing."""
    command = [sys.executable, *program, "backup", str(file), "--data", str(data)]
    (data / "gleanery.sqlite").chmod(0o400)
    data.chmod(0o500)
    done = subprocess.run(
        [*without_privileges(), *command],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    data.chmod(0o700)
    assert names(data) == ["blobs", "gleanery.sqlite", "secret.key"]
    return done


@pytest.mark.thorough
def test_a_read_only_folder_can_be_backed_up(data: Path, tmp_path: Path) -> None:
    made = back_up_read_only(data, tmp_path / "b.tar", "-m", "gleanery")
    assert made.returncode == 0, made.stderr
    assert_complete(tmp_path / "b.tar", tmp_path / "copy")


CHANGED_DURING_THE_COPY = """
import os, sys
from gleanery.cli import main
from gleanery.service.admin import backup
copy_pages = backup._copy_pages

def copy_and_change(*arguments):
    copy_pages(*arguments)
    os.utime(sys.argv[-1] + "/gleanery.sqlite")  # as a write does

backup._copy_pages = copy_and_change
main()
"""


@pytest.mark.thorough
def test_a_read_only_database_that_changes_during_its_copy_is_refused(
    data: Path, tmp_path: Path
) -> None:
    refused = back_up_read_only(data, tmp_path / "b.tar", "-c", CHANGED_DURING_THE_COPY)
    assert refused.returncode == 2
    assert "run the backup again" in refused.stderr
    assert names(tmp_path) == ["data"]


@pytest.mark.thorough
@pytest.mark.thorough
def test_a_locked_database_is_reported(data: Path, tmp_path: Path) -> None:
    with closing(apsw.Connection(str(data / "gleanery.sqlite"))) as connection:
        connection.pragma("locking_mode", "exclusive")
        connection.execute("BEGIN EXCLUSIVE")
        refused = gleanery_in_process("backup", str(tmp_path / "b.tar"), "--data", str(data))
    assert refused.returncode == 2
    assert "Another program has locked" in refused.stderr
    assert names(tmp_path) == ["data"]


def test_a_damaged_database_is_reported_by_the_backup(data: Path, tmp_path: Path) -> None:
    """A restore would reject the backup, when it is too late."""
    database = data / "gleanery.sqlite"
    with closing(apsw.Connection(str(database))) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'outputs'").get
        page_bytes = connection.pragma("page_size")
    with database.open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xff" * 8)
    refused = gleanery_in_process("backup", str(tmp_path / "b.tar"), "--data", str(data))
    assert refused.returncode == 2
    assert "gleanery.sqlite is damaged" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert names(tmp_path) == ["data"]


READ_ONLY_DISK = """
mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 1
shift
"$0" -m gleanery "$@"
"""


@pytest.mark.thorough
def test_a_read_only_disk_can_be_backed_up(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.tar"
    made = in_mount_namespace(READ_ONLY_DISK, str(data), "backup", str(file), "--data", str(data))
    assert made.returncode == 0, made.stderr
    assert_complete(file, tmp_path / "copy")


@pytest.mark.thorough
def test_a_read_only_view_of_a_running_service_can_be_backed_up(tmp_path: Path) -> None:
    """The newest data is in the write-ahead log, which must not be missed."""
    data, file = tmp_path / "data", tmp_path / "b.tar"
    where = ["--data", str(data)]
    with serving_thread(where) as url, Client(url, new_token(where)) as client:
        client.post("/v1/cookies", json=numbered_cookies(range(3)))
        assert (data / "gleanery.sqlite-wal").stat().st_size > 0
        made = in_mount_namespace(
            READ_ONLY_DISK, str(data), "backup", str(file), "--with-key", *where
        )
        assert made.returncode == 0, made.stderr
        expected = client.get("/v1/cookies").json()
    copy = ["--data", str(tmp_path / "copy")]
    run_successfully("restore", str(file), *copy)
    with serving_thread(copy) as url, Client(url, new_token(copy)) as client:
        assert client.get("/v1/cookies").json() == expected


@pytest.mark.thorough
def test_a_read_only_database_is_refused_if_its_newest_data_would_be_missed(
    tmp_path: Path,
) -> None:
    data, file = tmp_path / "data", tmp_path / "b.tar"
    where, port = ["--data", str(data)], free_port()
    url = f"http://127.0.0.1:{port}"
    with Running("serve", *where, "--port", str(port)) as running:
        running.wait_ready(url)
        with Client(url, new_token(where)) as client:
            client.post("/v1/cookies", json=numbered_cookies(range(3)))
        running.stop(signal.SIGKILL)
    (data / "gleanery.sqlite-shm").unlink()  # as in a copy of the folder
    refused = in_mount_namespace(READ_ONLY_DISK, str(data), "backup", str(file), *where)
    assert refused.returncode == 2
    assert "which contains the newest data" in refused.stderr
    assert names(tmp_path) == ["data"]


# --- standard output ----------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_backup_to_standard_output_can_be_restored_from_standard_input(
    origin: list[str], tmp_path: Path
) -> None:
    made = run("backup", "-", *origin, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert b"The backup contains the database and 1 file." in made.stderr
    assert names(tmp_path) == []
    (tmp_path / "b.tar").write_bytes(made.stdout)
    with tarfile.open(tmp_path / "b.tar") as content:
        assert content.getnames()[-2:] == ["gleanery.sqlite", "manifest.json"]
    restored = run("restore", "-", "--data", str(tmp_path / "copy"), input=made.stdout)
    assert restored.returncode == 0, restored.stderr
    assert b"1999 outputs and 1 file" in restored.stdout
    (tmp_path / "copy").rename(tmp_path / "first")
    cut = run("restore", "-", "--data", str(tmp_path / "copy"), input=made.stdout[:-3000])
    assert cut.returncode == 2
    assert b"Standard input is not a complete backup" in cut.stderr


def test_a_backup_to_a_closed_pipe_fails(origin: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    failed = run("backup", "-", *origin, stdout=writer)
    os.close(writer)
    assert failed.returncode == 2
    message = (
        b"gleanery: The program that reads standard output has ended: the backup is incomplete\n"
    )
    assert failed.stderr == message


@pytest.mark.thorough
def test_a_backup_to_a_stalled_reader_can_be_stopped(origin: list[str], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    backup = subprocess.Popen(
        [sys.executable, "-m", "gleanery", "backup", "-", *origin],
        stdout=writer,
        stderr=subprocess.DEVNULL,
        env=environment(TMPDIR=str(tmp_path)),
    )
    try:
        wait_until(lambda: not select.select([], [writer], [], 0)[1], TIMEOUT_SECONDS)  # it is full
        backup.terminate()
        assert backup.wait(TIMEOUT_SECONDS) == 128 + signal.SIGTERM
    finally:
        backup.kill()
        backup.wait()
        os.close(reader)
        os.close(writer)
    assert names(tmp_path) == []


@pytest.mark.thorough
def test_a_backup_to_a_full_or_closed_output_fails(origin: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        failed = run("backup", "-", *origin, stdout=full)
    assert failed.returncode == 2
    assert (
        failed.stderr
        == b"gleanery: Cannot write the backup to standard output: No space left on device\n"
    )
    closed = subprocess.run(
        ["sh", "-c", '"$0" -m gleanery "$@" >&-', sys.executable, "backup", "-", *origin],
        capture_output=True,
        env=environment(),
        check=False,
    )
    assert closed.returncode == 2
    assert b"Standard output is closed" in closed.stderr


@pytest.mark.thorough
def test_a_terminal_gets_and_gives_no_backup(origin: list[str], tmp_path: Path) -> None:
    main, terminal = os.openpty()
    refused = run("backup", "-", *origin, stdout=terminal)
    assert refused.returncode == 2
    assert b"gleanery backup - > FILE" in refused.stderr
    refused = run("restore", "-", "--data", str(tmp_path / "copy"), stdin=terminal)
    assert refused.returncode == 2
    assert b"Standard input is a terminal" in refused.stderr
    assert names(tmp_path) == []
    os.close(main)
    os.close(terminal)


@pytest.mark.thorough
def test_a_backup_to_standard_output_is_for_sqlite_only(tmp_path: Path) -> None:
    where = ["--data", str(tmp_path), "--database", "postgresql://127.0.0.1:1/x"]
    refused = gleanery("backup", "-", *where)
    assert refused.returncode == 2
    assert "pg_dump" in refused.stderr
    assert refused.stdout == ""
