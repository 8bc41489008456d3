"""Suggests rules that fit the past runs of a group, and says what rules would have done.

A preview judges the past runs again, one after another, as they were judged when they ended. Only
the runs whose fields are kept can be judged again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.resources.fields.ended_runs import KEPT_FIELDS
from gleanery.service.resources.monitors import judging, reading, rules, schedule
from gleanery.service.resources.monitors.judging import JudgedRun, Level
from gleanery.service.resources.monitors.models import RulePreview, SuggestedRule, rule_out
from gleanery.service.resources.monitors.reading import RunRow
from gleanery.service.resources.monitors.rules import (
    THRESHOLDS,
    WITH_LABELS,
    JobRules,
    Kind,
    Rule,
)
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, indexed

_JOBS = 10
_RECENT_RUNS = 300
_SAMPLED_JOBS = 3
_MAX_PATHS = 10
_STABLE = 0.98
_MAX_FIELDS = 20_000
"""Fields of all runs that one preview compares: about a second. It leaves out further jobs."""
_RECENT_JOBS = indexed(
    f"""
SELECT job_id, (SELECT name FROM jobs WHERE organization_id = $1 AND jobs.id = job_id)
FROM (SELECT id, job_id FROM {{runs}} WHERE organization_id = $1 AND group_id = $2
    ORDER BY id DESC LIMIT {_RECENT_RUNS}) AS recent
