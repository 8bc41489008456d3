"""The rules of a group: their kinds and thresholds, and which rule counts for a job and field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

Kind = Literal[
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
]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Limits(NamedTuple):
    """The threshold of a kind of rule: its default, and the values that it can have."""

    default: float
    smallest: float
    largest: float


THRESHOLDS: Mapping[Kind, Limits] = {
    "no_run": Limits(2.0, 1, 1000),
    "failed_run": Limits(1.0, 1, 100),
    "few_outputs": Limits(0.5, 0, 1),
    "fill_rate": Limits(0.2, 0.01, 1),
    "kind_change": Limits(0.2, 0.01, 1),
    "rejected": Limits(0.05, 0, 1),
    "missing": Limits(0.1, 0, 1),
    "number_shift": Limits(2.0, 1.01, 1000),
    "duplicates": Limits(0.1, 0.01, 1),
    "held_removal": Limits(0.0, 0, 0),
}
WITH_PATH: tuple[Kind, ...] = ("fill_rate", "kind_change", "number_shift")
"""Kinds that judge each field."""
WITH_LABELS: tuple[Kind, ...] = ("few_outputs", "fill_rate", "kind_change", "number_shift")
"""Kinds that compare a run with earlier runs, which must have the same labels."""


class Rule(NamedTuple):
    """A rule. Without a job it counts for all jobs, and without a path for all fields."""

    kind: Kind
    job_id: str | None
    path: str | None
    threshold: float
    hours: float | None
    """Of ``no_run``: the hours without a run. They replace the threshold."""
    minimum: int | None
    """Of ``few_outputs``: the smallest number of outputs, whatever is usual."""
    enabled: bool


DEFAULT_RULES = tuple(
    Rule(kind, None, None, THRESHOLDS[kind].default, None, None, True)
    for kind in ("no_run", "few_outputs", "fill_rate")
)
"""The rules of a group for which nobody has set others."""


class JobRules:
    """The rules that count for one job. A rule for the job replaces one for all jobs."""

    def __init__(self, rules: Iterable[Rule], job: str) -> None:
        self._rules: dict[tuple[Kind, str | None], Rule] = {}
        wanted = [rule for rule in rules if rule.job_id in (None, job)]
        for rule in sorted(wanted, key=lambda rule: rule.job_id is not None):
            self._rules[rule.kind, rule.path] = rule

    def find(self, kind: Kind, path: str | None = None) -> Rule | None:
        """Return the rule for a field, or for the whole job; None if it is off.

        A rule for the field replaces one for all fields.
        """
        rule = self._rules.get((kind, path)) or self._rules.get((kind, None))
        return rule if rule is not None and rule.enabled else None

    def has(self, kind: Kind) -> bool:
        """Return True if a rule of this kind is on, at least for one field."""
        return any(rule.enabled for rule in self._rules.values() if rule.kind == kind)


_decode = msgspec.json.Decoder(list[Rule]).decode


def decode(stored: str | None) -> tuple[Rule, ...]:
    """Return the rules that the column ``groups.monitors`` has."""
    return DEFAULT_RULES if stored is None else tuple(_decode(stored))


def encode(rules: Iterable[Rule]) -> str:
    return msgspec.json.encode([*rules]).decode()
