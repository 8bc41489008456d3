"""Fixtures: a database with some outputs and a file, and a backup of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.files import with_file
from tests.support.outputs import output
from tests.support.process import new_token, run_successfully, serving_thread
from tests.support.service import Client


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with some outputs and a file, and a backup of it."""
    folder = tmp_path_factory.mktemp("backed-up")
    where = ["--data", str(folder / "origin")]
    with serving_thread(where) as url, Client(url, new_token(where)) as client:
        client.store("group", with_file(client, 1), *(output(n) for n in range(2, 2000)))
    run_successfully("backup", str(folder / "backup.tar"), *where)
    return folder


@pytest.fixture
def archive(backed_up: Path, tmp_path: Path) -> Path:
    """A copy of that backup that the test may change, beside the database."""
    shutil.copytree(backed_up, tmp_path, dirs_exist_ok=True)
    return tmp_path / "backup.tar"
