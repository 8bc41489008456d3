"""Folder faults: the data folder of SQLite is deleted, or replaced by an older copy, during writes.

Two workers have the database open. What they write after the fault can only go into files that the
operator does not see.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from faults.environment import Environment
from faults.processes import wait_until
from faults.results import Result
from faults.service import Service
from faults.workload import Findings, Workload, run_workload, vary_timing

PROMISE = (
    "no write is acknowledged after the data folder is gone: writes get 503 with `Retry-After`, "
    "`/readyz` is 503, and the log has an error"
)


class _Observations:
    """Responses after the fault, over all rounds."""

    def __init__(self) -> None:
        self.refused = self.acknowledged = self.others = self.without_retry_after = 0
        self.longest_notice = 0.0

    def add(self, workload: Workload, start: float) -> None:
        """Count the writes that began after the fault."""
        for writer in workload.writers:
            records = [record for record in writer.log.records if record.started > start]
            statuses = [record.status for record in records]
            self.refused += statuses.count("503")
            self.acknowledged += statuses.count("200")
            self.others += len(statuses) - statuses.count("503") - statuses.count("200")
            self.without_retry_after += writer.log.without_retry_after

    @property
    def is_ok(self) -> bool:
        errors = self.acknowledged + self.others + self.without_retry_after
        return bool(self.refused) and not errors

    def __str__(self) -> str:
        return (
            f"afterwards {self.acknowledged} writes acknowledged, {self.refused:,} answered with "
            f"503, {self.without_retry_after} of them without `Retry-After`, {self.others} with "
            f"another status; `/readyz` was 503, and the log had an error, after "
            f"{self.longest_notice:.1f} s at most"
        )


def delete_folder(environment: Environment, rounds: int) -> Result:
    observations = _Observations()
    for _ in range(rounds):
        service = environment.start_service(None, "--workers", "2")
        _lose_folder(service, lambda folder: shutil.rmtree(folder), observations)
        service.kill()
    fault = f"{rounds} × the data folder of two workers on SQLite deleted, during writes"
    return Result(PROMISE, fault, str(observations), observations.is_ok)


def replace_folder(environment: Environment, rounds: int) -> Result:
    """Put the folder back at the end: it must have every write that was acknowledged."""
    observations, findings = _Observations(), Findings()
    for _ in range(rounds):
        service = environment.start_service(None, "--workers", "2")
        older, moved = environment.new_path("older"), environment.new_path("moved")
        assert service.token  # the older copy is of a database that is in use
        shutil.copytree(service.folder, older)

        def replace(folder: Path, older: Path = older, moved: Path = moved) -> None:
            folder.rename(moved)
            older.rename(folder)

        workload = _lose_folder(service, replace, observations)
        service.kill()
        shutil.rmtree(service.folder)
        moved.rename(service.folder)
        service.start()
        workload.check(findings)
        findings.integrity_errors = findings.integrity_errors or service.integrity_errors()
        service.kill()
    fault = f"{rounds} × the data folder of two workers on SQLite replaced, during writes"
    outcome = f"{observations}; the folder that was moved away: {findings}"
    return Result(PROMISE, fault, outcome, observations.is_ok and findings.is_ok)


def _lose_folder(
    service: Service, lose: Callable[[Path], None], observations: _Observations
) -> Workload:
    with run_workload(service, "group") as workload:
        workload.wait_for_writes(len(workload.writers))
        vary_timing()
        lose(service.folder)
        lost = time.monotonic()
        seconds = wait_until(lambda: service.status("/readyz") == 503 and _has_error(service))
        observations.longest_notice = max(observations.longest_notice, seconds)
        noticed = time.monotonic()
        wait_until(lambda: workload.has_responses_since(noticed))
    observations.add(workload, lost)
    return workload


def _has_error(service: Service) -> bool:
    """Return True if the log has an error that names the database."""
    written = service.log.read_text().split("\n")[:-1]  # the last line may be incomplete
    errors = [line for line in map(json.loads, written) if line["level"] == "error"]
    return any("gleanery.sqlite" in line.get("reason", "") for line in errors)
