"""Starts and finishes runs, and decides about removals that are held.

Finishing a complete run begins a comparison, which finds the outputs that the run did not send; see
``run_records.comparison``. It may begin a removal. Both run in short steps, each a transaction. The
request waits for them if the job is small. Otherwise ``RunWork`` goes on in the background. Then
the monitors judge the run. If the process ends, the sweep of any process goes on.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from gleanery.service.foundation.errors import RunConflict, no_run
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.fields import ended_runs, job_statistics
from gleanery.service.resources.monitors import alerts
from gleanery.service.resources.monitors.evaluation import Monitors
from gleanery.service.resources.outputs import bulk_jobs, mutations
from gleanery.service.resources.run_records import comparison, responses, rows
from gleanery.service.resources.run_records.models import RunOut
from gleanery.service.resources.run_records.rows import End, Run
from gleanery.service.resources.runs import reading
from gleanery.service.resources.runs.models import DecisionIn, FinishIn, RunIn
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import Database, Engine, Sql, Transaction, indexed
from gleanery.service.storage.group_lock import Clock, LockedGroup
from gleanery.service.storage.idempotency import IdempotentRequest

_log = logging.getLogger("gleanery")

MAX_RUNNING = 1000
"""Runs of a job that can go on at the same time: each batch reads them."""
MAX_WAITED = 10_000
"""Outputs of a job that a request compares before it responds."""
_COMPLETE = """
UPDATE jobs SET complete_runs = complete_runs + 1 WHERE organization_id = $1 AND id = $2
RETURNING complete_runs, kept_runs, output_count
"""
_AFTER_RUNS = "SELECT missing_after_runs FROM groups WHERE organization_id = $1 AND id = $2"
_SET_REMOVAL_UNTIL = "UPDATE runs SET removal_until = $3 WHERE organization_id = $1 AND id = $2"
_DECIDE = f"""
UPDATE runs SET removal = $3,
    is_open = $4 OR sighting_count > 0 OR {rows.IS_JUDGED_LATER}
WHERE organization_id = $1 AND id = $2
"""
_KEEP = "UPDATE jobs SET kept_runs = $3 WHERE organization_id = $1 AND id = $2"
_REMOVALS_OF_JOB = """
SELECT id, started_at, removal_until, removed_seq FROM runs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND is_open AND removal = 'pending'
ORDER BY id LIMIT 1
"""
LOOKED_AT = 2000
"""Missing outputs of a job that one transaction looks at. It may have to remove none of them."""
# In SQLite, missing_since follows the item in the row, so it is read from the index.
MISSING = Sql(
    sqlite="""
SELECT outputs.seq, outputs.missing_since, whole.identity, whole.last_scraped_at,
    octet_length(whole.item)
FROM outputs INDEXED BY outputs_missing_by_job
CROSS JOIN outputs AS whole
    ON whole.organization_id = outputs.organization_id AND whole.id = outputs.id
WHERE outputs.organization_id = $1 AND outputs.group_id = $2 AND outputs.job_id = $3
    AND outputs.missing_since > 0 AND outputs.seq > $4
ORDER BY outputs.seq LIMIT $5
""",
    postgres="""
SELECT seq, missing_since, identity, last_scraped_at, octet_length(item) FROM outputs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
    AND missing_since > 0 AND seq > $4
ORDER BY seq LIMIT $5
""",
)
_SAVE_REMOVAL = """
UPDATE runs SET removed_seq = $3, removed_count = removed_count + $4
WHERE organization_id = $1 AND id = $2
"""
_END_REMOVAL = f"""
UPDATE runs SET removal = 'done', is_open = sighting_count > 0 OR {rows.IS_JUDGED_LATER}
WHERE organization_id = $1 AND id = $2
"""
MAX_REMOVED = 200  # outputs that one transaction removes: it holds the lock for a short time
_OPEN_JOBS = indexed(
    """
