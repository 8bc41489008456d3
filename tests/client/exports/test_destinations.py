"""Destinations: whole and at the end, or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

from gleanery.tables import ExportFailed, InvalidExport, open_export
from tests.client.exports.outputs import output

if TYPE_CHECKING:
    from tests.support.s3 import Bucket

_BUCKET = "files"


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """Name of an object that no other test has."""
    return f"exports/{request.node.name}"


def test_a_file_appears_at_the_end(tmp_path: Path) -> None:
    with open_export(str(tmp_path / "a.jsonl"), "jsonl") as export:
        export.write([output(1, {})])
        assert not (tmp_path / "a.jsonl").exists()
        export.finish()
        export.abort()  # does nothing any more
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_a_failure_leaves_no_file(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        _fail(str(tmp_path / "a.jsonl"), error)
    assert not [*tmp_path.iterdir()]


def _fail(target: str, error: type[BaseException], size: int = 1) -> None:
    with open_export(target, "jsonl") as export:
        export.write([output(1, {"text": "x" * size})])
        raise error


def test_a_block_without_finish_leaves_no_file(tmp_path: Path) -> None:
    with open_export(str(tmp_path / "a.jsonl"), "jsonl") as export:
        export.write([output(1, {})])
    assert not [*tmp_path.iterdir()]


_KILLED = """
import os, signal, sys
from gleanery.tables import open_export
from tests.client.exports.outputs import output

export = open_export(sys.argv[1], "parquet")
for number in range(40):  # two row groups
    export.write([output(number, {"text": "x" * 1024 * 1024})])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
