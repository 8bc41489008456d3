"""Tests that never end: a run of them is interrupted by ``tests/project/test_interrupted_runs.py``.

The name of this file keeps it out of every other run.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gleanery.common.settings import Settings
from tests.support.postgres_server import PostgresServer
from tests.support.process import served
from tests.support.service import SECRET_KEY


@pytest.mark.parametrize("number", [1, 2])
def test_without_end(postgres: PostgresServer, tmp_path: Path, number: int) -> None:
    """Writes the ids of the processes that it has started, and waits."""
    settings = Settings(data=tmp_path, database=postgres.new_database(), secret_key=SECRET_KEY)
    with served(settings, "--workers", "2", with_token=False) as service:
        pids = [postgres.pid, service.running.process.pid, *service.running.workers()]
        file = Path(os.environ["ENDLESS_RUN"], str(number))
        file.with_suffix(".new").write_text(" ".join(map(str, pids)))
        file.with_suffix(".new").rename(file)
        threading.Event().wait()
