"""Random runs and schedules, judged by the service and by a plain model of each rule."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.fields.job_fields import MAX_NAMES
from gleanery.service.resources.monitors import judging, rules, schedule
from gleanery.service.resources.monitors.judging import JudgedRun, Level, Sample
from gleanery.service.resources.monitors.rules import JobRules, Kind, Rule
from gleanery.service.resources.run_records.rows import Status
from tests.support import monitors_model as model
from tests.support.monitors_model import DAY, HOUR, Facts, new_rule

EXAMPLES = int(os.environ.get("GLEANERY_FUZZ_EXAMPLES", "10"))
MANY = settings(max_examples=10 * EXAMPLES, deadline=None)
PATHS = ("price", "name", "seller.name")
JOBS = (None, "a", "b")
STATUSES: tuple[Status, ...] = ("complete", "partial", "failed", "abandoned")


# --- rules --------------------------------------------------------------------------------------


@st.composite
def some_rules(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rules for all jobs, for one, for all fields and for one; some are switched off."""
    found: dict[Any, dict[str, Any]] = {}
    for kind in draw(st.lists(st.sampled_from(model.KINDS), max_size=12)):
        limits = rules.THRESHOLDS[cast(Kind, kind)]
        share = draw(st.sampled_from([None, 0.0, 0.1, 0.25, 0.5, 1.0]))
        threshold = limits.default
        if share is not None:
            largest = min(limits.largest, 5)
            threshold = limits.smallest + share * (largest - limits.smallest)
        one = new_rule(
            kind,
            threshold=threshold,
            job_id=draw(st.sampled_from(JOBS)),
            path=draw(st.sampled_from((None, *PATHS))) if kind in model.OF_FIELDS else None,
            enabled=draw(st.sampled_from([True, True, False])),
        )
        if kind == "few_outputs":
            one["minimum"] = draw(st.sampled_from([None, None, 0, 5, 50]))
        found[kind, one["job_id"], one["path"]] = one
    return [*found.values()]


def of_job(wanted: Sequence[Mapping[str, Any]], job: str) -> JobRules:
    stored = rules.encode(Rule(**{name: rule[name] for name in Rule._fields}) for rule in wanted)
    return JobRules(rules.decode(stored), job)


@MANY
@given(some_rules(), st.sampled_from("ab"))
def test_the_most_special_rule_counts(wanted: list[dict[str, Any]], job: str) -> None:
    found = of_job(wanted, job)
    for kind in rules.KINDS:
        assert found.has(kind) == model.is_on(wanted, job, kind)
        for path in (None, *PATHS, "other"):
            rule = found.find(kind, path)
            expected = model.find_rule(wanted, job, kind, path)
            assert (None if rule is None else rule._asdict()) == expected


# --- runs ---------------------------------------------------------------------------------------

COUNTS = st.one_of(st.integers(0, 25), st.integers(90, 110), st.integers(0, 300))
SHARES = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 0.8, 0.9, 1.0]))


@st.composite
def facts(draw: st.DrawFn, like: Facts | None = None, *, is_model: bool = False) -> Facts:
    """A run, often similar to another one."""
    is_like = like is not None and draw(st.booleans())
    outputs = like.outputs if like is not None and is_like else draw(COUNTS)
    fields: dict[str, dict[str, int]] = {}
    for path in PATHS if outputs else ():
        filled = round(draw(SHARES) * outputs)
        texts = round(draw(st.sampled_from([0.0, 0.0, 0.1, 0.2, 0.5, 1.0])) * filled)
        kinds = {"string": texts, "number": filled - texts}
        if filled:
            fields[path] = {name: count for name, count in kinds.items() if count}
    sampled = min(outputs, 200)
    median = st.sampled_from([-3.0, 0.0, 1.0, 2.0, 3.0, 4.0, 8.0])
    return Facts(
        "complete" if is_model else draw(st.sampled_from(STATUSES)),
        outputs,
        draw(st.sampled_from([0, 0, 1, 5, 100])),
        draw(st.sampled_from([0, 0, 1, 5, 100])),
        draw(st.booleans()),
        draw(st.integers(0, 5)),
        fields,
        sampled,
        round(draw(SHARES) * sampled),
        draw(st.dictionaries(st.sampled_from(PATHS), median)) if sampled else {},
    )


def judged(run: Facts, failures: int = 0) -> JudgedRun:
    """The run as the service knows it: fields have a kind for integers and for each empty value."""
    fields = []
    for path, kinds in run.fields.items():
        stored = dict(kinds)
        numbers = stored.pop("number", 0)
        stored |= {"integer": numbers // 2, "number": numbers - numbers // 2}
        stored |= {"null": 3, "empty_string": 2}
        fields.append((tuple(json_text.names_of_path(path)), stored))
    values, level = judging.levels_of_fields(fields, run.outputs, json_text.path_of_names)
    level.outputs, level.numbers = run.outputs, dict(run.numbers)
    return JudgedRun(
        cast(Status, run.status),
        run.outputs,
        run.rejected,
        run.missing,
        run.outputs + run.missing,
        run.is_held,
        run.removable,
        run.outputs,
        values,
        level,
        Sample(run.sampled, run.duplicates, dict(run.numbers)),
        failures,
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Facts], Facts]:
    """Earlier complete runs, and the run that is judged."""
    first = draw(facts(is_model=True))
    others = draw(st.lists(facts(first, is_model=True), max_size=9))
    return [first, *others], draw(facts(first))


