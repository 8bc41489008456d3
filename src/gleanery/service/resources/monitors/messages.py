"""What alerts say, in one sentence each; and the events about them, for webhooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.events import storing
from gleanery.service.resources.events.storing import EventName
from gleanery.service.resources.monitors.models import AlertOut, FactOut, FactsOut
from gleanery.service.resources.monitors.rules import Kind, Rule
from gleanery.service.storage.group_lock import LockedGroup

_MAX_PATH = 100  # characters of the path of a field in a sentence
_MAX_LISTED = 20  # alerts in one message
_MAX_EVENT_BYTES = 18_000  # receivers of webhooks expect less than 20 kB
_FEW_FIELDS = 5  # of an event that would be larger
_UNITS = ((86_400 * 2, 86_400, "days"), (7200, 3600, "hours"), (120, 60, "minutes"))


def describe(kind: Kind, job: str, rule: Rule, facts: FactsOut) -> str:
    """Return what is wrong, in one sentence."""
    return _SENTENCES[kind](job, rule, facts)


def _no_run(job: str, _: Rule, facts: FactsOut) -> str:
    usual = "" if facts["usual"] is None else f", {_interval(facts['usual'])} before"
    return f"{job} is overdue: last run {_duration(facts['value'] or 0)} ago{usual}."


def _failed_run(job: str, _: Rule, facts: FactsOut) -> str:
    count = int(facts["value"] or 0)
    return (
        f"The last run of {job} failed."
        if count == 1
        else f"{count} runs of {job} failed in a row."
    )


def _few_outputs(job: str, rule: Rule, facts: FactsOut) -> str:
    minimum, usual, value = rule.minimum, facts["usual"], facts["value"] or 0
    expected = f"{_number(usual)} is usual"
    if minimum is not None and (usual is None or value > rule.threshold * usual):
        expected = f"at least {minimum:,} {'is' if minimum == 1 else 'are'} expected"
    outputs = "output" if facts["value"] == 1 else "outputs"
    return f"{job} stored {_number(facts['value'])} {outputs}; {expected}."


def _fill_rate(job: str, _: Rule, facts: FactsOut) -> str:
    first = facts["fields"][0]
    return (
        f"{job}: {_path(first)} is filled in {_percent(first['value'])} of the outputs; "
        f"{_percent(first['usual'])} is usual{_others(facts)}."
    )


def _kind_change(job: str, _: Rule, facts: FactsOut) -> str:
    first = facts["fields"][0]
    return f"{job}: values of {_path(first)} have another kind, {first['detail']}{_others(facts)}."


def _number_shift(job: str, _: Rule, facts: FactsOut) -> str:
    first = facts["fields"][0]
    return (
        f"{job}: the median of {_path(first)} is {first['value']:,.10g}; {first['usual']:,.10g} is "
        f"usual{_others(facts)}."
    )


def _rejected(job: str, _: Rule, facts: FactsOut) -> str:
    return f"{job}: {_percent(facts['value'])} of the sent elements were not valid."


def _missing(job: str, _: Rule, facts: FactsOut) -> str:
    return f"{job}: {_percent(facts['value'])} of its outputs are missing in the last complete run."


def _duplicates(job: str, _: Rule, facts: FactsOut) -> str:
    return f"{job}: {_percent(facts['value'])} of the outputs have the same data as another output."


def _held_removal(job: str, _: Rule, facts: FactsOut) -> str:
    return (
        f"{job}: the removal of {_number(facts['value'])} of {_number(facts['usual'])} outputs "
        "waits for a decision."
    )


_SENTENCES: Mapping[Kind, Callable[[str, Rule, FactsOut], str]] = {
    "no_run": _no_run,
    "failed_run": _failed_run,
    "few_outputs": _few_outputs,
    "fill_rate": _fill_rate,
    "kind_change": _kind_change,
    "rejected": _rejected,
    "missing": _missing,
    "number_shift": _number_shift,
    "duplicates": _duplicates,
    "held_removal": _held_removal,
}


def _others(facts: FactsOut) -> str:
    count = facts["field_count"] - 1
    return "" if count < 1 else f", and {count:,} other field{'s' if count > 1 else ''} changed"


def _path(fact: FactOut) -> str:
    path = fact["path"]
    return path if len(path) <= _MAX_PATH else f"{path[:_MAX_PATH]}…"


def _number(value: float | None) -> str:
    return f"{value or 0:,.10g}"


def _percent(share: float | None) -> str:
    percent = 100 * (share or 0)
    return f"{percent:.0f} %" if percent >= 1 or percent == 0 else f"{percent:.2g} %"


def _duration(seconds: float) -> str:
    for least, unit, name in _UNITS:
        if seconds >= least:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds:.0f} seconds"


def _interval(seconds: float) -> str:
    if 0.9 <= seconds / 86_400 <= 1.1:
        return "daily"
    if 0.9 <= seconds / 3600 <= 1.1:
        return "hourly"
    return f"every {_duration(seconds)}"


async def store(locked: LockedGroup, event: EventName, alerts: Sequence[AlertOut]) -> None:
    """Store events about alerts of the group.

    A program gets an event for each alert. A chat or a mailbox gets one message about all of them.
    """
    wanting = await storing.wanting_by_format(locked.transaction, event, locked.name)
    for alert in alerts:
        data = _shortened(alert)
        await storing.store(locked.transaction, wanting.programs, event, data, locked.now)
    if alerts and wanting.people:
        summary = {
            "group_id": locked.name,
            "job_id": alerts[0]["job_id"],
            "run_id": alerts[0]["run_id"],
            "alerts": [
                {name: alert[name] for name in ("job_id", "kind", "message")}
                for alert in alerts[:_MAX_LISTED]
            ],
            "alert_count": len(alerts),
        }
        await storing.store(locked.transaction, wanting.people, event, summary, locked.now)


def _shortened(alert: AlertOut) -> AlertOut:
    """Return the alert with less text, if the event would be too large."""
    if len(encode(alert)) <= _MAX_EVENT_BYTES:
        return alert
    facts = alert["facts"]
    return {**alert, "labels": {}, "facts": {**facts, "fields": facts["fields"][:_FEW_FIELDS]}}
