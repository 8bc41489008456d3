"""The guarantees of docs/reliability.md, with a small part of the faults of ``make faults``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults import database_outage, disk_full, disks, failover, kill, power_loss
from faults.environment import Environment, open_environment
from faults.results import Result

pytestmark = pytest.mark.thorough

ENGINES = ("SQLite", "PostgreSQL")
MOUNTS = pytest.mark.skipif(
    not disks.can_mount(), reason="takes root on Linux, loop devices and mkfs.ext4"
)


@pytest.fixture
def made() -> Iterator[Environment]:
    with open_environment() as clean:
        yield clean


def holds(result: Result) -> bool:
    print(result.outcome)
    return result.holds


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_lost_or_half_when_the_service_is_killed(made: Environment, engine: str) -> None:
    assert holds(kill.kill_service(made, engine, rounds=2))


def test_nothing_is_lost_or_half_when_one_of_two_workers_is_killed(made: Environment) -> None:
    assert holds(kill.kill_worker(made, rounds=2))


def test_nothing_is_lost_or_half_when_postgresql_is_killed(made: Environment) -> None:
    assert holds(kill.kill_database(made, rounds=3))


@MOUNTS
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_lost_or_half_when_the_power_is_cut(made: Environment, engine: str) -> None:
    assert holds(power_loss.cut_power(made, engine, rounds=2))


@MOUNTS
@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_disk_refuses_writes_keeps_reads_and_heals(made: Environment, engine: str) -> None:
    assert holds(disk_full.fill_disk(made, engine, rounds=1))


def test_so_does_a_file_that_can_not_grow(
    made: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates a full disk without the right to mount one."""
    monkeypatch.setattr(disks, "can_mount", lambda: False)
    assert holds(disk_full.fill_disk(made, "SQLite", rounds=1))


def test_a_postgresql_that_is_away_is_503_at_once_and_soon_forgotten(made: Environment) -> None:
    assert holds(database_outage.stop_database(made, seconds=3))


def test_a_postgresql_that_is_frozen_leaves_no_request_hanging(made: Environment) -> None:
    assert holds(database_outage.freeze_database(made, seconds=3))


def test_an_exhausted_pool_is_503_in_time(made: Environment) -> None:
    assert holds(database_outage.exhaust_pool(made))


def test_a_failover_loses_nothing_and_hides_nothing_from_the_feed(made: Environment) -> None:
    assert holds(failover.fail_over(made, rounds=1))
