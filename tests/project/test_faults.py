"""The guarantees of docs/reliability.md, with a small part of the faults of ``make faults``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults import (
    client_kill,
    crlf_connections,
    database_outage,
    deployments,
    disk_full,
    disks,
    failover,
    kill,
    leases,
    log_stalled,
    lost_folder,
    monitors,
    power_loss,
    runs,
    slow_readers,
    tls,
    views,
    webhooks,
)
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
def test_killing_the_service_loses_nothing(made: Environment, engine: str) -> None:
    assert holds(kill.kill_service(made, engine, rounds=2))


@pytest.mark.extended
def test_killing_one_of_two_workers_loses_nothing(made: Environment) -> None:
    assert holds(kill.kill_worker(made, rounds=2))


@pytest.mark.extended
def test_killing_postgresql_loses_nothing(made: Environment) -> None:
    assert holds(kill.kill_database(made, rounds=3))


@pytest.mark.extended
def test_a_worker_is_replaced_while_the_database_is_away(made: Environment) -> None:
    assert holds(database_outage.kill_worker_without_database(made, rounds=1))


@pytest.mark.extended
@pytest.mark.parametrize("engine", ENGINES)
def test_a_session_has_one_holder_while_the_service_is_killed(
    made: Environment, engine: str
) -> None:
    assert holds(leases.kill_service(made, engine, rounds=2))


@pytest.mark.extended
@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_is_exact_while_the_service_is_killed(made: Environment, engine: str) -> None:
    assert holds(runs.kill_service(made, engine, rounds=2))


@pytest.mark.extended
@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_is_judged_once_while_the_service_is_killed(made: Environment, engine: str) -> None:
    assert holds(monitors.kill_service(made, engine, rounds=1))


@pytest.mark.extended
@pytest.mark.parametrize("name", ["webhooks-sqlite", "webhooks-postgres"])
def test_events_reach_every_endpoint_that_responds(made: Environment, name: str) -> None:
    assert holds(webhooks.deliver(made, deployments.OF_WEBHOOKS[name], rounds=2, causes=20))


@pytest.mark.extended
def test_an_event_that_is_lost_is_noticed(made: Environment) -> None:
    """Tests the check of the test above."""
    deploy = deployments.OF_WEBHOOKS["webhooks-sqlite"]
    result = webhooks.deliver(made, deploy, rounds=0, causes=0, damaged=True)
    assert not result.holds
    assert " 1 lost, " in result.outcome


@pytest.mark.extended
def test_holders_that_count_too_slowly_are_noticed(made: Environment) -> None:
    """Tests the check of the test above."""
    result = leases.kill_service(made, "SQLite", rounds=0, counted=3)
    assert not result.holds
    assert " 0 overlaps" not in result.outcome


@pytest.mark.extended
@pytest.mark.parametrize("engine", ENGINES)
def test_readers_of_the_approved_view_are_exact_while_the_service_is_killed(
    made: Environment, engine: str
) -> None:
    assert holds(views.kill_service(made, engine, rounds=1))


def test_a_reader_that_misses_a_change_of_the_view_is_noticed(made: Environment) -> None:
    """Tests the check of the test above."""
    result = views.kill_service(made, "SQLite", rounds=0, damaged=True)
    assert not result.holds
    assert " 0 missing, extra or wrong; 0 readers" not in result.outcome


TASKS = (client_kill.Push, client_kill.Pull, client_kill.Export)


@pytest.mark.extended
@pytest.mark.parametrize("engine", ENGINES)
def test_killing_a_command_or_its_service_loses_and_duplicates_nothing(
    made: Environment, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test for all commands, because the servers take seconds to start."""
    monkeypatch.setattr(client_kill, "ITEMS", 3000)
    service = client_kill.start_service(made, engine)
    for task in TASKS:
        assert holds(client_kill.kill_on(made, service, task, engine, rounds=1))


@pytest.mark.extended
def test_a_command_that_loses_or_duplicates_is_noticed(
    made: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests the check of the test above."""
    monkeypatch.setattr(client_kill, "ITEMS", 2000)
    service = client_kill.start_service(made, "SQLite")
    for task in TASKS:
        result = client_kill.kill_on(made, service, task, "SQLite", rounds=0, damaged=True)
        assert not result.holds
        assert " 0 lost, 0 duplicated, 0 wrong" not in result.outcome


@pytest.mark.extended
def test_a_log_that_nobody_reads_delays_nothing(made: Environment) -> None:
    assert holds(log_stalled.stall_log(made))


@pytest.mark.extended
def test_connections_without_a_request_lock_nobody_out(made: Environment) -> None:
    assert holds(crlf_connections.send_empty_lines(made, seconds=3))


@pytest.mark.extended
@pytest.mark.parametrize("engine", ENGINES)
def test_slow_readers_take_a_bounded_part_of_the_memory(made: Environment, engine: str) -> None:
    assert holds(slow_readers.read_slowly(made, engine, readers=60, seconds=5))


@pytest.mark.extended
def test_slow_readers_that_take_all_memory_are_noticed(made: Environment) -> None:
    """Tests the check of the test above."""
    unlimited = ("--max-unsent-bytes", str(10**12))
    assert not slow_readers.read_slowly(made, "SQLite", 60, 5, *unlimited).holds


@pytest.mark.extended
def test_tls_connections_do_not_use_all_descriptors(made: Environment) -> None:
    assert holds(tls.exhaust_descriptors(made))


def test_a_certificate_is_replaced_without_dropping_a_connection(made: Environment) -> None:
    assert holds(tls.replace_certificate(made, rounds=2))


@pytest.mark.extended
@MOUNTS
@pytest.mark.parametrize("engine", ENGINES)
def test_a_power_loss_loses_nothing(made: Environment, engine: str) -> None:
    assert holds(power_loss.cut_power(made, engine, rounds=2))


@pytest.mark.extended
@MOUNTS
@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_disk_rejects_writes_and_serves_reads(made: Environment, engine: str) -> None:
    assert holds(disk_full.fill_disk(made, engine, rounds=1))


def test_a_file_that_cannot_grow_rejects_writes_and_serves_reads(
    made: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates a full disk without the right to mount one."""
    monkeypatch.setattr(disks, "can_mount", lambda: False)
    assert holds(disk_full.fill_disk(made, "SQLite", rounds=1))


def test_a_deleted_folder_gets_no_write_acknowledged(made: Environment) -> None:
    assert holds(lost_folder.delete_folder(made, rounds=1))


def test_a_replaced_folder_keeps_every_acknowledged_write(made: Environment) -> None:
    assert holds(lost_folder.replace_folder(made, rounds=1))


@pytest.mark.extended
def test_a_stopped_postgresql_is_503_and_the_service_recovers(made: Environment) -> None:
    assert holds(database_outage.stop_database(made, seconds=3))


@pytest.mark.extended
def test_a_suspended_postgresql_leaves_no_request_without_a_response(made: Environment) -> None:
    assert holds(database_outage.freeze_database(made, seconds=3, rounds=2))


@pytest.mark.extended
def test_an_exhausted_pool_is_503(made: Environment) -> None:
    assert holds(database_outage.exhaust_pool(made))


@pytest.mark.extended
def test_a_failover_loses_no_output_and_no_change(made: Environment) -> None:
    assert holds(failover.fail_over(made, rounds=1))


@pytest.mark.extended
def test_a_failover_from_a_silent_primary_loses_no_output_and_no_change(made: Environment) -> None:
    assert holds(failover.fail_over(made, rounds=1, is_silent=True))
