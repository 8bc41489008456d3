"""Finds the outputs that a complete run did not send.

Theory of operation
===================

A complete run is compared with the outputs that its job had when it ended. An output is missing if
it was last sent before the start of the run, by any run. Only complete runs are compared, so a run
that failed never makes an output missing.

``outputs.missing_since`` is the number of the first complete run that did not send the output, if
no complete run has sent it since then. Otherwise it is 0. Complete runs of a job have the numbers
1, 2, 3 and so on, in the order in which they ended. So a row is written only when an output
becomes missing or comes back, not in each run.

A comparison reads the outputs of the job in the change order, in short steps. Each step is a
transaction, and other writers of the group run between two steps. The run knows how far the
comparison is (``compared_seq``) and where it ends (``compared_until``).

Invariant: the result does not depend on what happens between the steps. Whoever is about to change
the number or the scrape date of an output, or to delete it, first calls ``settle``. It compares
this output with the pending runs of its job, as it is before the change. An output with the same
number and a scrape date after the end of a run is compared already. Batches after the end have
later scrape dates than those before it, even if the clock goes back; see ``batch_runs``.

See ``docs/explanation/runs-and-missing-outputs.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from gleanery.service.resources.run_records.responses import store_event
from gleanery.service.resources.run_records.rows import IS_JUDGED_LATER, Run, fetch_open
from gleanery.service.storage.database import Sql
from gleanery.service.storage.group_lock import LockedGroup

STEP = 1000
"""Outputs that one transaction compares: it holds the lock of the group for a short time."""
_MAX_WRITTEN = 50
"""Outputs that one transaction writes, for the same reason."""
_MAX_WRITTEN_BYTES = 4 * 1024 * 1024
"""The same in bytes, because SQLite writes a whole row again. The last output may exceed it."""
_MIN_READ = 50
"""Outputs for which another statement of the same transaction is worth its time."""
_SELECT = """
SELECT identity, job_id, seq, last_scraped_at, {missing_since}, octet_length(item) FROM {outputs}
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND seq > $4 AND seq <= $5
ORDER BY seq LIMIT $6
"""
# In SQLite, missing_since follows the item in the row. The index of missing outputs has it as well.
_IN_INDEX = """
coalesce((SELECT missing.missing_since FROM outputs AS missing INDEXED BY outputs_missing_by_job
    WHERE missing.organization_id = $1 AND missing.group_id = $2 AND missing.job_id = $3
        AND missing.seq = outputs.seq AND missing.missing_since > 0), 0)
"""
_NEXT = Sql(
    sqlite=_SELECT.format(missing_since=_IN_INDEX, outputs="outputs INDEXED BY outputs_by_job"),
    postgres=_SELECT.format(missing_since="missing_since", outputs="outputs"),
)
_SET_MISSING = """
UPDATE outputs SET missing_since = $3 WHERE organization_id = $1 AND identity = $2
"""
_ADD_COUNTS = """
UPDATE runs SET missing_count = missing_count + $3, removal_count = removal_count + $4
WHERE organization_id = $1 AND id = $2
"""
_SAVE_STEP = """
UPDATE runs SET compared_seq = $3 WHERE organization_id = $1 AND id = $2
"""
_REPLACE_HELD = """
UPDATE runs SET removal = 'replaced'
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND removal = 'held' AND id <> $4
"""
_SHARE = "SELECT missing_max_share FROM groups WHERE organization_id = $1 AND id = $2"
_COUNTS = "SELECT removal_count FROM runs WHERE organization_id = $1 AND id = $2"
_FINISH = f"""
UPDATE runs SET comparison = 'done', removal = $3,
    is_open = $4 OR sighting_count > 0 OR {IS_JUDGED_LATER}
