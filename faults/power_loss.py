"""Cuts the power of the disk under the database: what was not forced to it is gone."""

from __future__ import annotations

from faults import disks
from faults.disks import SmallDisk
from faults.environment import Environment
from faults.kill import DURABLE
from faults.results import Result
from faults.workload import Findings, let_write, load


def cut_the_power(environment: Environment, engine: str, rounds: int) -> Result:
    """A kill leaves to the system what was written but not forced out; this does not."""
    damage = f"{rounds} × the power of the disk cut under {engine} (ext4, FS_IOC_SHUTDOWN)"
    if not disks.can_mount():
        return Result(DURABLE, damage, "not done: only root can mount a disk", True)
    disk: SmallDisk = environment.enter(disks.small_disk(environment.folder("disk"), 400))
    findings = Findings()
    round_ = _on_sqlite if engine == "SQLite" else _on_postgres
    round_(environment, disk, rounds, findings)
    return Result(DURABLE, damage, str(findings), findings.is_well)


def _on_sqlite(environment: Environment, disk: SmallDisk, rounds: int, findings: Findings) -> None:
    folder = disk.folder / "data"
    folder.mkdir()
    service = environment.service(None, folder=folder)
    for number in range(rounds):
        with load(service, f"round-{number}") as under_way:
            let_write()
            service.freeze()  # who loses the power answers nobody any more
            disk.cut_power()
            service.kill()
            disk.unmount()
            disk.mount()
            service.start()
            let_write()
        under_way.check(findings)
        findings.unsound = findings.unsound or service.faults_found()
    service.kill()


def _on_postgres(
    environment: Environment, disk: SmallDisk, rounds: int, findings: Findings
) -> None:
    server = environment.server(folder=disk.folder / "postgres")
    server.make()
    service = environment.service(server.url())
    for number in range(rounds):
        with load(service, f"round-{number}") as under_way:
            let_write()
            server.freeze()
            disk.cut_power()
            server.kill()
            disk.unmount()
            disk.mount()
            server.start()
            let_write()
        under_way.check(findings)
    findings.unsound = server.faults_found()
