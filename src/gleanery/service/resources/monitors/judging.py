"""Judges a run by the rules of its job. Everything here is arithmetic: nothing is read or stored.

Most kinds compare the run with what is usual: medians of earlier complete runs. A kind gives no
verdict if it cannot judge the run, for instance because too little is known of earlier ones. Then
an open alert stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import sqrt
from statistics import median
from typing import Any, NamedTuple

import msgspec

from gleanery.service.resources.fields.job_fields import MAX_NAMES
from gleanery.service.resources.fields.shapes import UNFILLED_KINDS, UNLISTED, Names
from gleanery.service.resources.monitors.rules import JobRules, Kind, Rule
from gleanery.service.resources.run_records.rows import Status

MIN_RUNS = 4
"""Earlier runs that are needed to know what is usual."""
USUAL_RUNS = 10
"""Earlier runs whose median is usual."""
MAX_FIELDS = sum(MAX_NAMES.values())
"""Fields that are compared: all that a job lists. A field that a run left out would seem empty."""
MIN_VALUES = 10
"""Outputs, or values of a field, that are needed for a share. Fewer vary too much by chance."""
_DEVIATIONS = 3
_SMALL = 1e-9  # so that 0.9 - 0.7 is a drop of 0.2
_NUMBER = "number"  # integers are numbers: 12 and 12.5 can be values of the same field
_JUDGED: tuple[Status, ...] = ("complete", "partial")
"""Status of runs whose outputs are judged. What another run has sent is a part by chance."""


# --- what a run was like ------------------------------------------------------------------------


class Level(msgspec.Struct, omit_defaults=True):
    """What one run was like, or what is usual. It is stored as JSON."""

    outputs: float | None = None
    rates: dict[str, float] = {}
    """By path, the share of outputs in which the field is filled."""
    kinds: dict[str, dict[str, float]] = {}
    """By path, the shares of the kinds of its values."""
    numbers: dict[str, float] = {}
    """By path, the median of its numbers."""

    def part(self, kind: Kind) -> Level:
        """Return what a kind of rule compares."""
        match kind:
            case "few_outputs":
                return Level(outputs=self.outputs)
            case "fill_rate":
                return Level(rates=self.rates)
            case "kind_change":
                return Level(kinds=self.kinds)
            case "number_shift":
                return Level(numbers=self.numbers)
            case _:
                return Level()

    @property
    def size(self) -> int:
        """Return the number of its fields."""
        return len(self.rates) + len(self.kinds) + len(self.numbers)

    @property
    def is_known(self) -> bool:
        return self.outputs is not None or bool(self.rates or self.kinds or self.numbers)


class Sample(msgspec.Struct, omit_defaults=True):
    """What some values of a run were like. Only some rules need it. It is stored as JSON."""

    outputs: int = 0
    """Outputs in the sample."""
    duplicates: int = 0
    """Outputs in the sample with the same data as another one."""
    numbers: dict[str, float] = {}
    """By path, the median of its numbers."""


class JudgedRun(NamedTuple):
    """A run that has ended."""

    status: Status
    outputs: int
    rejected: int
    missing: int
    job_outputs: int
    """Outputs of the job, sent or missing; of a complete run only."""
    is_held: bool
    """True if its removal waits for a decision."""
    removable: int
    counted: int
    """Outputs whose fields are known."""
    values: Mapping[str, int]
    """By path, the outputs in which the field is filled."""
    level: Level
    sample: Sample
    failures: int
    """Failed runs in a row up to this one."""


def levels_of_fields(
    fields: Iterable[tuple[Names, Mapping[str, int]]],
    counted: int,
    path_of: Callable[[Names], str],
) -> tuple[dict[str, int], Level]:
    """Return in how many outputs each field is filled, its rate, and the shares of its kinds."""
    found: dict[str, dict[str, int]] = {}
    for names, kinds in fields:
        filled: dict[str, int] = {}
        for kind, count in kinds.items():
            if kind not in UNFILLED_KINDS and count > 0:
                merged = _NUMBER if kind == "integer" else kind
                filled[merged] = filled.get(merged, 0) + count
        if filled and names != UNLISTED.names:
            found[path_of(names)] = filled
    values = {path: sum(kinds.values()) for path, kinds in found.items()}
    if len(values) > MAX_FIELDS:
        most = sorted(values, key=lambda path: (-values[path], path))[:MAX_FIELDS]
        values = {path: values[path] for path in most}
    level = Level(
        rates={path: round(count / counted, 4) for path, count in values.items()},
        kinds={
            path: {kind: round(part / count, 4) for kind, part in found[path].items()}
            for path, count in values.items()
        },
    )
    return values, level


def usual_of(earlier: Sequence[Level]) -> Level | None:
    """Return the medians of earlier runs; None if they are too few."""
    if len(earlier) < MIN_RUNS:
        return None
    outputs = [level.outputs for level in earlier if level.outputs is not None]
    return Level(
        outputs=median(outputs) if len(outputs) >= MIN_RUNS else None,
        rates=_medians([level.rates for level in earlier if level.rates]),
        kinds=_kinds([level.kinds for level in earlier if level.kinds]),
        numbers=_known_medians([level.numbers for level in earlier]),
    )


def _medians(rates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each field; in a run that does not have it, the rate is 0."""
    if len(rates) < MIN_RUNS:
        return {}
    found: dict[str, list[float]] = {}
    for each in rates:
        for path, rate in each.items():
            found.setdefault(path, []).append(rate)
    usual = {
        path: round(median([*some, *[0.0] * (len(rates) - len(some))]), 4)
        for path, some in found.items()
    }
    return _largest({path: rate for path, rate in usual.items() if rate > 0})


