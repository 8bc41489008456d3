"""Power loss of the disk under the database: data that was not flushed is lost."""

from __future__ import annotations

from faults import disks
from faults.disks import SmallDisk
from faults.environment import Environment
from faults.kill import DURABLE
from faults.results import Result
from faults.workload import WRITES_AFTER_FAULT, Findings, run_workload, vary_timing


def cut_power(environment: Environment, engine: str, rounds: int) -> Result:
    """Cut the power of the disk.

    After a kill, the operating system still writes unflushed data; after this fault it does not.
    """
    fault = f"{rounds} × power of the disk cut under {engine} (ext4, FS_IOC_SHUTDOWN)"
    if not disks.can_mount():
        return Result(DURABLE, fault, "skipped: only root can mount a disk", True)
    disk: SmallDisk = environment.enter(disks.mounted_disk(environment.new_path("disk"), 400))
    findings = Findings()
    run_rounds = _cut_power_of_sqlite if engine == "SQLite" else _cut_power_of_postgres
    run_rounds(environment, disk, rounds, findings)
    return Result(DURABLE, fault, str(findings), findings.is_ok)


def _cut_power_of_sqlite(
    environment: Environment, disk: SmallDisk, rounds: int, findings: Findings
) -> None:
    folder = disk.folder / "data"
    folder.mkdir()
    service = environment.start_service(None, folder=folder)
    for number in range(rounds):
        with run_workload(service, f"round-{number}") as workload:
            workload.wait_for_writes(1)
            vary_timing()
            service.freeze()  # without power the service sends no responses
            disk.cut_power()
            service.kill()
            disk.unmount()
            disk.mount()
            service.start()
            workload.wait_for_writes(WRITES_AFTER_FAULT)
        workload.check(findings)
        findings.integrity_errors = findings.integrity_errors or service.integrity_errors()
    service.kill()


def _cut_power_of_postgres(
    environment: Environment, disk: SmallDisk, rounds: int, findings: Findings
) -> None:
    server = environment.start_server(folder=disk.folder / "postgres")
    service = environment.start_service(server.url())
    for number in range(rounds):
        with run_workload(service, f"round-{number}") as workload:
            workload.wait_for_writes(1)
            vary_timing()
            server.freeze()
            disk.cut_power()
            server.kill()
            disk.unmount()
            disk.mount()
            server.start()
            workload.wait_for_writes(WRITES_AFTER_FAULT)
        workload.check(findings)
    findings.integrity_errors = server.integrity_errors()
