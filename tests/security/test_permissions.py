"""Permissions of the folders and files that the service creates."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gleanery.common.settings import Settings
from tests.support.files import upload
from tests.support.outputs import output
from tests.support.process import run_successfully
from tests.support.service import Service


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """Lets programs create files for everyone, unless they say otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def permissions(*paths: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in paths}


def test_new_parent_folders_are_private_and_existing_ones_are_unchanged(tmp_path: Path) -> None:
    for name in ("data", "blobs"):
        (tmp_path / name).mkdir(mode=0o755)
    data, blobs = tmp_path / "data" / "a" / "b", tmp_path / "blobs" / "c" / "d"
    service = Service(Settings(data=data, blobs=str(blobs), port=0, log_level="warning"))
    with service.client() as client:
        client.store("group", output(0))
        upload(client)
    service.stop()
    assert permissions(data.parent, data, blobs.parent, blobs) == {0o700}
    assert permissions(tmp_path / "data", tmp_path / "blobs") == {0o755}


def test_the_files_of_the_database_are_private(tmp_path: Path) -> None:
    service = Service(Settings(data=tmp_path, port=0, log_level="warning"))
    with service.client() as client:
        client.store("group", output(0))
        files = [path for path in tmp_path.iterdir() if path.is_file()]
        assert {".key", ".sqlite", ".sqlite-shm", ".sqlite-wal"} <= {file.suffix for file in files}
        assert permissions(*files) == {0o600}
    service.stop()


def test_restored_parent_folders_are_private(tmp_path: Path) -> None:
    service = Service(Settings(data=tmp_path / "from", port=0, log_level="warning"))
    with service.client() as client:
        upload(client)
    service.stop()
    archive, data = str(tmp_path / "archive"), tmp_path / "a" / "b"
    run_successfully("backup", archive, "--with-key", "--data", str(tmp_path / "from"))
    blobs = tmp_path / "c" / "d"
    run_successfully("restore", archive, "--data", str(data), "--blobs", str(blobs))
    assert permissions(data.parent, data, blobs.parent, blobs) == {0o700}
