"""Disk-full fault: fills the disk under the database during writes, and frees it again."""

from __future__ import annotations

import time

from faults import disks
from faults.disks import Disk, FileSizeLimit, SmallDisk
from faults.environment import Environment
from faults.postgres_server import PostgresServer
from faults.processes import wait_until
from faults.results import Result
from faults.service import Service
from faults.workload import Client, Findings, Workload, run_workload

PROMISE = (
    "on a full disk writes get 503 with `Retry-After`, reads succeed, "
    "and writes succeed again without a restart when there is space"
)
_FULL_SECONDS = 2.0  # duration of the fault
_RECOVERY_LIMIT = 5.0
_PADDING = 4000  # bytes per value, so that little free space is used up soon


class _Observations:
    """Responses while the disk was full, over all rounds."""

    def __init__(self) -> None:
        self.refused_writes = self.other_writes = self.without_retry_after = 0
        self.reads = self.failed_reads = 0
        self.longest_recovery = 0.0

    def add(self, workload: Workload, start: float, end: float) -> None:
        for writer in workload.writers:
            statuses = _statuses(writer, start, end)
            refused = statuses.count("503")
            self.refused_writes += refused
            self.other_writes += len(statuses) - refused - statuses.count("200")
            self.without_retry_after += writer.log.without_retry_after
        for reader in workload.readers:
            statuses = _statuses(reader, start, end)
            self.reads += statuses.count("200")
            self.failed_reads += len(statuses) - statuses.count("200")

    @property
    def is_ok(self) -> bool:
        errors = self.failed_reads or self.other_writes or self.without_retry_after
        recovered = self.longest_recovery < _RECOVERY_LIMIT
        return bool(self.refused_writes and self.reads and not errors and recovered)

    def __str__(self) -> str:
        return (
            f"{self.refused_writes:,} writes answered with 503, {self.without_retry_after} of them "
            f"without `Retry-After`, {self.other_writes} with another status; {self.reads:,} reads "
            f"succeeded, {self.failed_reads} failed; writes succeeded at most "
            f"{self.longest_recovery:.1f} s after space was freed"
        )


def _statuses(client: Client, start: float, end: float) -> list[str]:
    """Return the statuses of the responses between the two times."""
    return [record.status for record in client.log.records if start < record.finished < end]


def fill_disk(environment: Environment, engine: str, rounds: int) -> Result:
    if engine == "SQLite":
        (service, disk), server = _sqlite_on_small_disk(environment), None
    elif not disks.can_mount():
        fault = f"the disk of {engine} filled"
        return Result(PROMISE, fault, "skipped: only root can mount a disk", True)
    else:
        service, disk, server = _postgres_on_small_disk(environment)
    findings, observations = Findings(), _Observations()
    for number in range(rounds):
        _fill_once(service, disk, f"round-{number}", findings, observations)
    findings.integrity_errors = (server or service).integrity_errors()
    service.kill()
    fault = f"{rounds} × the disk of {engine} filled during writes ({disk.kind})"
    outcome = f"{observations}; {findings}"
    return Result(PROMISE, fault, outcome, observations.is_ok and findings.is_ok)


def _fill_once(
    service: Service, disk: Disk, group: str, findings: Findings, observations: _Observations
) -> None:
    with run_workload(service, group, padding=_PADDING) as workload:
        wait_until(workload.acknowledged)
        disk.fill()
        wait_until(lambda: _newest_status(workload) == "503")
        start = time.monotonic()
        time.sleep(_FULL_SECONDS)
        wait_until(lambda: workload.has_responses_since(start))
        end = time.monotonic()
        disk.free()
        before = workload.acknowledged()
        seconds = wait_until(lambda: workload.acknowledged() > before)
        observations.longest_recovery = max(observations.longest_recovery, seconds)
    observations.add(workload, start, end)
    workload.check(findings)


def _newest_status(workload: Workload) -> str:
    """Return the status of the newest response to a writer. At least one writer has one."""
    newest = [record for writer in workload.writers for record in writer.log.records[-1:]]
    return max(newest).status


def _sqlite_on_small_disk(environment: Environment) -> tuple[Service, Disk]:
    if not disks.can_mount():
        service = environment.start_service(None)
        return service, FileSizeLimit(service.folder, service.pid)
    disk: SmallDisk = environment.enter(disks.mounted_disk(environment.new_path("disk")))
    folder = disk.folder / "data"
    folder.mkdir()
    return environment.start_service(None, folder=folder), disk


def _postgres_on_small_disk(environment: Environment) -> tuple[Service, Disk, PostgresServer]:
    """Put only the tables on the small disk.

    With its write-ahead log on a full disk PostgreSQL stops. Another fault covers that.
    """
    disk: SmallDisk = environment.enter(disks.mounted_disk(environment.new_path("disk"), 96))
    server = environment.start_server()
    tables = disk.folder / "tables"
    tables.mkdir()
    server.take_ownership(tables)
    server.run(f"CREATE TABLESPACE small LOCATION '{tables}'")
    server.run("ALTER DATABASE gleanery SET TABLESPACE small")
    return environment.start_service(server.url()), disk, server
