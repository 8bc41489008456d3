"""Fills the disk under the database while clients write, and frees it again."""

from __future__ import annotations

import time

from faults import disks
from faults.disks import Disk, LimitedProcess, SmallDisk
from faults.environment import Environment
from faults.postgres_server import PostgresServer
from faults.processes import wait_until
from faults.results import Result
from faults.service import Service
from faults.workload import Findings, Load, load

PROMISE = (
    "on a full disk writes get 503 with `Retry-After`, reads go on, and it heals without a restart"
)
_FULL_SECONDS = 2.0
_HEALS_WITHIN = 5.0
_PADDING = 4000  # bytes a value: what room is left is used up soon


class _Telling:
    """What was seen while the disk was full, over all rounds."""

    def __init__(self) -> None:
        self.refused = self.reads = self.bad_reads = self.other = self.without_retry_after = 0
        self.healed = 0.0

    def note(self, under_way: Load, began: float, ended: float) -> None:
        for writer in under_way.writers:
            told = [m.status for m in writer.tally.moments if began < m.when < ended]
            self.refused += told.count("503")
            self.other += len(told) - told.count("503") - told.count("200")
            self.without_retry_after += writer.tally.without_retry_after
        for reader in under_way.readers:
            told = [m.status for m in reader.tally.moments if began < m.when < ended]
            self.reads += told.count("200")
            self.bad_reads += len(told) - told.count("200")

    @property
    def is_well(self) -> bool:
        bad = self.bad_reads or self.other or self.without_retry_after
        return bool(self.refused and self.reads and not bad and self.healed < _HEALS_WITHIN)

    def __str__(self) -> str:
        return (
            f"{self.refused:,} writes refused with 503, {self.without_retry_after} of them without "
            f"`Retry-After`, {self.other} answered otherwise; {self.reads:,} reads answered, "
            f"{self.bad_reads} not; written again {self.healed:.1f} s after it was freed, at most"
        )


def fill_the_disk(environment: Environment, engine: str, rounds: int) -> Result:
    if engine == "SQLite":
        (service, disk), server = _sqlite_on_a_small_disk(environment), None
    elif not disks.can_mount():
        damage = f"the disk of {engine} filled"
        return Result(PROMISE, damage, "not done: only root can mount a disk", True)
    else:
        service, disk, server = _postgres_on_a_small_disk(environment)
    findings, telling = Findings(), _Telling()
    for number in range(rounds):
        _fill_once(service, disk, f"round-{number}", findings, telling)
    findings.unsound = service.faults_found() if server is None else server.faults_found()
    service.kill()
    damage = f"{rounds} × the disk of {engine} filled under writes ({disk.kind})"
    outcome = f"{telling}; {findings}"
    return Result(PROMISE, damage, outcome, telling.is_well and findings.is_well)


def _fill_once(
    service: Service, disk: Disk, group: str, findings: Findings, telling: _Telling
) -> None:
    with load(service, group, padding=_PADDING) as under_way:
        wait_until(under_way.acknowledged)
        disk.fill()
        wait_until(lambda: _newest_status(under_way) == "503")
        began = time.monotonic()
        time.sleep(_FULL_SECONDS)
        ended = time.monotonic()
        disk.free()
        before = under_way.acknowledged()
        took = wait_until(lambda: under_way.acknowledged() > before)
        telling.healed = max(telling.healed, took)
    telling.note(under_way, began, ended)
    under_way.check(findings)


def _newest_status(under_way: Load) -> str:
    newest = [moment for writer in under_way.writers for moment in writer.tally.moments[-1:]]
    return max(newest).status  # of those who have been answered at all


def _sqlite_on_a_small_disk(environment: Environment) -> tuple[Service, Disk]:
    if not disks.can_mount():
        service = environment.service(None)
        return service, LimitedProcess(service.folder, service.pid)
    disk: SmallDisk = environment.enter(disks.small_disk(environment.folder("disk")))
    folder = disk.folder / "data"
    folder.mkdir()
    return environment.service(None, folder=folder), disk


def _postgres_on_a_small_disk(environment: Environment) -> tuple[Service, Disk, PostgresServer]:
    """The tables alone: with its log on a full disk PostgreSQL stops, and that is another test."""
    disk: SmallDisk = environment.enter(disks.small_disk(environment.folder("disk"), 96))
    server = environment.made_server()
    tables = disk.folder / "tables"
    tables.mkdir()
    server.own(tables)
    server.run(f"CREATE TABLESPACE small LOCATION '{tables}'")
    server.run("ALTER DATABASE gleanery SET TABLESPACE small")
    return environment.service(server.url()), disk, server