@pytest.mark.thorough
def test_files_of_a_killed_export_are_deleted_by_the_next_one(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    subprocess.run([sys.executable, "-c", _KILLED, path], check=False)
    assert len([*tmp_path.iterdir()]) == 2
    with open_export(path, "parquet") as export:
        export.write([output(1, {})])
        export.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
@pytest.mark.thorough
def test_only_their_owner_can_read_files_in_the_shared_folder(tmp_path: Path) -> None:
    """The next export deletes those of a killed one there, too."""
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    program = [sys.executable, "-c", _KILLED, "-"]
    for _ in range(2):
        subprocess.run(program, check=False, env=variables, stdout=subprocess.DEVNULL)
        [left] = tmp_path.iterdir()
        assert stat.S_IMODE(left.stat().st_mode) == 0o600


@pytest.mark.thorough
def test_files_of_another_export_that_runs_are_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    with open_export(path, "parquet", overwrite=True) as export:
        export.write([output(1, {})])
        with open_export(path, "parquet") as other:
            other.write([output(2, {})])
            other.finish()
        export.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    assert pyarrow.parquet.read_table(path)["id"].to_pylist() == [1]


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("mine")
    with pytest.raises(InvalidExport, match="exists already"):
        open_export(str(path), "jsonl")
    assert path.read_text() == "mine"


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with open_export(str(path), "jsonl") as export:
        path.write_text("theirs")
        with pytest.raises(InvalidExport, match="exists already"):
            export.finish()
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [
        ("a.jsonl", "theirs")
    ]


def test_overwriting_keeps_the_old_file_until_the_end(tmp_path: Path) -> None:
    path, link = tmp_path / "a.jsonl", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    with open_export(str(link), "jsonl", overwrite=True) as export:
        export.write([output(1, {})])
        assert path.read_text() == "old"
        export.finish()
    assert link.is_symlink()
    assert path.read_bytes() == output(1, {}) + b"\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_wrong_path_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidExport, match="is a folder"):
        open_export(str(tmp_path), "jsonl")
    with pytest.raises(InvalidExport, match="does not exist"):
        open_export(str(tmp_path / "no" / "a.jsonl"), "jsonl")


def test_a_long_name_is_possible(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 127)
    with open_export(str(path), "jsonl") as export:
        export.finish()
    assert path.exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_is_reported() -> None:
    with (
        pytest.raises(ExportFailed, match="No space left"),
        open_export("/dev/full", "jsonl") as export,
    ):
        export.write([output(1, {})])


@pytest.mark.thorough
def test_standard_output_gets_the_bytes() -> None:
    program = (
        "from gleanery.tables import open_export\n"
        "with open_export('-', 'jsonl') as export:\n"
        "    export.write([b'{\"id\":1}'])\n"
        "    export.finish()\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert result.stdout == b'{"id":1}\n'


@pytest.mark.thorough
@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_table_goes_to_any_destination(
    bucket: Bucket, key: str, tmp_path: Path, format_: str
) -> None:
    """Its temporary files are in the folder for such files, and none is left."""
    program = (
        "import sys\n"
        "from gleanery.tables import open_export\n"
        "target, format_, item = sys.argv[1:]\n"
        "with open_export(target, format_) as export:\n"
        "    export.write([item.encode()])\n"
        "    export.finish()\n"
    )
    temporary, file = tmp_path / "temporary", tmp_path / "file"
    temporary.mkdir()
    for target in (str(file), "-", f"s3://{_BUCKET}/{key}"):
        command = [sys.executable, "-c", program, target, format_, output(1, {"a": 1}).decode()]
        variables = {**os.environ, "TMPDIR": str(temporary)}
        done = subprocess.run(command, capture_output=True, check=True, env=variables)
        if target == "-":
            assert done.stdout == file.read_bytes()
    stored = bucket.client.get_object(Bucket=_BUCKET, Key=key)["Body"].read()
    assert stored == file.read_bytes()
    assert [*temporary.iterdir()] == []


@pytest.mark.thorough
def test_an_object_appears_at_the_end(bucket: Bucket, key: str) -> None:
    size = 20 * 1024 * 1024
    with open_export(f"s3://{_BUCKET}/{key}", "jsonl") as export:
        export.write([output(1, {"text": "x" * size})])
        assert key not in _objects(bucket)
        export.finish()
    assert _objects(bucket)[key] > size
    with pytest.raises(InvalidExport, match="exists already"):
        open_export(f"s3://{_BUCKET}/{key}", "jsonl")
    with open_export(f"s3://{_BUCKET}/{key}", "jsonl", overwrite=True) as export:
        export.finish()
    assert _objects(bucket)[key] == 0


@pytest.mark.thorough
def test_a_failure_aborts_the_upload(bucket: Bucket, key: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        _fail(f"s3://{_BUCKET}/{key}", KeyboardInterrupt, 60 * 1024 * 1024)
    assert bucket.keys().count(key) == 0


@pytest.mark.thorough
def test_an_object_that_appears_meanwhile_is_not_replaced(bucket: Bucket, key: str) -> None:
    with open_export(f"s3://{_BUCKET}/{key}", "jsonl") as export:
        bucket.client.put_object(Bucket=_BUCKET, Key=key, Body=b"theirs")
        with pytest.raises(InvalidExport, match="exists already"):
            export.finish()
    assert _objects(bucket)[key] == 6


@pytest.mark.thorough
def test_an_object_that_cannot_be_written_is_reported(bucket: Bucket, key: str) -> None:
    with open_export(f"s3://{_BUCKET}/{key}", "jsonl") as export:
        bucket.rejection = ("403 Forbidden", "AccessDenied")
        with pytest.raises(ExportFailed, match="Check the bucket"):
            export.finish()
    bucket.rejection = None
    for url in ("s3://", "s3://files", "s3://files/", "s3://files/folder/"):
        with pytest.raises(InvalidExport, match="s3://bucket/key"):
            open_export(url, "jsonl")


def _objects(bucket: Bucket) -> dict[str, int]:
    listed = bucket.client.list_objects_v2(Bucket=_BUCKET).get("Contents", [])
    return {found["Key"]: found["Size"] for found in listed}