def _largest(rates: dict[str, float]) -> dict[str, float]:
    if len(rates) <= MAX_FIELDS:
        return rates
    return dict(sorted(rates.items(), key=lambda item: (-item[1], item[0]))[:MAX_FIELDS])


def _kinds(runs: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the mean shares of the kinds of each field, of the runs that have it."""
    found: dict[str, list[Mapping[str, float]]] = {}
    for run in runs:
        for path, kinds in run.items():
            found.setdefault(path, []).append(kinds)
    usual = {}
    for path, some in found.items():
        if len(some) >= MIN_RUNS:
            names = {name for kinds in some for name in kinds}
            usual[path] = {
                name: round(sum(kinds.get(name, 0.0) for kinds in some) / len(some), 4)
                for name in sorted(names)
            }
    return dict([*usual.items()][:MAX_FIELDS])


def _known_medians(numbers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each field, of the runs that have it."""
    found: dict[str, list[float]] = {}
    for each in numbers:
        for path, number in each.items():
            found.setdefault(path, []).append(number)
    return {path: median(some) for path, some in found.items() if len(some) >= MIN_RUNS}


# --- verdicts -----------------------------------------------------------------------------------


class FieldFact(NamedTuple):
    """A field with its usual value and the present one."""

    path: str
    usual: float
    value: float
    detail: str | None = None


class Verdict(NamedTuple):
    """Whether a run breaks a rule, and the numbers that say so."""

    rule: Rule | None
    is_problem: bool
    value: float | None = None
    usual: float | None = None
    fields: Sequence[FieldFact] = ()
    """The fields that break the rule, the worst first."""


def judge(kind: Kind, run: JudgedRun, usual: Level | None, rules: JobRules) -> Verdict | None:
    """Judge a run. Return None if a rule of this kind cannot judge it."""
    if kind == "failed_run":
        return _judge_failure(run, rules)
    if run.status not in _JUDGED:
        return None
    if kind in _OF_FIELDS:
        return None if usual is None else _OF_FIELDS[kind](run, usual, rules)
    rule = rules.find(kind)
    return None if rule is None else _OF_RUN[kind](run, usual, rule)


def _judge_failure(run: JudgedRun, rules: JobRules) -> Verdict | None:
    rule = rules.find("failed_run")
    if rule is None or run.status in ("unknown", "running"):
        return None
    return Verdict(rule, run.failures >= rule.threshold, run.failures)


def _judge_outputs(run: JudgedRun, usual: Level | None, rule: Rule) -> Verdict | None:
    """Judge the number of outputs: few are at most the threshold's share of the usual ones.

    So a spider that loses exactly half is found. Where nothing is usual, nothing is not few.
    """
    known = None if usual is None else usual.outputs
    if known is None and rule.minimum is None:
        return None
    is_few = known is not None and run.outputs <= rule.threshold * known + _SMALL
    is_few = is_few and run.outputs < (known or 0)
    is_below = rule.minimum is not None and run.outputs < rule.minimum
    return Verdict(rule, is_few or is_below, run.outputs, known)


def _judge_rejected(run: JudgedRun, _: Level | None, rule: Rule) -> Verdict | None:
    sent = run.outputs + run.rejected
    share = run.rejected / sent if sent else 0.0
    return Verdict(rule, run.rejected > 0 and share >= rule.threshold - _SMALL, round(share, 4))


def _judge_missing(run: JudgedRun, _: Level | None, rule: Rule) -> Verdict | None:
    if run.status != "complete":
        return None
    share = run.missing / run.job_outputs if run.job_outputs else 0.0
    return Verdict(rule, run.missing > 0 and share >= rule.threshold - _SMALL, round(share, 4))


def _judge_duplicates(run: JudgedRun, _: Level | None, rule: Rule) -> Verdict | None:
    if run.sample.outputs < MIN_VALUES:
        return None
    share = run.sample.duplicates / run.sample.outputs
    return Verdict(rule, share >= rule.threshold - _SMALL, round(share, 4))


def _judge_removal(run: JudgedRun, _: Level | None, rule: Rule) -> Verdict | None:
    if run.status != "complete":
        return None
    return Verdict(rule, run.is_held, run.removable, run.job_outputs)


def _judge_rates(run: JudgedRun, usual: Level, rules: JobRules) -> Verdict | None:
    """Judge how often fields are filled. A drop that chance can explain does not count."""
    if run.counted < MIN_VALUES or not usual.rates:
        return None

    def problem(path: str, rule: Rule) -> FieldFact | None:
        before, now = usual.rates[path], run.level.rates.get(path, 0.0)
        deviation = sqrt(before * (1 - before) / run.counted)
        limit = max(rule.threshold, _DEVIATIONS * deviation)
        return FieldFact(path, before, now) if before - now >= limit - _SMALL else None

    found = _problems("fill_rate", usual.rates, rules, problem)
    return _verdict(found, lambda fact: fact.value - fact.usual)


def _judge_kinds(run: JudgedRun, usual: Level, rules: JobRules) -> Verdict | None:
    """Judge the kinds of values: the share of values that have another kind than before."""
    if not usual.kinds:
        return None

    def problem(path: str, rule: Rule) -> FieldFact | None:
        if run.values.get(path, 0) < MIN_VALUES:
            return None
        before, now = usual.kinds[path], run.level.kinds[path]
        changed = sum(max(share - before.get(kind, 0.0), 0.0) for kind, share in now.items())
        if changed < rule.threshold - _SMALL:
            return None
        old = max(before, key=lambda kind: (before[kind], kind))
        new = max(now, key=lambda kind: (now[kind] - before.get(kind, 0.0), kind))
        share = now.get(old, 0.0)
        return FieldFact(path, before[old], share, f"{new} instead of {old}")

    found = _problems("kind_change", usual.kinds, rules, problem)
    return _verdict(found, lambda fact: fact.value - fact.usual)


def _judge_numbers(run: JudgedRun, usual: Level, rules: JobRules) -> Verdict | None:
    """Judge the medians of numbers: how many times larger or smaller they are."""
    if not usual.numbers or not run.sample.numbers:
        return None

    def problem(path: str, rule: Rule) -> FieldFact | None:
        before, now = usual.numbers[path], run.sample.numbers.get(path)
        if now is None or before == 0:
            return None
        ratio = now / before
        if 1 / rule.threshold < ratio < rule.threshold:
            return None
        return FieldFact(path, before, now)

    found = _problems("number_shift", usual.numbers, rules, problem)
    return _verdict(found, lambda fact: fact.path)


def _problems(
    kind: Kind,
    paths: Iterable[str],
    rules: JobRules,
    problem: Callable[[str, Rule], FieldFact | None],
) -> list[tuple[FieldFact, Rule]]:
    found = []
    for path in paths:
        rule = rules.find(kind, path)
        if rule is not None and (fact := problem(path, rule)) is not None:
            found.append((fact, rule))
    return found


def _verdict(
    found: list[tuple[FieldFact, Rule]], worst_first: Callable[[FieldFact], Any]
) -> Verdict:
    if not found:
        return Verdict(None, False)
    found.sort(key=lambda one: (worst_first(one[0]), one[0].path))
    worst, rule = found[0]
    return Verdict(rule, True, worst.value, worst.usual, [fact for fact, _ in found])


_OF_RUN: Mapping[Kind, Callable[[JudgedRun, Level | None, Rule], Verdict | None]] = {
    "few_outputs": _judge_outputs,
    "rejected": _judge_rejected,
    "missing": _judge_missing,
    "duplicates": _judge_duplicates,
    "held_removal": _judge_removal,
}
_OF_FIELDS: Mapping[Kind, Callable[[JudgedRun, Level, JobRules], Verdict | None]] = {
    "fill_rate": _judge_rates,
    "kind_change": _judge_kinds,
    "number_shift": _judge_numbers,
}
