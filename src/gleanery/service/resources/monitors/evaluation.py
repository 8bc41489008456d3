"""Judges each run that has ended, and finds jobs that are overdue.

Theory of operation
===================

A run that ends is marked in the transaction of its end (``runs.monitoring`` is ``pending``). So it
is judged even if the process dies at once: the sweep of any process goes on. A complete run is
judged after its comparison, which counts what is missing.

Judging reads without a lock, computes in a thread, and stores the result in one transaction under
the lock of the group: alerts open, are updated and close, their events are stored, and the mark is
removed. The transaction begins with the mark and with what the reads have relied on: the rules and
the open alerts. If another process has judged the run, or something is different now, it changes
nothing. So each run is judged exactly once. Runs of a job are judged in the order of their ends.

A run with an open alert is not a model for later ones (``runs.has_alert``). An open alert keeps
what was usual when it opened, and later runs are compared with that. So a fault that lasts stays
visible, however long. If a person says that the present level is normal, the alert closes. Later
runs are compared with the last run that was judged, until there are enough runs after it.

``jobs.run_due_at`` is the next time at which the sweep looks at a job, because it may be overdue
then (``schedule``). What is stored there is only a hint: the look reads the runs again. The sweep
looks at each new job once, because runs that nobody has started are not judged, and at all jobs of
a group whose rules change. Failed runs are not on schedule. But if a rule tells of them, they count
as runs, so that a job that fails has one alert and not two.

See ``docs/explanation/monitors-and-alerts.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from gleanery.service.foundation.errors import GleaneryError, NotFound
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.monitors import alerts, judging, reading, rules, schedule
from gleanery.service.resources.monitors.alerts import Accepted, Changes, JudgedBy, OpenAlert
from gleanery.service.resources.monitors.judging import Level, Sample, Verdict
from gleanery.service.resources.monitors.models import CloseReason
from gleanery.service.resources.monitors.reading import RunRow, RunToJudge
from gleanery.service.resources.monitors.rules import KINDS, WITH_LABELS, JobRules, Kind, Rule
from gleanery.service.resources.monitors.schedule import Expectation
from gleanery.service.resources.run_records.rows import Status
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, Engine, Transaction
from gleanery.service.storage.group_lock import Clock, LockedGroup

_log = logging.getLogger("gleanery")

_GROUP = """
SELECT id, monitors, (SELECT name FROM jobs WHERE organization_id = $1 AND jobs.id = $3)
FROM groups WHERE organization_id = $1 AND name = $2 AND NOT deleted
"""
_RULES = "SELECT monitors FROM groups WHERE organization_id = $1 AND id = $2"
_END = """
UPDATE runs SET monitoring = 'done', has_alert = $3, sample = $4,
    is_open = coalesce(comparison, '') = 'pending' OR coalesce(removal, '') = 'pending'
        OR sighting_count > 0