SELECT DISTINCT runs.organization_id, groups.name, runs.job_id FROM {runs}
JOIN groups ON groups.organization_id = runs.organization_id AND groups.id = runs.group_id
WHERE is_open AND (status <> 'running' OR ends_at <= $1)
""",
    runs="runs_open",
)
_ALREADY = "This run has ended already: {}. A run has one status"
_TOO_MANY = "This job has {} runs that go on. Finish them before you start others"
_NOT_HELD = "This run has no removal that waits for a decision"
_NOT_DECIDED = {
    "kept": f"{_NOT_HELD}: its missing outputs were kept. Later complete runs remove what is still "
    "missing",
    "pending": f"{_NOT_HELD}: its missing outputs are being removed",
    "done": f"{_NOT_HELD}: its missing outputs are removed",
    "replaced": "A later complete run has replaced this removal: if that is held, decide there",
}
"""Why there is nothing to decide, for each other state of a removal."""


# --- starting -----------------------------------------------------------------------------------


async def start(
    database: Database, group: str, run: RunIn, clock: Clock, idempotency_key: str | None
) -> RunOut:
    """Start a run. A repeated request with the same idempotency key gets the same run.

    If that run is gone, with its group or job, there is a new one.
    """
    request = None
    labels = json.dumps(run.labels or {}, sort_keys=True)
    if idempotency_key is not None:
        key_hash = hash_parts("runs", group, idempotency_key)
        request = IdempotentRequest(key_hash, hash_parts(run.job_id, labels))

    async def action(locked: LockedGroup) -> RunOut:
        if request is not None:
            earlier: RunOut | None = await request.fetch_response(locked.transaction)
            if earlier is not None:
                if await rows.find(locked, earlier["run_id"]) is not None:
                    return earlier
                await request.forget_response(locked.transaction)
        job_id = await locked.find_or_create_empty_job(run.job_id)
        open_runs = await _limit_running(locked, job_id)
        begun = await rows.begin(locked, {job_id: open_runs}, labels, is_implicit=False)
        response = await _read(locked, begun[job_id])
        if request is not None:
            await request.save_response(locked.transaction, response, locked.now)
        return response

    # Waits for a bulk job: the end of a removal would delete the new job.
    return await bulk_jobs.run_and_finish_bulk_job(
        database, group, clock, action, group_lock.lock_or_create
    )


async def _limit_running(locked: LockedGroup, job_id: int) -> list[Run]:
    """Return the open runs of a job. Raise RunConflict if too many go on.

    Those that were silent for too long count, until their rows say that they have ended. If there
    are too many, some of them end here.
    """
    open_runs = (await rows.fetch_open(locked, [job_id]))[job_id]
    running = [run for run in open_runs if run.is_running]
    if len(running) < MAX_RUNNING:
        return open_runs
    if not await ended_runs.end_some_silent(locked, open_runs):
        raise RunConflict(("body", "job_id"), _TOO_MANY.format(len(running)))
    return (await rows.fetch_open(locked, [job_id]))[job_id]


async def _read(locked: LockedGroup, run: Run) -> RunOut:
    values = (locked.organization_id, locked.now, locked.group_id, run.row.run_id)
    return responses.to_response(
        locked.name, await locked.transaction.fetch(responses.ONE, *values)
    )


# --- finishing ----------------------------------------------------------------------------------


class _Finished(NamedTuple):
    response: RunOut
    job_id: int
    outputs: int
    """Outputs of the job, which are compared."""
    has_sightings: bool = False
    """True if there is something to forget."""


async def finish(
    database: Database, work: RunWork, group: str, run_id: str, how: FinishIn, clock: Clock
) -> RunOut:
    """Finish a run. To repeat it is harmless; another status is a conflict."""

    async def end(transaction: Transaction) -> _Finished:
        locked = await group_lock.lock(transaction, group, clock)
        run = await rows.find(locked, run_id)
        if run is None:
            raise no_run()
        status = ended_runs.shown_status(run, locked.now)
        outputs = run.row.output_count
        if status == "running":
            outputs = await _end(locked, run, how)
        elif status != how.status:
            raise RunConflict(("body", "status"), _ALREADY.format(status))
        return _Finished(await _read(locked, run), run.job_id, outputs, run.sightings > 0)

    finished = await database.write(end, queue_key=group)
    if finished.response["comparison"] == "pending" or finished.response["removal"] == "pending":
        if finished.outputs > MAX_WAITED:
            work.begin(database, group, finished.job_id)
            return finished.response
        await run_steps(database, group, finished.job_id, clock)
        await work.monitors.try_to_judge_runs(database, group, finished.job_id)
        return await reading.read_run(database, group, run_id, clock())
    await work.monitors.try_to_judge_runs(database, group, finished.job_id)
    if finished.has_sightings:
        work.begin(database, group, finished.job_id)
    return finished.response


async def _end(locked: LockedGroup, run: Run, how: FinishIn) -> int:
    """End a running run. Return the outputs of its job, if it is complete."""
    open_runs = (await rows.fetch_open(locked, [run.job_id]))[run.job_id]
    others = [one for one in open_runs if one.is_running and one.id != run.id]
    if how.status != "complete":
        await ended_runs.end(locked, run, End(how.status, how.message), others)
        return 0
    [[number, kept, outputs]] = await locked.transaction.fetch(
        _COMPLETE, locked.organization_id, run.job_id
    )
    seen_at = max([await rows.last_seen(locked, run.job_id), *(one.seen_at for one in others)])
    end = End(how.status, how.message, number, outputs, seen_at)
    await ended_runs.end(locked, run, end, others)
    [[after_runs]] = await locked.transaction.fetch(
        _AFTER_RUNS, locked.organization_id, locked.group_id
    )
    if after_runs is not None and number - kept >= after_runs:
        until = number - after_runs + 1
        await locked.transaction.fetch(_SET_REMOVAL_UNTIL, locked.organization_id, run.id, until)
    return int(outputs)


async def decide(
    database: Database,
    work: RunWork,
    group: str,
    run_id: str,
    decision: DecisionIn,
    clock: Clock,
    actor: Actor,
) -> RunOut:
    """Decide about a removal that is held. To repeat the decision is harmless."""
    wanted = "pending" if decision.decision == "remove" else "kept"

    async def save(transaction: Transaction) -> _Finished:
        locked = await group_lock.lock(transaction, group, clock)
        run = await rows.find(locked, run_id)
        if run is None:
            raise no_run()
        same = ("pending", "done") if wanted == "pending" else ("kept",)
        if run.row.removal == "held":
            key = (locked.organization_id, run.id)
            await transaction.fetch(_DECIDE, *key, wanted, wanted == "pending")
            if wanted == "kept":
                job_key = (locked.organization_id, run.job_id)
                await transaction.fetch(_KEEP, *job_key, run.row.complete_number)
            await alerts.close_kind(locked, run.job_id, "held_removal")
            about = AuditAbout(group_id=group, run_id=run_id, decision=decision.decision)
            await log.append(transaction, actor, locked.now, "decide_removal", about)
        elif run.row.removal not in same:
            msg = _NOT_DECIDED.get(run.row.removal or "", _NOT_HELD)
            raise RunConflict(("body", "decision"), msg)
        return _Finished(await _read(locked, run), run.job_id, run.row.removal_count)

    decided = await database.write(save, queue_key=group)
    if decided.response["removal"] != "pending":
        return decided.response
    if decided.outputs > MAX_WAITED:
        work.begin(database, group, decided.job_id)
        return decided.response
    await run_steps(database, group, decided.job_id, clock)
    return await reading.read_run(database, group, run_id, clock())


# --- comparisons and removals, in steps ---------------------------------------------------------


async def run_steps(database: Database, group: str, job_id: int, clock: Clock) -> None:
    """Compare and remove until nothing of the job is pending, in this process or in another."""

    async def step(transaction: Transaction) -> bool:
        locked = await group_lock.lock(transaction, group, clock)
        if await _remove_some(locked, job_id):  # first: a later run must not count them again
            await locked.commit_counts()
            return True
        ended = await comparison.compare_some(locked, job_id)
        if ended == 0:  # a lost part is compared again, and the group does not wait for the disk
            await transaction.commit_unflushed()
        if ended is not None:
            return True
        return await _forget_some(locked, job_id)

    while await database.write(step, queue_key=group):
        pass


class MissingOutput(NamedTuple):
    """A row that ``MISSING`` finds."""

    seq: int
    missing_since: int
    identity: bytes
    last_scraped_at: int
    size: int

    def is_removable(self, until: int, started_at: int) -> bool:
        """Return True if the removal of a run takes it: nobody has sent it since the start."""
        return self.missing_since <= until and self.last_scraped_at < started_at


async def _remove_some(locked: LockedGroup, job_id: int) -> bool:
    """Remove some outputs of the first pending removal. Return False if there is none.

    An output that was sent again since the start of the run stays.
    """
    group_key = (locked.organization_id, locked.group_id)
    found = await locked.transaction.fetch(_REMOVALS_OF_JOB, *group_key, job_id)
    if not found:
        return False
    [[id_, started_at, until, removed_seq]] = found
    # First a few: those that are looked at and not removed are read again in the next step.
    for limit in (MAX_REMOVED, LOOKED_AT):
        found = await locked.transaction.fetch(MISSING, *group_key, job_id, removed_seq, limit)
        looked_at = [MissingOutput(*row) for row in found]
        chosen = [one for one in looked_at if one.is_removable(until, started_at)]
        if chosen or len(looked_at) < limit:
            break
    count = paging.count_fitting([one.size for one in chosen[:MAX_REMOVED]], mutations.MAX_BYTES)
    removed = await mutations.delete(
        locked, [one.identity for one in chosen[:count]], reason="missing"
    )
    key = (locked.organization_id, id_)
    if count < len(chosen):
        done_seq = chosen[count - 1].seq
    else:
        done_seq = looked_at[-1].seq if looked_at else removed_seq
    await locked.transaction.fetch(_SAVE_REMOVAL, *key, done_seq, removed)
    if count == len(chosen) and len(looked_at) < limit:
        await locked.transaction.fetch(_END_REMOVAL, *key)
    return True


async def _forget_some(locked: LockedGroup, job_id: int) -> bool:
    """Forget what an ended run knew of some outputs. Return False if there is no such run."""
    for run in (await rows.fetch_open(locked, [job_id]))[job_id]:
        if run.sightings and not run.is_running:
            await job_statistics.forget_some_sightings(locked, run)
            return True
    return False


_JobKey = tuple[int, int]
"""Organization and number of a job."""


class RunWork:
    """The comparisons and removals of large jobs that this process runs in the background."""

    def __init__(self, monitors: Monitors, clock: Clock) -> None:
        self.monitors = monitors
        self._clock = clock
        self._tasks: dict[_JobKey, asyncio.Task[None]] = {}
        self._again: set[_JobKey] = set()

    def begin(self, database: Database, group: str, job_id: int) -> None:
        """Run the steps of a job in the background, in one task for each job."""
        key = (database.organization_id, job_id)
        if key in self._tasks:
            self._again.add(key)  # the task may have done its last step
        else:
            self._tasks[key] = asyncio.create_task(self._run(database, group, key))

    async def _run(self, database: Database, group: str, key: _JobKey) -> None:
        try:
            await run_steps(database, group, key[1], self._clock)
            await self.monitors.judge_runs(database, group, key[1])
        except Exception:
            _log.exception("a comparison of a run failed; the sweep will continue it")
        finally:
            del self._tasks[key]
        if key in self._again:
            self._again.discard(key)
            self.begin(database, group, key[1])

    async def stop(self) -> None:
        """Cancel the work, which the next sweep continues."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def unfinished(
    engine: Engine, monitors: Monitors, clock: Clock, now: int | None
) -> list[Callable[[], Awaitable[None]]]:
    """Return a task for each job with silent runs, or with steps that are not finished.

    If ``now`` is None, the clock is not reliable, and no run ends.
    """
    found = await engine.for_all_tenants().read(_OPEN_JOBS, now or 0)
    return [
        partial(
            _go_on,
            engine.for_tenant(organization_id),
            monitors,
            group,
            job_id,
            clock,
            now is not None,
        )
        for organization_id, group, job_id in found
    ]


async def _go_on(
    database: Database,
    monitors: Monitors,
    group: str,
    job_id: int,
    clock: Clock,
    ends_silent: bool,
) -> None:
    async def end_silent(transaction: Transaction) -> bool:
        """Return True if there may be more."""
        locked = await group_lock.lock(transaction, group, clock)
        runs = (await rows.fetch_open(locked, [job_id]))[job_id]
        return await ended_runs.end_some_silent(locked, runs) == ended_runs.MAX_ENDED

    while ends_silent and await database.write(end_silent, queue_key=group):
        pass
    await run_steps(database, group, job_id, clock)
    await monitors.judge_runs(database, group, job_id)
