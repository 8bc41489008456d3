"""A restore rejects each malformed backup with one sentence, and leaves nothing."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.process import gleanery_in_process, run_successfully
from tests.support.service import new_secret_key

MANIFEST = {
    "format": 1,
    "program": "1.0",
    "made": 0,
    "database": "0" * 64,
    "files": 0,
    "lost": [],
    "key": "",
}
BLOB = "blobs/1/aa/" + "a" * 32
Members = list[tuple[str, bytes]]


def packed(members: Members) -> bytes:
    """Tar archive with these members."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in members:
            header = tarfile.TarInfo(name)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return file.getvalue()


def unpacked(archive: Path) -> Members:
    with tarfile.open(archive) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]


DAMAGED = "is not a complete backup, or is damaged: "


def assert_rejected(content: bytes, reason: str = DAMAGED) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        (Path(folder) / "b.tar").write_bytes(content)
        refused = gleanery_in_process("restore", f"{folder}/b.tar", "--data", str(data))
        assert refused.returncode == 2
        assert reason in refused.stderr
        assert refused.stderr.startswith("gleanery: ")
        assert refused.stderr.removesuffix("\n").isprintable()  # one line
        assert not data.exists()


# --- manifests ----------------------------------------------------------------------------------

WRONG_MEMBERS: dict[str, list[Any]] = {
    "format": [None, "1", True, 0, -1, [], {}, 1.5],
    "program": [None, 1, [], {}],
    "made": [None, "0", True, -1, 1.5, 10**30, [], {}],
    "database": [None, 0, "", "0" * 63, "0" * 64 + "\n", "G" * 64, [], {}],
    "files": ["0", True, -1, 0.5, 10**30, [], {}],
    "lost": [None, 0, "", {}, [0], [None], [[]], ["../../etc/passwd"], ["1/aa/" + "a" * 33]],
    "key": [None, 0, "x", "0" * 9, "\x1b]0;title\x07", [], {}],
}


@pytest.mark.parametrize("member", WRONG_MEMBERS)
def test_a_manifest_with_a_wrong_member_is_rejected(backed_up: Path, member: str) -> None:
    *members, (_, text) = unpacked(backed_up / "backup.tar")
    manifest = json.loads(text)
    for value in WRONG_MEMBERS[member]:
        wrong = json.dumps(manifest | {member: value}).encode()
        assert_rejected(packed([*members, ("manifest.json", wrong)]), f"{DAMAGED}its manifest")
    without = json.dumps({name: manifest[name] for name in manifest if name != member}).encode()
    assert_rejected(packed([*members, ("manifest.json", without)]), f"{DAMAGED}its manifest")


MALFORMED_MANIFESTS = {
    "empty": b"",
    "array": b"[]",
    "text": b'"manifest"',
    "null": b"null",
    "cut": b'{"format": 1, "made"',
    "NaN": json.dumps(MANIFEST | {"made": float("nan")}).encode(),
    "infinite": json.dumps(MANIFEST | {"files": float("inf")}).encode(),
    "many digits": json.dumps(MANIFEST).replace('"made": 0', '"made": ' + "9" * 5000).encode(),
    "unknown member": json.dumps(MANIFEST | {"more": 1}).encode(),
    "invalid UTF-8": json.dumps(MANIFEST).encode().replace(b"1.0", b"\xff\xfe"),
    "surrogate": json.dumps(MANIFEST | {"program": "\ud800"}).encode(),
    "UTF-16": json.dumps(MANIFEST).encode("utf-16"),
    "nested arrays": b"[" * 1_000_000,
    "nested objects": b'{"a":' * 1_000_000,
    "nested member": b'{"format": 1, "lost": ' + b"[" * 1_000_000,
    "nested unknown member": b'{"more": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}",
    "large": json.dumps(MANIFEST).encode() + b" " * 70_000_000,
}