@MANY
@given(histories(), some_rules(), st.integers(0, 3))
def test_a_run_is_judged_as_by_the_model(
    history: tuple[list[Facts], Facts], wanted: list[dict[str, Any]], failures: int
) -> None:
    earlier, run = history
    usual = judging.usual_of([judged(one).level for one in earlier])
    expected_usual = model.usual_of(earlier)
    assert_same_level(usual, expected_usual)
    for kind in rules.KINDS[1:]:
        if not model.is_on(wanted, "a", kind):
            continue
        found = judging.judge(kind, judged(run, failures), usual, of_job(wanted, "a"))
        expected = model.judge(kind, run, failures, expected_usual, wanted, "a")
        assert (found is None) == (expected is None), kind
        if found is None or expected is None:
            continue
        assert found.is_problem == expected.is_problem, kind
        assert {fact.path for fact in found.fields} == expected.paths, kind
        if kind not in model.OF_FIELDS:
            assert found.value == pytest.approx(expected.value, abs=1e-4)
        elif found.is_problem:  # the first fact is the worst, and the rule is that of its field
            worst = found.fields[0]
            rule = model.find_rule(wanted, "a", kind, worst.path)
            assert (found.value, found.usual) == (worst.value, worst.usual)
            assert found.rule is not None
            assert found.rule._asdict() == rule


def assert_same_level(found: Level | None, expected: model.Usual | None) -> None:
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return
    assert found.outputs == expected.outputs
    assert found.rates == pytest.approx(expected.rates)
    assert found.numbers == expected.numbers
    assert found.kinds.keys() == expected.kinds.keys()
    for path, kinds in found.kinds.items():
        assert kinds == pytest.approx(expected.kinds[path], abs=1e-4)


@pytest.mark.parametrize(
    ("outputs", "is_few"), [(0, True), (99, True), (100, True), (101, False), (200, False)]
)
def test_half_of_the_usual_outputs_are_few(outputs: int, is_few: bool) -> None:
    verdict = judging.judge(
        "few_outputs",
        judged(Facts(outputs=outputs)),
        Level(outputs=200),
        of_job([new_rule("few_outputs")], "a"),
    )
    assert verdict is not None
    assert verdict.is_problem == is_few


def test_no_run_is_below_a_usual_level_of_nothing() -> None:
    verdict = judging.judge(
        "few_outputs", judged(Facts()), Level(outputs=0), of_job([new_rule("few_outputs")], "a")
    )
    assert verdict is not None
    assert not verdict.is_problem


def test_a_job_with_many_fields_has_no_alert_about_a_field_that_is_a_little_rarer() -> None:
    """There is no limit below which a field could fall."""
    fields = [((f"a{number:04}",), {"string": 100}) for number in range(sum(MAX_NAMES.values()))]
    models = [judging.levels_of_fields(fields, 100, ".".join)[1] for _ in range(4)]
    usual = judging.usual_of(models)
    assert usual is not None
    fields[0][1]["string"] = 99
    values, level = judging.levels_of_fields(fields, 100, ".".join)
    run = JudgedRun("complete", 100, 0, 0, 100, False, 0, 100, values, level, Sample(), 0)
    verdict = judging.judge("fill_rate", run, usual, JobRules(rules.DEFAULT_RULES, "a"))
    assert verdict is not None
    assert [fact.path for fact in verdict.fields] == []


# --- schedules ----------------------------------------------------------------------------------

BASE = 20_000 * DAY  # seconds since 1970
HOURS = st.one_of(st.integers(0, 30), st.sampled_from([0, 1, 24, 24, 24, 48, 72, 168]))


@MANY
@given(
    st.lists(HOURS, max_size=25),
    st.lists(st.integers(0, 600), max_size=3),
    st.integers(0, 6),
    st.sampled_from([1.0, 2.0, 2.0, 3.5]),
    st.sampled_from([None, None, 0.5, 30.0]),
)
def test_a_job_is_overdue_as_in_the_model(
    intervals: list[int],
    interrupted: list[int],
    later: int,
    threshold: float,
    hours: float | None,
) -> None:
    starts = [float(BASE)]
    for interval in intervals:
        starts.append(starts[-1] + max(interval * HOUR, 60))
    latest = starts[-1] + later * HOUR
    times = [starts[0] + hour * HOUR for hour in interrupted]
    one = new_rule("no_run", threshold=threshold, hours=hours)
    expected = model.due(starts, latest, times, one)
    found = schedule.expect(
        schedule.newest(to_microseconds(starts)),
        to_microseconds([latest])[0],
        to_microseconds(times),
        Rule(**one),
        are_all=True,
    )
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found.due == pytest.approx(to_microseconds([expected])[0], abs=2)
        assert found.last == to_microseconds([latest])[0]


def to_microseconds(times: Sequence[float]) -> list[int]:
    return [round(time * timestamps.SECOND) for time in times]


def test_a_job_that_has_stopped_long_ago_stays_overdue() -> None:
    starts = to_microseconds([BASE + day * DAY for day in range(12)])
    found = schedule.expect(
        schedule.newest(starts), starts[-1], [], Rule(**new_rule("no_run")), are_all=True
    )
    assert found is not None
    assert found.due == starts[-1] + 2 * DAY * timestamps.SECOND


def test_a_job_that_runs_once_a_week_can_be_overdue() -> None:
    starts = to_microseconds([BASE + week * 7 * DAY for week in range(8)])
    found = schedule.expect(
        schedule.newest(starts), starts[-1], [], Rule(**new_rule("no_run")), are_all=True
    )
    assert found is not None
    assert found.due == starts[-1] + 14 * DAY * timestamps.SECOND
