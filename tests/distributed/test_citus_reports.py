"""What the log says while a worker of Citus is lost or hangs."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gleanery.common.settings import Settings
from tests.support.citus import CitusServer, citus_server, execute
from tests.support.outputs import output
from tests.support.service import SECRET_KEY, Client, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended

WORKER_OF = """
SELECT nodename FROM pg_dist_shard_placement
WHERE shardid = get_shard_id_for_distribution_column('outputs', {})
"""


@pytest.fixture(scope="module")
def citus() -> Iterator[CitusServer]:
    with citus_server(workers=2) as running:
        yield running


@pytest.fixture
def settings(citus: CitusServer, tmp_path: Path) -> Settings:
    return Settings(
        data=tmp_path,
        database=citus.new_database(),
        secret_key=SECRET_KEY,
        port=0,
        sweep_seconds=0.2,
    )


def records(caplog: pytest.LogCaptureFixture, word: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if word in record.message]


def test_a_sweep_without_a_worker_is_one_line(
    citus: CitusServer, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gleanery")
    service = Service(settings)
    try:
        with service.stranger() as nobody:
            wait_until(lambda: nobody.get("/readyz").status_code == 200)
        citus.workers[0].stop()
        wait_until(lambda: records(caplog, "sweep"))
    finally:
        citus.workers[0].start()
        service.stop()
    for record in records(caplog, "sweep"):
        assert record.message == "the sweep failed, and will be tried again"
        assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert citus.workers[0].socket_folder in records(caplog, "sweep")[0].reason  # type: ignore[attr-defined]


def test_the_log_names_a_worker_that_hangs(
    citus: CitusServer, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """The request gets no answer for 30 seconds, and then no error of Citus."""
    service = Service(dataclasses.replace(settings, sweep_seconds=3600.0))
    client: Client = service.client()
    client.store("group", output(1))
    url = str(settings.database)
    [[organization]] = execute(url, "SELECT organization_id FROM outputs")
    [[folder]] = execute(url, WORKER_OF.format(organization))
    [hung] = [worker for worker in citus.workers if worker.socket_folder == folder]
    hung.freeze()
    try:
        assert client.get("/v1/outputs/group").status_code == 503
    finally:
        hung.thaw()
        client.close()
        service.stop()
    [record] = records(caplog, "unavailable")
    assert record.reason.endswith(  # type: ignore[attr-defined]
        f"; organization {organization} is on the worker {folder}:5432 of Citus"
    )