WHERE organization_id = $1 AND id = $2
"""
DEFAULT_MAX_SHARE = 0.3
"""Share of the outputs of a job above which a removal waits for a decision."""


class Comparable(Protocol):
    """An output as it is stored."""

    @property
    def identity(self) -> bytes: ...

    @property
    def job_id(self) -> int: ...

    @property
    def seq(self) -> int: ...

    @property
    def last_scraped_at(self) -> int: ...

    @property
    def missing_since(self) -> int: ...


class _Output(NamedTuple):
    identity: bytes
    job_id: int
    seq: int
    last_scraped_at: int
    missing_since: int
    size: int


class _Results:
    """What comparisons find: counts of runs, and outputs whose state changes."""

    def __init__(self) -> None:
        self.missing = Counter[int]()
        self.removable = Counter[int]()
        self.states: dict[bytes, int] = {}

    def compare(self, run: Run, output: Comparable, is_removed: bool = False) -> None:
        row = run.row
        assert row.complete_number is not None
        assert row.finished_at is not None
        if output.last_scraped_at > row.finished_at:
            return
        before = self.states.get(output.identity, output.missing_since)
        if output.last_scraped_at >= run.started_at:
            if before:
                self.states[output.identity] = 0
            return
        since = before or row.complete_number
        if since != before:
            self.states[output.identity] = since
        self.missing[run.id] += 1
        if since <= row.removal_until and not is_removed:
            self.removable[run.id] += 1

    def take_back(self, run: Run, output: Comparable) -> None:
        """Count an output that was compared already as one that cannot be removed any more."""
        is_missing = output.last_scraped_at < run.started_at
        if is_missing and 0 < output.missing_since <= run.row.removal_until:
            self.removable[run.id] -= 1

    async def save(self, locked: LockedGroup) -> None:
        key = locked.organization_id
        await locked.transaction.execute_many(
            _SET_MISSING, [(key, identity, since) for identity, since in self.states.items()]
        )
        await locked.transaction.execute_many(
            _ADD_COUNTS,
            [
                (key, id_, self.missing[id_], self.removable[id_])
                for id_ in self.missing.keys() | self.removable.keys()
            ],
        )


async def settle(
    locked: LockedGroup,
    outputs: Collection[Comparable],
    open_runs: Mapping[int, Sequence[Run]] | None = None,
    *,
    are_removed: bool = False,
) -> None:
    """Compare outputs that will change with the pending runs of their jobs.

    Give exactly those that change: others are compared later, and would count twice. Outputs that
    an earlier run removes are missing, but this run cannot remove them again.
    """
    if open_runs is None:
        open_runs = await fetch_open(locked, {output.job_id for output in outputs})
    pending = {job_id: _pending(runs) for job_id, runs in open_runs.items()}
    if not any(pending.values()):
        return
    results = _Results()
    for output in outputs:
        for run in pending.get(output.job_id, ()):
            if run.row.compared_seq < output.seq <= run.row.compared_until:
                results.compare(run, output, are_removed)
            elif are_removed and output.seq <= run.row.compared_seq:
                results.take_back(run, output)
    await results.save(locked)


def _pending(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that are not compared to the end, in the order in which they ended."""
    pending = [run for run in runs if run.row.comparison == "pending"]
    return sorted(pending, key=lambda run: run.row.complete_number or 0)


async def compare_some(locked: LockedGroup, job_id: int) -> int | None:
    """Compare the next outputs with the first pending run of a job.

    Return the id of the run if its comparison has ended, 0 if there is more to compare, and None
    if no run of the job is pending.
    """
    pending = _pending((await fetch_open(locked, [job_id]))[job_id])
    if not pending:
        return None
    run = pending[0]
    step = _Step(run)
    key = (locked.organization_id, locked.group_id, job_id)
    while limit := step.next_limit():
        bounds = (step.compared_seq, run.row.compared_until, limit)
        found = await locked.transaction.fetch(_NEXT, *key, *bounds)
        step.compare([_Output(*row) for row in found])
        if len(found) < limit:
            break
    await step.results.save(locked)
    if limit == 0 or step.is_full:
        await locked.transaction.fetch(
            _SAVE_STEP, locked.organization_id, run.id, step.compared_seq
        )
        return 0
    await _finish(locked, run)
    return run.id


class _Step:
    """The outputs that one transaction compares with a run.

    It reads a few, and then as many as it can probably write: outputs that were read and are not
    compared in this step are read again in the next one.
    """

    def __init__(self, run: Run) -> None:
        self.results = _Results()
        self.compared_seq = run.row.compared_seq
        self.is_full = False
        self._run = run
        self._read = 0
        self._written_bytes = 0

    def next_limit(self) -> int:
        """Return how many outputs to read next; 0 if the step has enough."""
        if self.is_full:
            return 0
        if not self._read:
            return min(STEP, _MAX_WRITTEN)
        written = len(self.results.states)
        expected = (_MAX_WRITTEN - written) * self._read // max(written, 1)
        limit = min(STEP - self._read, expected)
        return limit if limit >= _MIN_READ else 0

    def compare(self, outputs: Iterable[_Output]) -> None:
        """Compare outputs until enough of them have to be written."""
        states = self.results.states
        for output in outputs:
            written = len(states)
            self.results.compare(self._run, output)
            self.compared_seq = output.seq
            self._read += 1
            if len(states) > written:
                self._written_bytes += output.size
                if len(states) >= _MAX_WRITTEN or self._written_bytes >= _MAX_WRITTEN_BYTES:
                    self.is_full = True
                    return


async def _finish(locked: LockedGroup, run: Run) -> None:
    """End the comparison, and decide about the removal of outputs that were missing for long.

    Now the counts are final, so webhooks get the event.

    A removal that still waits for a decision is replaced: the newer run knows better.
    """
    key = (locked.organization_id, run.id)
    [[removable]] = await locked.transaction.fetch(_COUNTS, *key)
    removal = None
    if removable:
        [[stored]] = await locked.transaction.fetch(_SHARE, locked.organization_id, locked.group_id)
        max_share = DEFAULT_MAX_SHARE if stored is None else stored
        is_held = removable > max_share * run.row.output_count
        removal = "held" if is_held else "pending"
    group_key = (locked.organization_id, locked.group_id)
    await locked.transaction.fetch(_REPLACE_HELD, *group_key, run.job_id, run.id)
    await locked.transaction.fetch(_FINISH, *key, removal, removal == "pending")
    await store_event(locked, run)
