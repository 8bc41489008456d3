"""Model of monitors: which alerts are open, and why, in the plainest way.

The model knows what each run was like, keeps all of them in a list, and computes what is usual
from that list each time. It has no tables, no marks and no hints of when to look at something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from statistics import mean, median
from typing import Any, NamedTuple

KINDS = (
    "no_run",
    "failed_run",
    "few_outputs",
    "fill_rate",
    "kind_change",
    "rejected",
    "missing",
    "number_shift",
    "duplicates",
    "held_removal",
)
OF_FIELDS = ("fill_rate", "kind_change", "number_shift")
COMPARING = ("few_outputs", *OF_FIELDS)
"""Kinds that compare a run with earlier ones of the same labels."""
DEFAULTS = {
    "no_run": 2.0,
    "failed_run": 1.0,
    "few_outputs": 0.5,
    "fill_rate": 0.2,
    "kind_change": 0.2,
    "rejected": 0.05,
    "missing": 0.1,
    "number_shift": 2.0,
    "duplicates": 0.1,
    "held_removal": 0.0,
}
FAILED = ("failed", "abandoned")
ENOUGH_RUNS, ENOUGH_VALUES = 4, 10
SMALL = 1e-9
HOUR = 3600
DAY = 24 * HOUR

Rule = Mapping[str, Any]
"""A rule as clients see it."""


def new_rule(kind: str, **members: Any) -> dict[str, Any]:
    others = dict.fromkeys(("job_id", "path", "hours", "minimum"))
    return {"kind": kind, "threshold": DEFAULTS[kind], "enabled": True} | others | members


DEFAULT_RULES = [new_rule(kind) for kind in ("no_run", "few_outputs", "fill_rate")]


def find_rule(rules: Sequence[Rule], job: str, kind: str, path: str | None = None) -> Rule | None:
    """Return the rule that counts: the one for the field and the job, or a more general one."""
    for wanted in ((path, job), (path, None), (None, job), (None, None)):
        for rule in rules:
            if rule["kind"] == kind and (rule["path"], rule["job_id"]) == wanted:
                return rule if rule["enabled"] else None
    return None


def is_on(rules: Sequence[Rule], job: str, kind: str) -> bool:
    """Return True if any rule of this kind counts for the job, at least for one field."""
    paths = [None, *(rule["path"] for rule in rules if rule["path"] is not None)]
    of_paths = [
        rule["path"]
        for rule in rules
        if rule["kind"] == kind and rule["job_id"] in (None, job) and rule["path"] in paths
    ]
    return any(find_rule(rules, job, kind, path) for path in (None, *of_paths))


# --- one run ------------------------------------------------------------------------------------


class Facts(NamedTuple):
    """What a run was like."""

    status: str = "complete"
    outputs: int = 0
    rejected: int = 0
    missing: int = 0
    is_held: bool = False
    removable: int = 0
    fields: Mapping[str, Mapping[str, int]] = {}
    """By path, in how many outputs the field has a value of each kind; numbers are one kind."""
    sampled: int = 0
    duplicates: int = 0
    numbers: Mapping[str, float] = {}
    """By path, the median of its numbers."""

    @property
    def rates(self) -> dict[str, float]:
        filled = {path: sum(kinds.values()) for path, kinds in self.fields.items()}
        return {path: round(n / self.outputs, 4) for path, n in filled.items() if n}

    @property
    def kinds(self) -> dict[str, dict[str, float]]:
        return {
            path: {kind: round(n / sum(kinds.values()), 4) for kind, n in kinds.items() if n}
            for path, kinds in self.fields.items()
            if sum(kinds.values())
        }


class Usual(NamedTuple):
    """What is usual. What is not known is None or empty."""

    outputs: float | None = None
    rates: Mapping[str, float] = {}
    kinds: Mapping[str, Mapping[str, float]] = {}
    numbers: Mapping[str, float] = {}

    def part(self, kind: str) -> Any:
        return self[COMPARING.index(kind)]


def usual_of(models: Sequence[Facts]) -> Usual | None:
    """Return what is usual, by earlier runs; None if they are too few."""
    if len(models) < ENOUGH_RUNS:
        return None
    filled = [run.rates for run in models if run.rates]
    rates = {
        path: round(median([run.get(path, 0) for run in filled]), 4)
        for path in {path for run in filled for path in run}
        if len(filled) >= ENOUGH_RUNS
    }
    kinds = {}
    for path in rates:
        shares = [run.kinds[path] for run in models if path in run.kinds]
        if len(shares) >= ENOUGH_RUNS:
            names = {name for one in shares for name in one}
            kinds[path] = {name: mean([one.get(name, 0) for one in shares]) for name in names}
    numbers: dict[str, float] = {}
    for path in {path for run in models for path in run.numbers}:
        known = [run.numbers[path] for run in models if path in run.numbers]
        if len(known) >= ENOUGH_RUNS:
            numbers[path] = median(known)
    return Usual(
        median([run.outputs for run in models]),
        {path: rate for path, rate in rates.items() if rate},
        kinds,
        numbers,
    )


class Verdict(NamedTuple):
    """Whether a run breaks a rule; the fields that do."""

    is_problem: bool
    value: float | None = None
    paths: frozenset[str] = frozenset()


def judge(
    kind: str, run: Facts, failures: int, usual: Usual | None, rules: Sequence[Rule], job: str
) -> Verdict | None:
    """Judge a run. Return None if no rule of this kind can."""
    if kind == "failed_run":
        rule = find_rule(rules, job, kind)
        return None if rule is None else Verdict(failures >= rule["threshold"], failures)
    if run.status not in ("complete", "partial"):
        return None
    if kind in OF_FIELDS:
        if usual is None or not usual.part(kind):
            return None
        return _judge_fields(kind, run, usual, rules, job)
    rule = find_rule(rules, job, kind)
    return None if rule is None else _judge_counts(kind, run, usual, rule)


def _judge_counts(kind: str, run: Facts, usual: Usual | None, rule: Rule) -> Verdict | None:
    part = whole = 0
    if kind == "few_outputs":
        known, minimum = None if usual is None else usual.outputs, rule["minimum"]
        if known is None and minimum is None:
            return None
        is_few = known is not None and run.outputs < known
        is_few = is_few and run.outputs <= rule["threshold"] * (known or 0) + SMALL
        return Verdict(is_few or (minimum is not None and run.outputs < minimum), run.outputs)
    if kind == "rejected":
        part, whole = run.rejected, run.outputs + run.rejected
    elif kind == "duplicates":
        part, whole = run.duplicates, run.sampled
        if whole < ENOUGH_VALUES:
            return None
    elif run.status != "complete":
        return None
    elif kind == "missing":
        part, whole = run.missing, run.outputs + run.missing
    else:
        return Verdict(run.is_held, run.removable)
    share = part / whole if whole else 0
    is_nothing = part == 0 and kind != "duplicates"
    return Verdict(not is_nothing and share >= rule["threshold"] - SMALL, share)


def _judge_fields(
    kind: str, run: Facts, usual: Usual, rules: Sequence[Rule], job: str
) -> Verdict | None:
    if kind == "fill_rate" and run.outputs < ENOUGH_VALUES:
        return None
    if kind == "number_shift" and not run.numbers:
        return None
    found = set()
    for path in usual.part(kind):
        rule = find_rule(rules, job, kind, path)
        if rule is not None and _breaks(kind, run, usual, path, rule["threshold"]):
            found.add(path)
    return Verdict(bool(found), paths=frozenset(found))


def _breaks(kind: str, run: Facts, usual: Usual, path: str, threshold: float) -> bool:
    if kind == "fill_rate":
        before, now = usual.rates[path], run.rates.get(path, 0)
        chance = 3 * sqrt(before * (1 - before) / run.outputs)
        return before - now >= max(threshold, chance) - SMALL
    if kind == "kind_change":
        if sum(run.fields.get(path, {}).values()) < ENOUGH_VALUES:
            return False
        earlier = {name: round(share, 4) for name, share in usual.kinds[path].items()}
        same = sum(min(share, earlier.get(name, 0)) for name, share in run.kinds[path].items())
        return sum(run.kinds[path].values()) - same >= threshold - SMALL
    before = usual.numbers[path]
    if path not in run.numbers or before == 0:
        return False
    ratio = run.numbers[path] / before
    return ratio >= threshold or ratio <= 1 / threshold


# --- jobs that are overdue ----------------------------------------------------------------------


def due(
    starts: Sequence[float], latest: float | None, interrupted: Sequence[float], rule: Rule
) -> float | None:
    """Return when a job is overdue, in seconds; None if nothing is known about its schedule.

    ``starts`` are all runs that were complete or partial, oldest first.
    """
    if latest is None:
        return None
    if rule["hours"] is not None:
        return latest + float(rule["hours"]) * HOUR
    known = [start for start in starts if start > starts[-1] - 15 * DAY]
    known = max(known, [*starts[-ENOUGH_RUNS - 1 :]], key=len)
    intervals = [
        (before, after - before)
        for before, after in pairwise(known)
        if not [time for time in interrupted if before < time <= after]
    ]
    if len(known) < ENOUGH_RUNS or len(intervals) < ENOUGH_RUNS - 1:
        return None
    usual = median([interval for _, interval in intervals[-10:]])
    if usual < 300:
        return None
    same_day = [interval for before, interval in intervals if _weekday(before) == _weekday(latest)]
    knows_week = bool(same_day) and latest - known[0] >= 7 * DAY
    longest = max(same_day if knows_week else [interval for _, interval in intervals])
    least = HOUR if latest - known[0] >= DAY else DAY
    end = latest + max(float(rule["threshold"]) * usual, least, 1.25 * longest)
    if not knows_week and not any(_weekday(time) >= 5 for time in (*known, latest)):
        day = latest // DAY + 1
        while day * DAY < end:
            end += DAY if _weekday(day * DAY) >= 5 else 0
            day += 1
    return end


def _weekday(time: float) -> int:
    return int(time // DAY + 3) % 7


# --- histories ----------------------------------------------------------------------------------


@dataclass
class Run:
    """A run that has been judged."""

    job: str
    labels: str
    number: int
    """The place in the order of starts."""
    start: float
    facts: Facts
    has_alert: bool = False


@dataclass
class Alert:
    """An alert, open or not."""

    job: str
    kind: str
    labels: str
    usual: Usual | None
    opened: float
    runs: int = 1
    last: Run | None = None
    verdict: Verdict | None = None
    last_usual: Usual | None = None
    """What the last run with this problem was compared with."""
    close_reason: str | None = None
    is_acknowledged: bool = False
    muted_until: float | None = None
    alert_id: str = ""

    @property
    def is_open(self) -> bool:
        return self.close_reason is None


@dataclass
class Model:
    """The jobs of a group, with their runs and alerts. Times are in seconds."""

    rules: list[dict[str, Any]] = field(default_factory=lambda: [*DEFAULT_RULES])
    runs: list[Run] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    """In the order in which they opened; kinds that open together are in the order of kinds."""
    going_on: dict[str, list[float]] = field(default_factory=dict)
    """Starts of the runs of each job that go on."""
    pushed: dict[str, float] = field(default_factory=dict)
    """The last batch of each job without a run."""
    now: float = 0

    def jobs(self) -> list[str]:
        return sorted({run.job for run in self.runs} | {*self.going_on, *self.pushed})

    def open_alerts(self) -> list[Alert]:
        return [alert for alert in self.alerts if alert.is_open]

    def _find(self, job: str, kind: str, labels: str) -> Alert | None:
        wanted = (job, kind, labels if kind in COMPARING else "")
        for alert in self.open_alerts():
            if (alert.job, alert.kind, alert.labels) == wanted:
                return alert
        return None

    # --- runs ---

    def end(self, run: Run) -> None:
        """Judge a run that has ended."""
        if not any(is_on(self.rules, run.job, kind) for kind in ("number_shift", "duplicates")):
            run.facts = run.facts._replace(sampled=0, duplicates=0, numbers={})
        verdicts = {}
        for kind in KINDS[1:]:
            if not is_on(self.rules, run.job, kind):
                continue
            usual = self._usual(run, kind)
            verdicts[kind] = (
                usual,
                judge(kind, run.facts, self._failures(run), usual, self.rules, run.job),
            )
        self.runs.append(run)
        for kind, (usual, verdict) in verdicts.items():
            alert = self._find(run.job, kind, run.labels)
            if verdict is None:
                run.has_alert = run.has_alert or alert is not None
            elif verdict.is_problem:
                run.has_alert = True
                if alert is None:
                    labels = run.labels if kind in COMPARING else ""
                    alert = Alert(run.job, kind, labels, usual, self.now, runs=0)
                    alert.muted_until = self._muted_until(alert)
                    self.alerts.append(alert)
                alert.runs += 1
                alert.last, alert.verdict, alert.last_usual = run, verdict, usual
            elif alert is not None:
                alert.close_reason = "over"
        self.check_schedule(run.job)

    def _muted_until(self, alert: Alert) -> float | None:
        key = (alert.job, alert.kind, alert.labels)
        earlier = [one for one in self.alerts if (one.job, one.kind, one.labels) == key]
        until = earlier[-1].muted_until if earlier else None
        return until if until is not None and until > self.now else None

    def _failures(self, run: Run) -> int:
        """Count the failed runs in a row up to this one."""
        count = 0
        before = [one for one in self.runs if one.job == run.job and one.number < run.number]
        for one in (run, *sorted(before, key=lambda one: -one.number)):
            if one.facts.status not in FAILED:
                break
            count += 1
        return count

    def _usual(self, run: Run, kind: str) -> Usual | None:
        """Return what is usual: it does not change while an alert is open."""
        alert = self._find(run.job, kind, run.labels)
        if alert is not None and kind in COMPARING and alert.usual and alert.usual.part(kind):
            return alert.usual
        accepted = [
            one
            for one in self.alerts
            if one.close_reason == "normal"
            and (one.job, one.kind, one.labels) == (run.job, kind, run.labels)
        ]
        last = accepted[-1].last if accepted else None
        models = [
            one
            for one in sorted(self.runs, key=lambda one: one.number)
            if one.job == run.job
            and one.labels == run.labels
            and one.facts.status == "complete"
            and not one.has_alert
        ][-10:]
        since = -1 if last is None else last.number
        usual = usual_of([one.facts for one in models if one.number > since])
        if usual is None and last is not None:
            facts = last.facts
            return Usual(facts.outputs, facts.rates, facts.kinds, facts.numbers)
        return usual

    # --- schedules ---

    def sweep(self) -> None:
        for job in self.jobs():
            self.check_schedule(job)

    def check_schedule(self, job: str) -> None:
        """Open or close the alert about the schedule of a job."""
        rule = find_rule(self.rules, job, "no_run")
        alert = self._find(job, "no_run", "")
        is_overdue = False
        if rule is not None:
            end = self._due(job, rule)
            is_overdue = end is not None and end <= self.now
        if is_overdue and alert is None:
            alert = Alert(job, "no_run", "", None, self.now, runs=0)
            alert.muted_until = self._muted_until(alert)
            self.alerts.append(alert)
        elif alert is not None and not is_overdue:
            alert.close_reason = "over"

    def _due(self, job: str, rule: Rule) -> float | None:
        ended = [run for run in self.runs if run.job == job]
        starts = [run.start for run in ended if run.facts.status in ("complete", "partial")]
        signs = [*starts, *self.going_on.get(job, [])]
        if rule["hours"] is not None and job in self.pushed:
            signs.append(self.pushed[job])
        if is_on(self.rules, job, "failed_run"):
            signs += [run.start for run in ended if run.facts.status in FAILED]
        interrupted = [
            alert.opened for alert in self.alerts if (alert.job, alert.kind) == (job, "no_run")
        ]
        return due(sorted(starts), max(signs, default=None), interrupted, rule)

    # --- what persons do ---

    def set_rules(self, rules: list[dict[str, Any]]) -> None:
        self.rules = rules
        for alert in self.open_alerts():
            if not is_on(rules, alert.job, alert.kind):
                alert.close_reason = "rule_removed"

    def delete_job(self, job: str) -> None:
        self.runs = [run for run in self.runs if run.job != job]
        self.alerts = [alert for alert in self.alerts if alert.job != job]
        self.going_on.pop(job, None)
        self.pushed.pop(job, None)

    def delete_group(self) -> None:
        for job in self.jobs():
            self.delete_job(job)
        self.rules = [*DEFAULT_RULES]
