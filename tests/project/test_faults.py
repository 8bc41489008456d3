"""The promises of docs/reliability.md, with a little of the damage that ``make faults`` does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults import absence, disks, failover, filling, killing, power
from faults.ground import Ground, ground
from faults.results import Result

ENGINES = ("SQLite", "PostgreSQL")
MOUNTS = pytest.mark.skipif(
    not disks.can_mount(), reason="takes root on Linux, loop devices and mkfs.ext4"
)


@pytest.fixture
def made() -> Iterator[Ground]:
    with ground() as clean:
        yield clean


def holds(result: Result) -> bool:
    print(result.outcome)
    return result.holds


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_lost_or_half_when_the_service_is_killed(made: Ground, engine: str) -> None:
    assert holds(killing.kill_the_service(made, engine, rounds=2))


def test_nothing_is_lost_or_half_when_one_of_two_workers_is_killed(made: Ground) -> None:
    assert holds(killing.kill_a_worker(made, rounds=2))


def test_nothing_is_lost_or_half_when_postgresql_is_killed(made: Ground) -> None:
    assert holds(killing.kill_the_database(made, rounds=3))


@MOUNTS
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_lost_or_half_when_the_power_is_cut(made: Ground, engine: str) -> None:
    assert holds(power.cut_the_power(made, engine, rounds=2))


@MOUNTS
@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_disk_refuses_writes_keeps_reads_and_heals(made: Ground, engine: str) -> None:
    assert holds(filling.fill_the_disk(made, engine, rounds=1))


def test_so_does_a_file_that_can_not_grow(made: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is how a full disk is tried by those who may not mount one."""
    monkeypatch.setattr(disks, "can_mount", lambda: False)
    assert holds(filling.fill_the_disk(made, "SQLite", rounds=1))


def test_a_postgresql_that_is_away_is_503_at_once_and_soon_forgotten(made: Ground) -> None:
    assert holds(absence.stop_the_database(made, seconds=3))


def test_a_postgresql_that_is_frozen_leaves_no_request_hanging(made: Ground) -> None:
    assert holds(absence.freeze_the_database(made, seconds=3))


def test_an_exhausted_pool_is_503_in_time(made: Ground) -> None:
    assert holds(absence.exhaust_the_pool(made))


def test_a_failover_loses_nothing_and_hides_nothing_from_the_feed(made: Ground) -> None:
    assert holds(failover.fail_over(made, rounds=1))
