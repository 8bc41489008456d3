"""``gleanery migrate --distribute``: the logins that it needs, and what it shows meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from tests.support.citus import CitusServer, citus_server, execute
from tests.support.postgres_versions import InstalledServer
from tests.support.process import gleanery_in_process, run_successfully
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended

ROLE = "gleanery_serving"


@pytest.fixture(scope="module")
def citus() -> Iterator[CitusServer]:
    with citus_server(workers=2) as running:
        yield running


def distribute(url: str) -> tuple[int, str]:
    """Runs ``gleanery migrate --distribute``; returns its exit status and its error messages."""
    done = gleanery_in_process("migrate", "--database", url, "--distribute")
    return done.returncode, done.stderr


@contextmanager
def login_rule(server: InstalledServer, method: str) -> Iterator[None]:
    """Lets the server ask the serving role for this method of a login."""
    file = Path(server.run("SHOW hba_file")[0][0])
    before = file.read_text()
    try:
        _write_rules(server, file, f"local all {ROLE} {method}\n{before}")
        wait_until(lambda: not can_log_in(server))
        yield
    finally:
        _write_rules(server, file, before)
        wait_until(lambda: can_log_in(server))


def _write_rules(server: InstalledServer, file: Path, rules: str) -> None:
    file.write_text(rules)
    server.run("SELECT pg_reload_conf()")


def can_log_in(server: InstalledServer) -> bool:
    """Tells what the rules of the server say, whether the role exists or not."""

    async def connect() -> bool:
        try:
            connection = await asyncpg.connect(server.url("postgres", ROLE))
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            return "is not permitted to log in" in str(error)
        await connection.close()
        return True

    return asyncio.run(connect())


def result(url: str) -> str:
    """Runs ``gleanery migrate --distribute``; returns the last line that it prints."""
    return run_successfully("migrate", "--database", url, "--distribute").splitlines()[-1]


def is_distributed(url: str) -> bool:
    return bool(execute(url, "SELECT FROM pg_dist_partition"))


@pytest.mark.parametrize(
    ("method", "reason"),
    [("reject", "pg_hba.conf rejects connection"), ("scram-sha-256", "no password supplied")],
)
def test_nothing_is_copied_if_the_coordinator_cannot_log_in_to_a_worker(
    citus: CitusServer, method: str, reason: str
) -> None:
    url = citus.empty_database()
    assert gleanery_in_process("migrate", "--database", url).returncode == 0
    worker = citus.workers[1]
    with login_rule(worker, method):
        status, message = distribute(url)
        assert status == 2, message
        assert not is_distributed(url)
    assert message.count("\n") == 1, message
    assert f"cannot log in to the worker {worker.socket_folder}:5432 as {ROLE}" in message
    assert reason in message
    assert "nothing was copied" in message
    assert ".pgpass" in message

    assert distribute(url) == (0, "")
    assert is_distributed(url)


def test_the_logins_are_checked_again_by_a_repeated_distribution(citus: CitusServer) -> None:
    url = citus.new_database()
    for worker in citus.workers:
        assert distribute(url) == (0, "")
        with login_rule(worker, "reject"):
            status, message = distribute(url)
        assert (status, worker.socket_folder in message) == (2, True), message


def test_a_distribution_shows_its_progress_on_a_terminal(citus: CitusServer) -> None:
    url = citus.empty_database()
    with Terminal("migrate", "--database", url, "--distribute") as terminal:
        assert terminal.wait() == 0, terminal.shown
    assert "Distributing tables" in terminal.shown
    assert "100%" in terminal.shown


def test_a_repeated_distribution_says_that_it_copied_nothing(citus: CitusServer) -> None:
    url = citus.empty_database()
    assert result(url) == "The organizations are distributed over the workers."
    assert result(url) == "The organizations were distributed already. Nothing was copied."