@pytest.mark.parametrize("name", MALFORMED_MANIFESTS)
def test_a_malformed_manifest_is_rejected(name: str) -> None:
    content = packed([("manifest.json", MALFORMED_MANIFESTS[name])])
    assert_rejected(content, f"{DAMAGED}its manifest")


def test_a_manifest_with_a_duplicate_member_is_rejected(backed_up: Path) -> None:
    *members, (_, text) = unpacked(backed_up / "backup.tar")
    twice = text.replace(b"{", b'{"files":0,', 1)
    assert_rejected(packed([*members, ("manifest.json", twice)]), "a member twice")


def test_a_manifest_of_a_newer_format_asks_for_an_upgrade() -> None:
    newer = json.dumps({"format": 2, "anything": {"else": []}}).encode()
    assert_rejected(packed([("manifest.json", newer)]), "upgrade first")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4),
)
MANIFESTS = st.fixed_dictionaries({}, optional=dict.fromkeys(MANIFEST, JSON_VALUES))


@pytest.mark.thorough
@given(
    st.binary(max_size=200)
    | st.builds(lambda value: json.dumps(value).encode(), JSON_VALUES)
    | st.builds(lambda value: json.dumps(MANIFEST | value).encode(), MANIFESTS)
)
def test_any_manifest_without_a_database_is_rejected(content: bytes) -> None:
    assert_rejected(packed([("manifest.json", content)]), "")


# --- archives -----------------------------------------------------------------------------------


@pytest.mark.thorough
@given(st.binary(max_size=2000), st.integers(0, 3000))
def test_any_bytes_are_rejected(content: bytes, position: int) -> None:
    whole = packed([(BLOB, b"content"), ("manifest.json", json.dumps(MANIFEST).encode())])
    for crafted in (content, whole[:position] + content + whole[position + len(content) :]):
        assert_rejected(crafted, "")


def special(kind: bytes, name: str = BLOB, size: int = 0) -> bytes:
    """Archive whose first member is not a regular file."""
    header = tarfile.TarInfo(name)
    header.type, header.size, header.linkname = kind, size, "/etc/passwd"
    return header.tobuf(tarfile.GNU_FORMAT) + bytes(10240)


KINDS = {
    "hard link": tarfile.LNKTYPE,
    "symbolic link": tarfile.SYMTYPE,
    "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE,
    "folder": tarfile.DIRTYPE,
    "pipe": tarfile.FIFOTYPE,
    "contiguous": tarfile.CONTTYPE,
    "long name": tarfile.GNUTYPE_LONGNAME,
    "sparse": tarfile.GNUTYPE_SPARSE,
    "extended header": tarfile.XHDTYPE,
    "global header": tarfile.XGLTYPE,
    "unknown": b"?",
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_accepted(kind: str) -> None:
    assert_rejected(special(KINDS[kind]), "something that is not a regular file")


NAMES = [
    "../escaped",
    "/tmp/escaped",
    "blobs/../../escaped",
    "blobs/1/aa/../" + "a" * 32,
    "blobs/" + "1" * 90,
    "blobs/١/aa/" + "a" * 32,
    BLOB + "\n",
    BLOB.upper(),
    "./manifest.json",
    "gleanery.sqlite-wal",
    "placing",
    "",
    "\x1b[2J",
]


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_name_is_rejected(name: str) -> None:
    assert_rejected(packed([(name, b"content")]))


@pytest.mark.thorough
@pytest.mark.parametrize("position", range(4))
def test_a_member_that_occurs_twice_is_rejected(backed_up: Path, position: int) -> None:
    members: Members = [*unpacked(backed_up / "backup.tar")]
    members.insert(1, ("secret.key", new_secret_key().encode()))
    assert_rejected(packed([*members[: position + 1], *members[position:]]))


def with_checksum(header: bytearray) -> bytes:
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + sum(header[156:]) + 8 * ord(" "))
    return bytes(header)