GROUP BY job_id ORDER BY max(id) DESC LIMIT {_JOBS}
""",
    runs="runs_of_group",
)
_RULES = "SELECT monitors FROM groups WHERE organization_id = $1 AND id = $2"


class _Job(NamedTuple):
    """The past runs of a job that has run recently, oldest first."""

    id: int
    name: str
    rows: Sequence[RunRow]


class _PastRun(NamedTuple):
    row: RunRow
    judged: JudgedRun


_Past = Mapping[str, Sequence[_PastRun]]
"""The past runs of some jobs, oldest first, by the name of the job."""


async def suggest(database: Database, computations: FairThread, group: str) -> list[SuggestedRule]:
    """Suggest rules that the group does not have yet. Raise NotFound."""
    group_id = await group_lock.require_group(database, group)
    [[stored]] = await database.read(_RULES, database.organization_id, group_id)
    jobs = await _read_jobs(database, group_id)
    items = [
        await reading.read_items(database, group_id, job.id, job.rows[-1].started_at)
        for job in jobs[:_SAMPLED_JOBS]
        if job.rows
    ]
    present = rules.decode(stored)
    return await computations.run(database.organization_id, _suggest, present, jobs, items)


async def preview(
    database: Database,
    computations: FairThread,
    group: str,
    wanted: Sequence[Rule],
    rule: Rule,
) -> RulePreview:
    """Say what one of these rules would have done, if all of them had counted. Raise NotFound."""
    group_id = await group_lock.require_group(database, group)
    jobs = await _read_jobs(database, group_id)
    return await computations.run(database.organization_id, _preview_one, rule, wanted, jobs)


async def _read_jobs(database: Database, group_id: int) -> list[_Job]:
    found = await database.read_large(_RECENT_JOBS, database.organization_id, group_id)
    return [
        _Job(job_id, name, await reading.read_past(database, group_id, job_id, KEPT_FIELDS))
        for job_id, name in found
        if name is not None
    ]


def _preview_one(rule: Rule, all_rules: Sequence[Rule], jobs: Sequence[_Job]) -> RulePreview:
    return _preview(rule, all_rules, _decode(jobs))


def _decode(jobs: Iterable[_Job]) -> _Past:
    return {
        job.name: [
            _PastRun(row, reading.decode_run(row, failures=count))
            for row, count in _with_failures(job.rows)
        ]
        for job in jobs
    }


def _with_failures(rows: Iterable[RunRow]) -> Iterable[tuple[RunRow, int]]:
    failures = 0
    for row in rows:
        failures = failures + 1 if row.status in reading.FAILED else 0
        yield row, failures


# --- suggestions --------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    rule: Rule
    reason: str


def _suggest(
    present: Sequence[Rule], jobs: Sequence[_Job], items: Sequence[Sequence[bytes]]
) -> list[SuggestedRule]:
    past = _decode(jobs)
    runs = [one.judged for some in past.values() for one in some if one.row.is_model]
    candidates = [*_about_runs(runs), *_about_fields(past), *_about_values(items)]
    known = {(rule.kind, rule.path) for rule in present if rule.job_id is None}
    return [
        SuggestedRule(
            **rule_out(rule), reason=reason, preview=_preview(rule, [*present, rule], past)
        )
        for rule, reason in candidates
        if (rule.kind, rule.path) not in known
    ]


def _rule(kind: Kind, threshold: float | None = None, path: str | None = None) -> Rule:
    value = THRESHOLDS[kind].default if threshold is None else threshold
    return Rule(kind, None, path, value, None, None, True)


def _about_runs(runs: Sequence[JudgedRun]) -> Iterable[_Candidate]:
    yield _Candidate(_rule("failed_run"), "A run that fails may store nothing.")
    yield _Candidate(_rule("held_removal"), "A removal that is held waits for a person.")
    if not runs:
        return
    rejected = max(_share(run.rejected, run.outputs + run.rejected) for run in runs)
    reason = f"At most {100 * rejected:.1f} % of the sent elements were not valid so far."
    yield _Candidate(_rule("rejected", _above("rejected", rejected)), reason)
    missing = max(_share(run.missing, run.job_outputs) for run in runs)
    reason = f"At most {100 * missing:.1f} % of the outputs were missing so far."
    yield _Candidate(_rule("missing", _above("missing", missing)), reason)
    yield _Candidate(_rule("kind_change"), "The kinds of values rarely change on purpose.")


def _above(kind: Kind, most: float) -> float:
    """Return a threshold that is far from the largest share so far."""
    return min(max(THRESHOLDS[kind].default / 2, round(2 * most, 2)), 1.0)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _about_fields(past: _Past) -> Iterable[_Candidate]:
    """Suggest narrow limits for fields that all outputs have."""
    rates: dict[str, list[float]] = {}
    count = 0
    for some in past.values():
        for one in some:
            if one.row.is_model and one.judged.counted >= judging.MIN_VALUES:
                count += 1
                for path, rate in one.judged.level.rates.items():
                    rates.setdefault(path, []).append(rate)
    stable = [
        path
        for path, each in rates.items()
        if count >= judging.MIN_RUNS and len(each) == count and min(each) >= _STABLE
    ]
    for path in sorted(stable, key=lambda path: (len(path), path))[:_MAX_PATHS]:
        least = min(rates[path])
        share = "all" if least == 1 else f"at least {math.floor(100 * least)} %"
        reason = f"It was filled in {share} of the outputs so far."
        yield _Candidate(_rule("fill_rate", 0.05, path), reason)


def _about_values(items: Sequence[Sequence[bytes]]) -> Iterable[_Candidate]:
    samples = [reading.sample_of(some) for some in items if some]
    if not samples:
        return
    most = max(_share(sample.duplicates, sample.outputs) for sample in samples)
    if most < THRESHOLDS["duplicates"].default / 2:
        reason = f"At most {100 * most:.1f} % of the newest outputs have the same data as another."
        yield _Candidate(_rule("duplicates"), reason)
    fractions = {path for some in items for path in reading.fractions_of(some)}
    for path in sorted(fractions, key=lambda path: (len(path), path))[:_MAX_PATHS]:
        reason = "It is a number with a fraction, such as a price: its median should change slowly."
        yield _Candidate(_rule("number_shift", path=path), reason)


# --- previews -----------------------------------------------------------------------------------


def _preview(rule: Rule, all_rules: Sequence[Rule], past: _Past) -> RulePreview:
    """Judge the past runs by one rule, which replaces others of its kind as it does later."""
    found = RulePreview(runs=0, alerts=0)
    fields = 0
    if not rule.enabled:
        return found
    for job, runs in past.items():
        of_job = JobRules(all_rules, job)
        if rule.job_id not in (None, job) or of_job.find(rule.kind, rule.path) != rule:
            continue
        if rule.kind == "no_run":
            result = _replay_schedule(rule, runs)
        else:
            narrow = [(one.row, _narrow(one.judged, rule)) for one in runs]
            fields += sum(run.level.size for _, run in narrow)
            if fields > _MAX_FIELDS and found["runs"]:
                break
            result = _replay(JobRules([rule], job), rule, narrow)
        found["runs"] += result["runs"]
        found["alerts"] += result["alerts"]
    return found


def _narrow(run: JudgedRun, rule: Rule) -> JudgedRun:
    """Leave out of its level what the rule does not compare, because medians take the time."""
    level, path = run.level.part(rule.kind), rule.path
    if path is not None:
        level = Level(
            rates={path: level.rates.get(path, 0.0)} if level.rates else {},
            kinds={path: level.kinds[path]} if path in level.kinds else {},
            numbers={path: level.numbers[path]} if path in level.numbers else {},
        )
    return run._replace(level=level)


def _replay(of_job: JobRules, rule: Rule, runs: Sequence[tuple[RunRow, JudgedRun]]) -> RulePreview:
    """Judge runs again, with the baselines and open alerts that there would have been."""
    kind = rule.kind
    found = RulePreview(runs=0, alerts=0)
    models: dict[str, list[Level]] = {}
    opened: dict[str, Level] = {}
    for row, run in runs:
        labels = row.labels if kind in WITH_LABELS else ""
        usual = opened.get(labels) or judging.usual_of(
            models.get(row.labels, [])[-judging.USUAL_RUNS :]
        )
        verdict = judging.judge(kind, run, usual, of_job)
        if verdict is not None:
            found["runs"] += 1
            if verdict.is_problem and labels not in opened:
                found["alerts"] += 1
                opened[labels] = usual or Level()
            elif not verdict.is_problem:
                opened.pop(labels, None)
        if labels not in opened and run.status == "complete":
            models.setdefault(row.labels, []).append(run.level)
    return found


def _replay_schedule(rule: Rule, runs: Sequence[_PastRun]) -> RulePreview:
    """Count the intervals between runs for which the job would have been overdue."""
    found = RulePreview(runs=0, alerts=0)
    starts: list[int] = []
    interrupted: list[int] = []
    for row, _ in runs:
        if row.status not in ("complete", "partial"):
            continue
        if starts:
            expected = schedule.expect(
                starts, starts[-1], interrupted, rule, are_all=len(runs) < KEPT_FIELDS
            )
            found["runs"] += expected is not None
            if expected is not None and row.started_at > expected.due:
                found["alerts"] += 1
                interrupted.append(expected.due)
        starts.append(row.started_at)
    return found
