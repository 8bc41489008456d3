"""Model of runs: what each run counts, which outputs are missing, and which are removed.

The model keeps everything in plain dictionaries, and counts in the plainest way. Only if the
service is killed between two steps, the model asks it how far it is, and requires it to be right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

CHANGES = ("unchanged", "updated", "created")
"""What an output counts as in a run, the strongest last."""
UNCHANGED, UPDATED, CREATED = range(3)
IDLE, TIMEOUT = 30 * 60 * 1000, 360 * 60 * 1000
"""Milliseconds without a batch after which an implicit run ends, and a started one."""


class Key(NamedTuple):
    """What identifies an output."""

    job: str
    name: str


class Item(NamedTuple):
    """An element of a batch."""

    name: str
    value: int


@dataclass
class Output:
    """An output that exists."""

    value: int
    sent: int
    """The number of the last request that has sent it."""
    missed: int = 0
    """Complete runs in a row that did not send it."""
    approved: int | None = None
    """Its value in the approved view."""


@dataclass
class Run:
    """A run: what it has sent, and what came of it."""

    job: str
    is_implicit: bool
    start: int
    """The number of the request that has started it."""
    heard: int
    """The time of its last batch."""
    run_id: str = ""
    status: str = "running"
    sent: dict[str, int] = field(default_factory=dict)
    """What each output counts as."""
    rejected: int = 0
    number: int = 0
    """The number of a complete run of its job."""
    outputs: int = 0
    """Outputs of the job when it ended."""
    missing: int = 0
    removable: int = 0
    candidates: set[str] = field(default_factory=set)
    """What it may still remove: those were missing long enough when it ended."""
    removed: int = 0
    comparison: str | None = None
    removal: str | None = None

    @property
    def counts(self) -> dict[str, int]:
        changes = [*self.sent.values()]
        return {
            "created": changes.count(CREATED),
            "updated": changes.count(UPDATED),
            "unchanged": changes.count(UNCHANGED),
            "rejected": self.rejected,
            "missing": self.missing,
            "removed": self.removed,
        }


class Model:
    """The jobs of a group with their outputs and runs."""

    def __init__(self) -> None:
        self.time = 0
        """Milliseconds since the beginning."""
        self.requests = 0
        self.outputs: dict[Key, Output] = {}
        self.runs: list[Run] = []
        self.complete: dict[str, int] = {}
        """Complete runs of each job."""
        self.kept: dict[str, int] = {}
        """The number of the last complete run of each job whose removals a person has refused."""
        self.after_runs: int | None = None
        self.max_share = 0.3
        self.gone: dict[Key, str | None] = {}
        """Outputs whose last change in the feed is a deletion, and its reason."""
        self.gone_from_view: dict[Key, str | None] = {}
        """The same of the approved view."""

    def next_request(self, milliseconds: int) -> None:
        """Let time pass before a request. Silent runs end."""
        self.requests += 1
        self.time += milliseconds
        for run in self.runs:
            wait = IDLE if run.is_implicit else TIMEOUT
            if run.status == "running" and self.time >= run.heard + wait:
                run.status = "unknown" if run.is_implicit else "abandoned"

    def of_job(self, job: str) -> dict[str, Output]:
        return {key.name: output for key, output in self.outputs.items() if key.job == job}

    def open_runs(self) -> list[Run]:
        return [run for run in self.runs if run.status == "running" and not run.is_implicit]

    def ended_runs(self) -> list[Run]:
        """Return those with a run_id: an implicit run may not have shown it yet."""
        return [run for run in self.runs if run.status != "running" and run.run_id]

    def held_runs(self) -> list[Run]:
        return [run for run in self.runs if run.removal == "held"]

    # --- batches, deletions and reviews ---

    def start(self, job: str, *, is_implicit: bool = False) -> Run:
        run = Run(job, is_implicit, self.requests, self.time)
        self.runs.append(run)
        return run

    def implicit_run(self, job: str) -> Run:
        """Return the run of a batch that names none."""
        for run in self.runs:
            if run.is_implicit and run.job == job and run.status == "running":
                return run
        return self.start(job, is_implicit=True)

    def store(self, run: Run, items: Iterable[Item], rejected: int = 0) -> list[str]:
        """Store a batch. Return the change of each element."""
        run.heard = self.time
        run.rejected += rejected
        return [CHANGES[self._store(run, Key(run.job, name), value)] for name, value in items]

    def _store(self, run: Run, key: Key, value: int) -> int:
        output = self.outputs.get(key)
        if output is None:
            change = CREATED
            self.outputs[key] = Output(value, self.requests)
            self.gone.pop(key, None)
        else:
            change = UNCHANGED if output.value == value else UPDATED
            output.value, output.sent = value, self.requests
        run.sent[key.name] = max(run.sent.get(key.name, UNCHANGED), change)
        return change

    def delete(self, key: Key, reason: str | None = None) -> None:
        output = self.outputs.pop(key)
        self.gone[key] = reason
        if output.approved is not None:
            self.gone_from_view[key] = reason

    def review(self, job: str, *, is_approved: bool) -> None:
        """Review all outputs of a job."""
        for name, output in self.of_job(job).items():
            if is_approved:
                self._compare_now(job, name, is_change=output.approved != output.value)
                output.approved = output.value
                self.gone_from_view.pop(Key(job, name), None)
            elif output.approved is not None:
                self._compare_now(job, name, is_change=True)
                output.approved = None
                self.gone_from_view[Key(job, name)] = None

    def _compare_now(self, job: str, name: str, *, is_change: bool) -> None:
        """Compare an output that changes with all pending runs.

        If a later one knows it, an earlier one no longer removes it.
        """
        sent, pending = self.outputs[Key(job, name)].sent, self._compared_next(job)
        for later in pending if is_change else ():
            for run in self.runs:
                if run.job == job and run.number < later.number and sent >= later.start:
                    run.candidates.discard(name)

    # --- ends of runs, comparisons and removals ---

    def finish(self, run: Run, status: str) -> None:
        """End a run. What a complete one did not send is missing."""
        run.status = status
        if status != "complete":
            return
        self.complete[run.job] = run.number = self.complete.get(run.job, 0) + 1
        outputs = self.of_job(run.job)
        for output in outputs.values():
            output.missed = output.missed + 1 if output.sent < run.start else 0
        run.outputs = len(outputs)
        run.missing = sum(1 for output in outputs.values() if output.missed)
        after = self.after_runs
        if after is not None and run.number - self.kept.get(run.job, 0) >= after:
            run.candidates = {name for name, output in outputs.items() if output.missed >= after}
            run.removable = len(run.candidates)
        run.comparison = "pending"

    def run_steps(self, job: str) -> None:
        """End the comparisons of a job in their order, each after the removals before it."""
        while True:
            for run in self._removed_next(job):
                for key in self._removable(run):
                    self._remove(run, key)
                run.removal = "done"
            compared = self._compared_next(job)
            if not compared:
                return
            self._end_comparison(compared[0])

    def run_some_steps(
        self, job: str, shown: dict[str, dict[str, Any]], existing: Collection[Key]
    ) -> None:
        """Follow the service, which was killed between two steps: it shows its runs and outputs."""
        while True:
            for run in self._removed_next(job):
                for key in self._removable(run):
                    if key not in existing:
                        self._remove(run, key)
                if shown[run.run_id]["removal"] == "pending":
                    return
                assert not self._removable(run)
                run.removal = "done"
            compared = self._compared_next(job)
            if not compared or shown[compared[0].run_id]["comparison"] == "pending":
                return
            self._end_comparison(compared[0])

    def _compared_next(self, job: str) -> Sequence[Run]:
        pending = [run for run in self.runs if run.job == job and run.comparison == "pending"]
        return sorted(pending, key=lambda run: run.number)

    def _removed_next(self, job: str) -> Sequence[Run]:
        return [run for run in self.runs if run.job == job and run.removal == "pending"]

    def _end_comparison(self, run: Run) -> None:
        for other in self.held_runs():
            if other.job == run.job:
                other.removal = "replaced"
        run.comparison = "done"
        if run.removable:
            is_held = run.removable > self.max_share * run.outputs
            run.removal = "held" if is_held else "pending"

    def _removable(self, run: Run) -> list[Key]:
        """Return what the removal of a run takes: nobody has sent it since the start."""
        stored = self.of_job(run.job)
        left = [name for name in run.candidates if name in stored]
        return [Key(run.job, name) for name in left if stored[name].sent < run.start]

    def _remove(self, run: Run, key: Key) -> None:
        """Remove an output. A later run, which is still compared, cannot remove it again."""
        for later in self._compared_next(run.job):
            if key.name in later.candidates:
                later.candidates.discard(key.name)
                later.removable -= 1
        self.delete(key, "missing")
        run.removed += 1

    def decide(self, run: Run, decision: str) -> None:
        """Decide about a removal that is held."""
        if decision == "remove":
            run.removal = "pending"
        else:
            run.removal, self.kept[run.job] = "kept", run.number