WHERE organization_id = $1 AND id = $2 AND monitoring = 'pending'
RETURNING id
"""
_STARTS = """
SELECT started_at, seen_at, status, is_implicit, ends_at FROM runs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
ORDER BY id DESC LIMIT $4
"""
_MAX_STARTS = 1000
_SET_DUE = "UPDATE jobs SET run_due_at = $3 WHERE organization_id = $1 AND id = $2"
_DUE_JOBS = """
SELECT jobs.organization_id, groups.name, jobs.id FROM jobs
JOIN groups ON groups.organization_id = jobs.organization_id AND groups.id = jobs.group_id
WHERE run_due_at <= $1 ORDER BY run_due_at LIMIT 10000
"""
_IS_DUE = "SELECT 1 FROM jobs WHERE organization_id = $1 AND id = $2 AND run_due_at <= $3"
_JOBS_AT_ONCE = 50
"""Overdue jobs of a group that are one message."""
_LOOK_AGAIN = 10 * 60 * timestamps.SECOND
"""Time after which an overdue job is looked at again."""
_ON_SCHEDULE: tuple[Status, ...] = ("complete", "partial")
_FAILED: tuple[Status, ...] = ("failed", "abandoned")


class _Unchanged(Exception):
    """Something is different from what was read, so nothing was stored."""


class Monitors:
    """Judges runs and schedules. Every process of the service has one."""

    def __init__(self, computations: FairThread, clock: Clock) -> None:
        self._computations = computations
        self._clock = clock

    # --- runs ------------------------------------------------------------------------------------

    async def try_to_judge_runs(self, database: Database, group: str, job_id: int) -> None:
        """Judge the runs of a job that have ended. After an error, the next sweep goes on."""
        try:
            await self.judge_runs(database, group, job_id)
        except GleaneryError as error:
            _log.warning("a run is judged later by the monitors", extra={"reason": str(error)})
        except Exception:
            _log.exception("a run could not be judged by the monitors; the sweep will try again")

    async def judge_runs(self, database: Database, group: str, job_id: int) -> None:
        """Judge the runs of a job that have ended, one after another. Raise NotFound."""
        while await self._judge_next(database, group, job_id):
            pass

    async def _judge_next(self, database: Database, group: str, job_id: int) -> bool:
        """Judge the next run. Return False if there is none."""
        read = await self._read(database, group, job_id)
        if read is None:
            return False
        row, organization_id = read.run.row, database.organization_id
        judged = await self._computations.run(organization_id, _try_to_judge, read)
        try:
            await database.write(
                lambda transaction: self._store(transaction, group, job_id, read, judged),
                queue_key=group,
            )
        except _Unchanged:  # judge it again, if another process has not
            _log.info("a run is judged again", extra={"run": row.run_id})
        return True

    async def _read(self, database: Database, group: str, job_id: int) -> _Read | None:
        """Read the next run that is to be judged, and everything that its rules need."""
        found = await database.read(_GROUP, database.organization_id, group, job_id)
        if not found or found[0][2] is None:
            raise NotFound
        group_id, stored, job = found[0]
        row = await reading.find_unjudged(database, group_id, job_id)
        if row is None:
            return None
        of_job = JobRules(rules.decode(stored), job)
        key = (group_id, job_id)
        return _Read(
            stored,
            of_job,
            await reading.read_run(database, *key, row, of_job),
            await alerts.read_open(database.read, database.organization_id, *key),
            await alerts.read_accepted(database, *key, row.labels),
            await self._read_schedule(database.read, database.organization_id, *key),
        )

    async def _store(
        self,
        transaction: Transaction,
        group: str,
        job_id: int,
        read: _Read,
        judged: _Judged,
    ) -> None:
        locked = await group_lock.lock(transaction, group, self._clock)
        row = read.run.row
        key = (locked.organization_id, locked.group_id)
        [[stored]] = await transaction.fetch(_RULES, *key)
        open_alerts = await alerts.read_open(transaction.fetch, *key, job_id)
        if stored != read.stored_rules or open_alerts != read.open_alerts:
            raise _Unchanged
        changes = Changes(locked)
        run = JudgedBy(row.id, row.run_id)
        open_by_kind = _of_labels(open_alerts, row.labels)
        has_alert = not judged.is_model
        for kind in KINDS:
            if kind == "no_run":
                continue
            alert, verdict = open_by_kind.get(kind), judged.verdicts.get(kind)
            if alert is not None and not read.rules.has(kind):
                await changes.close(alert.id, "rule_removed")
            elif verdict is None:
                has_alert = has_alert or alert is not None
            elif verdict.is_problem:
                has_alert = True
                observed = judged.level.part(kind)
                if alert is not None:
                    await changes.update(alert, verdict, observed, run)
                else:
                    labels = row.labels if kind in WITH_LABELS else ""
                    usual = judged.usual[kind].part(kind)
                    await changes.open(job_id, kind, labels, verdict, usual, observed, run)
            elif alert is not None:
                await changes.close(alert.id, "over")
        sample = reading.encode_sample(judged.sample)
        ended = await transaction.fetch(_END, locked.organization_id, row.id, has_alert, sample)
        if not ended:
            raise _Unchanged
        await self._check_schedule(locked, changes, job_id, read.rules, read.schedule)
        await changes.finish()

    # --- jobs that are overdue -------------------------------------------------------------------

    async def _read_schedule(
        self, source: Any, organization_id: int, group_id: int, job_id: int
    ) -> _Schedule:
        """Read the runs of a job. ``source`` is the read of a database or a transaction."""
        now, key = self._clock(), (organization_id, group_id, job_id)
        rows = await source(_STARTS, *key, _MAX_STARTS)
        starts, any_latest, latest, failed = [], None, None, None
        for started_at, seen_at, status, is_implicit, ends_at in rows:
            is_going_on = status == "running" and ends_at > now and not is_implicit
            if status in _FAILED:
                failed = max(failed or 0, started_at)
            else:
                any_latest = max(any_latest or 0, started_at, seen_at if is_implicit else 0)
            if status in _ON_SCHEDULE or is_going_on:
                latest = max(latest or 0, started_at)
            if status in _ON_SCHEDULE:
                starts.append(started_at)
        starts = schedule.newest(starts)
        since = starts[0] if starts else now
        interruptions = await alerts.read_interruptions(source, *key, since)
        are_all = len(rows) < _MAX_STARTS
        return _Schedule(starts, latest, any_latest, failed, interruptions, are_all)

    async def _check_schedule(
        self,
        locked: LockedGroup,
        changes: Changes,
        job_id: int,
        of_job: JobRules,
        read: _Schedule,
    ) -> None:
        """Open or close the alert about a schedule, and store when to look again."""
        rule = of_job.find("no_run")
        key = (locked.organization_id, locked.group_id, job_id)
        open_alerts = await alerts.read_open(locked.transaction.fetch, *key)
        alert = _of_labels(open_alerts, "").get("no_run")
        expected = None if rule is None else read.expect(rule, of_job)
        if rule is not None and alert is None and expected and expected.due <= locked.now:
            # A run may have begun or ended since the read. Under the lock, none can.
            read = await self._read_schedule(locked.transaction.fetch, *key)
            expected = read.expect(rule, of_job)
        due = None if expected is None else expected.due
        if rule is not None and expected is not None and expected.due <= locked.now:
            due = locked.now + _LOOK_AGAIN
            verdict = _overdue(rule, expected, locked.now)
            if alert is not None:
                await changes.set_facts(alert, verdict)  # how long ago the last run was
            else:
                run = JudgedBy(0, None)
                await changes.open(job_id, "no_run", "", verdict, Level(), Level(), run)
        elif alert is not None:
            reason: CloseReason = "rule_removed" if rule is None else "over"
            await changes.close(alert.id, reason)
        await locked.transaction.fetch(_SET_DUE, locked.organization_id, job_id, due)

    async def overdue(self, engine: Engine) -> list[Callable[[], Awaitable[None]]]:
        """Return a task for each group with jobs that may be overdue."""
        found: dict[tuple[int, str], list[int]] = {}
        for organization_id, group, job_id in await engine.for_all_tenants().read(
            _DUE_JOBS, self._clock()
        ):
            found.setdefault((organization_id, group), []).append(job_id)
        return [
            partial(self._look_at_group, engine.for_tenant(organization_id), group, sorted(jobs))
            for (organization_id, group), jobs in found.items()
        ]

    async def _look_at_group(self, database: Database, group: str, jobs: Sequence[int]) -> None:
        for start in range(0, len(jobs), _JOBS_AT_ONCE):
            await self._look_at(database, group, jobs[start : start + _JOBS_AT_ONCE])

    async def _look_at(self, database: Database, group: str, jobs: Sequence[int]) -> None:
        """Look at some jobs of a group. All that are overdue now are one message.

        A job that another process has looked at, or that was judged since the read, is left out.
        """
        schedules: dict[int, tuple[JobRules, _Schedule]] = {}
        stored = None
        for job_id in jobs:
            found = await database.read(_GROUP, database.organization_id, group, job_id)
            if found and found[0][2] is not None:
                if schedules and found[0][1] != stored:
                    return  # the next sweep looks at all of them by the new rules
                group_id, stored, job = found[0]
                of_job = JobRules(rules.decode(stored), job)
                key = (database.organization_id, group_id, job_id)
                read = await self._read_schedule(database.read, *key)
                schedules[job_id] = of_job, read

        async def work(transaction: Transaction) -> None:
            locked = await group_lock.lock(transaction, group, self._clock)
            [[present]] = await transaction.fetch(_RULES, locked.organization_id, locked.group_id)
            if present != stored:
                return  # the next sweep looks again
            changes = Changes(locked)
            for job_id, (of_job, read) in schedules.items():
                if await transaction.fetch(_IS_DUE, locked.organization_id, job_id, locked.now):
                    await self._check_schedule(locked, changes, job_id, of_job, read)
            await changes.finish()

        await database.write(work, queue_key=group)


class _Schedule(NamedTuple):
    """When the runs of a job began."""

    starts: list[int]
    """Starts of runs that were complete or partial, oldest first."""
    latest: int | None
    """The last of them, or the start of a run that goes on."""
    any_latest: int | None
    """The last sign of any run, even of one that nobody has started."""
    failed: int | None
    """The last run that has failed, or was abandoned."""
    interruptions: list[int]
    are_all: bool

    def expect(self, rule: Rule, of_job: JobRules) -> Expectation | None:
        latest = self.latest if rule.hours is None else self.any_latest
        # A job whose runs fail is not overdue, if another alert says that they fail.
        if self.failed is not None and of_job.has("failed_run"):
            latest = max(latest or 0, self.failed)
        return schedule.expect(self.starts, latest, self.interruptions, rule, are_all=self.are_all)


def _overdue(rule: Rule, expected: Expectation, now: int) -> Verdict:
    usual = None if expected.usual is None else expected.usual / timestamps.SECOND
    return Verdict(rule, True, (now - expected.last) / timestamps.SECOND, usual)


def _of_labels(open_alerts: Sequence[OpenAlert], labels: str) -> dict[Kind, OpenAlert]:
    """Return the open alerts that runs with these labels can change."""
    return {
        alert.kind: alert
        for alert in open_alerts
        if alert.kind not in WITH_LABELS or alert.labels == labels
    }


# --- computing ----------------------------------------------------------------------------------


class _Read(NamedTuple):
    """What was read to judge a run."""

    stored_rules: str | None
    rules: JobRules
    run: RunToJudge
    open_alerts: list[OpenAlert]
    accepted: dict[Kind, Accepted]
    schedule: _Schedule


class _Judged(NamedTuple):
    """The verdicts about a run."""

    verdicts: Mapping[Kind, Verdict | None]
    usual: Mapping[Kind, Level]
    level: Level
    sample: Sample
    is_model: bool = True
    """False if nothing can be said of the run, not even for later ones."""


def _try_to_judge(read: _Read) -> _Judged:
    """Judge a run. After an error there are no verdicts: to try again would fail for ever.

    Later runs of the job wait for this one, and it would stay open.
    """
    try:
        return _judge(read)
    except Exception:
        run = {"run": read.run.row.run_id}
        _log.exception("a run cannot be judged by the monitors: it opens no alert", extra=run)
        return _Judged({}, {}, Level(), Sample(), is_model=False)


def _judge(read: _Read) -> _Judged:
    run = read.run.decode()
    open_by_kind = _of_labels(read.open_alerts, read.run.row.labels)
    earlier = [(row, reading.level_of(row)) for row in read.run.earlier]
    verdicts: dict[Kind, Verdict | None] = {}
    usual: dict[Kind, Level] = {}
    for kind in KINDS:
        if kind == "no_run" or not read.rules.has(kind):
            continue
        known = None
        if kind in WITH_LABELS:
            known = usual_for(kind, earlier, open_by_kind.get(kind), read.accepted.get(kind))
        usual[kind] = known or Level()
        verdicts[kind] = judging.judge(kind, run, known, read.rules)
    return _Judged(verdicts, usual, run.level, run.sample)


def usual_for(
    kind: Kind,
    earlier: Sequence[tuple[RunRow, Level]],
    alert: OpenAlert | None,
    accepted: Accepted | None,
) -> Level | None:
    """Return what is usual for a kind of rule that compares runs; None if it is not known.

    An open alert says it, as long as it is open. After a person has accepted a run, only later ones
    count, or that run itself as long as they are too few.
    """
    if alert is not None and alert.level.is_known:
        return alert.level
    since = -1 if accepted is None else accepted.last_run
    usual = judging.usual_of([level for row, level in earlier if row.id > since])
    if usual is None and accepted is not None:
        return accepted.level
    return usual
