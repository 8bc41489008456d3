"""Crashes of the coordinator and of a worker of Citus in the middle of a commit."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from faults import programs
from faults.citus import CitusCluster, start_citus
from faults.environment import open_environment
from faults.postgres_server import PostgresServer
from faults.processes import is_alive
from gleanery.common.settings import Settings
from tests.support.console_http import sign_in
from tests.support.outputs import output
from tests.support.service import SECRET_KEY, Client, Service
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(not programs.citus(), reason=programs.NEEDS_CITUS),
]

COUNT = 40  # more than the ids that PostgreSQL logs ahead
NOTIFY = "BEGIN; NOTIFY a; SELECT pg_logical_emit_message(true, 'a', 'b'); COMMIT"
WAL_WRITER = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
WAITS_FOR_STANDBY = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def citus() -> Iterator[CitusCluster]:
    with open_environment() as environment:  # it ends the servers
        yield start_citus(environment, workers=1)


@pytest.fixture
def service(citus: CitusCluster, tmp_path: Path) -> Iterator[Service]:
    running = Service(
        Settings(
            data=tmp_path,
            database=citus.coordinator.url(),
            secret_key=SECRET_KEY,
            port=0,
            log_level="warning",
        )
    )
    yield running
    running.stop()


def stored(citus: CitusCluster) -> int:
    """The number of outputs that the worker has committed."""
    return int(citus.coordinator.run("SELECT count(*) FROM outputs", "gleanery"))


def keep_from_committing(citus: CitusCluster) -> subprocess.Popen[bytes]:
    """Keeps the coordinator from committing: transactions that notify wait for each other.

    The returned transaction notifies, and waits for a standby that does not exist. Also nothing
    writes the coordinator's log meanwhile.
    """
    coordinator = citus.coordinator
    wait_for_nobody(coordinator)
    os.kill(int(coordinator.run(WAL_WRITER)), signal.SIGSTOP)
    waiting = coordinator.start_sql(NOTIFY, "gleanery")
    wait_until(lambda: coordinator.run(WAITS_FOR_STANDBY) == "1")
    return waiting


def wait_for_nobody(server: PostgresServer) -> None:
    """Lets each commit wait for a standby that does not exist."""
    server.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.run("SELECT pg_reload_conf()")


def start_again(server: PostgresServer) -> None:
    """Starts the server after a crash; commits do not wait any more."""
    server.start()
    server.run("ALTER SYSTEM RESET synchronous_standby_names")
    server.run("SELECT pg_reload_conf()")


def store(client: Client, numbers: range) -> int:
    outputs = [output(number, job_id=f"job {number}") for number in numbers]
    return client.post("/v1/outputs/group", json=outputs).status_code


def test_no_output_gets_the_id_of_another_one(citus: CitusCluster, service: Service) -> None:
    token = service.token()
    with service.client(token) as client, service.client(token) as other:
        client.store("group", output(0))
        waiting = keep_from_committing(citus)
        numbers = range(1, 1 + COUNT)
        writer = threading.Thread(target=store, args=(other, numbers))
        writer.start()
        wait_until(lambda: stored(citus) == 1 + COUNT)
        citus.coordinator.kill()
        start_again(citus.coordinator)
        waiting.wait()
        writer.join()

        statuses = set()

        def repeat(start: int) -> bool:
            statuses.add(store(client, range(start, start + COUNT)))
            return 200 in statuses

        for start in (1, 1 + COUNT):  # the client repeats the request, and continues
            statuses.discard(200)
            wait_until(lambda start=start: repeat(start))  # type: ignore[misc]
        items = client.items("group")
    assert len(items) == 1 + 2 * COUNT
    assert len({item["id"] for item in items}) == len(items)
    assert statuses <= {200, 503}  # jobs have ids, too


def test_a_worker_that_is_lost_in_a_commit_is_503(citus: CitusCluster, service: Service) -> None:
    [worker] = citus.workers
    with service.client() as client, ThreadPoolExecutor(1) as threads:
        client.store("group", output(0))
        wait_for_nobody(worker)
        writer = threads.submit(store, client, range(1, 3))
        wait_until(lambda: worker.run(WAITS_FOR_STANDBY) == "1")
        worker.kill()
        assert writer.result() == 503
        start_again(worker)
        wait_until(lambda: store(client, range(1, 3)) == 200)
        assert len(client.items("group")) == 3


def test_a_coordinator_that_is_lost_while_it_waits_for_a_worker_is_503(
    citus: CitusCluster, service: Service
) -> None:
    [worker] = citus.workers
    with service.client() as client, ThreadPoolExecutor(1) as threads:
        client.store("group", output(0))
        wait_for_nobody(worker)
        writer = threads.submit(store, client, range(1, 3))
        wait_until(lambda: worker.run(WAITS_FOR_STANDBY) == "1")
        first, *others = citus.coordinator.processes()
        os.kill(first, signal.SIGKILL)  # the others notice that, and end
        assert writer.result() == 503
        wait_until(lambda: not any(map(is_alive, others)))
        citus.coordinator.kill()
        citus.coordinator.start()
        worker.run("ALTER SYSTEM RESET synchronous_standby_names")
        worker.run("SELECT pg_reload_conf()")
        wait_until(lambda: store(client, range(1, 3)) == 200)
        assert len(client.items("group")) == 3


def test_a_worker_that_is_lost_while_it_prepares_a_commit_is_503(
    citus: CitusCluster, service: Service
) -> None:
    """A login of the console changes every server, so its commit has two phases."""
    [worker] = citus.workers
    token = service.token()
    with service.stranger() as stranger, ThreadPoolExecutor(1) as threads:
        assert sign_in(stranger, token=token).status_code == 200
        wait_for_nobody(worker)
        login = threads.submit(sign_in, stranger, token=token)
        wait_until(lambda: worker.run(WAITS_FOR_STANDBY) == "1")
        worker.kill()
        assert login.result().status_code == 503
        start_again(worker)
        wait_until(lambda: sign_in(stranger, token=token).status_code == 200)