def test_a_sparse_member_is_rejected_before_it_is_written(tmp_path: Path) -> None:
    """The archive has some kilobytes, and unpacks to 300 megabytes."""
    size = 300_000_000
    header = bytearray(special(tarfile.GNUTYPE_SPARSE)[:512])
    header[386:410] = b"%011o\0%011o\0" % (size, 0)  # a hole of that size
    header[483:495] = b"%011o\0" % size
    manifest = packed([("manifest.json", json.dumps(MANIFEST).encode())])
    crafted = with_checksum(header) + manifest
    (tmp_path / "b.tar").write_bytes(crafted)
    with tarfile.open(tmp_path / "b.tar") as tar:
        assert [member.size for member in tar] == [size, len(json.dumps(MANIFEST))]
    assert_rejected(crafted, "something that is not a regular file")


@pytest.mark.parametrize("size", [2**40, -1, -(2**40)])
def test_a_wrong_size_is_rejected(size: int) -> None:
    header = bytearray(special(tarfile.REGTYPE)[:512])
    start = b"\x80\0\0\0" if size > 0 else b"\xff\xff\xff\xff"
    header[124:136] = start + struct.pack(">q", size)
    assert_rejected(with_checksum(header) + b"content" * 100)


def test_a_secret_key_that_is_none_is_rejected(backed_up: Path) -> None:
    members = unpacked(backed_up / "backup.tar")
    for text in (b"", b"nonsense", b"\xff", new_secret_key().encode(), b" " * 100_000):
        assert_rejected(packed([("secret.key", text), *members]))


def with_database(folder: Path, change: Callable[[apsw.Connection], object]) -> bytes:
    """The backup with a changed database, and with the checksum of that."""
    members = dict(unpacked(folder / "backup.tar"))
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "database"
        path.write_bytes(members["gleanery.sqlite"])
        connection = apsw.Connection(str(path))
        change(connection)
        connection.close()
        members["gleanery.sqlite"] = path.read_bytes()
    checksum = hashlib.sha256(members["gleanery.sqlite"]).hexdigest()
    manifest = json.loads(members["manifest.json"]) | {"database": checksum}
    members["manifest.json"] = json.dumps(manifest).encode()
    return packed(list(members.items()))


NEW_BLOBS = """
DROP TABLE blobs; CREATE TABLE blobs (organization_id, checksum, key); INSERT INTO blobs VALUES
"""
DATABASE_CHANGES = [
    "UPDATE blobs SET key = '../../../etc/passwd'",
    f"{NEW_BLOBS}(1, x'00', x'00')",
    f"{NEW_BLOBS}(1, 'text', '1/aa/{'a' * 32}')",
    f"{NEW_BLOBS}(NULL, NULL, NULL)",
    "DROP TABLE blobs",
    "DROP TABLE groups",
    "DROP TABLE migrations",
    "UPDATE migrations SET number = number + 1000",
    "UPDATE migrations SET name = 'other'",
]


@pytest.mark.parametrize("sql", DATABASE_CHANGES)
def test_a_crafted_database_is_rejected(backed_up: Path, sql: str) -> None:
    crafted = with_database(backed_up, lambda connection: connection.execute(sql))
    assert_rejected(crafted, "")


def test_a_backup_that_other_tools_have_packed_is_restored(backed_up: Path, tmp_path: Path) -> None:
    (tmp_path / "b.tar").write_bytes(packed(unpacked(backed_up / "backup.tar")))
    restore = ("restore", str(tmp_path / "b.tar"), "--data", str(tmp_path / "data"))
    assert "1999 outputs and 1 file" in run_successfully(*restore)


def test_tar_reads_a_backup(backed_up: Path) -> None:
    listing = subprocess.run(
        ["tar", "-tf", str(backed_up / "backup.tar")], capture_output=True, text=True, check=True
    )
    assert listing.stdout.split()[-2:] == ["gleanery.sqlite", "manifest.json"]
    assert listing.stderr == ""
