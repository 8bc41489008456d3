"""Rules and alerts, as requests and responses describe them. Unknown members are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Raw, Struct

from gleanery.client.models import PageMetadata

AlertState = Literal["open", "closed"]


class Rule(Struct, frozen=True, gc=False):
    """Rule about the runs of a job. A rule for a job or a field replaces the same rule for all."""

    kind: str
    """``no_run``, ``failed_run``, ``few_outputs``, ``fill_rate``, ``kind_change``, ``rejected``,
    ``missing``, ``number_shift``, ``duplicates`` or ``held_removal``."""
    job_id: str | None = None
    """None for all jobs."""
    path: str | None = None
    """Field of ``fill_rate``, ``kind_change`` and ``number_shift``; None for all fields."""
    threshold: float | None = None
    """When an alert opens; None for the default of the kind. A stored rule has always one."""
    hours: float | None = None
    """Of ``no_run``: hours without a run, in the place of the threshold."""
    minimum: int | None = None
    """Of ``few_outputs``: fewer outputs open an alert, whatever is usual."""
    enabled: bool = True
    """False if this job or field has no such rule, although all others have it."""


class RulePreview(Struct, frozen=True, gc=False, kw_only=True):
    """What a rule would have done."""

    runs: int
    """Past runs that were judged."""
    alerts: int
    """Alerts that would have opened."""


class SuggestedRule(Rule, frozen=True, gc=False, kw_only=True):
    """Rule that fits the past runs, and that the group does not have."""

    reason: str
    preview: RulePreview


class AlertField(Struct, frozen=True, gc=False, kw_only=True):
    """Field that breaks a rule."""

    path: str
    usual: float
    value: float
    detail: str | None


class AlertFacts(Struct, frozen=True, gc=False, kw_only=True):
    """Numbers of an alert, from the last run with its problem."""

    value: float | None
    """What the rule compares, such as the number of outputs, or the value of the first field."""
    usual: float | None
    fields: list[AlertField]
    """Fields that break the rule, the worst first; at most 20."""
    field_count: int


class Alert(Struct, frozen=True, gc=False, kw_only=True):
    """Alert: runs of a job break a rule, or there is no run."""

    alert_id: str
    group_id: str
    job_id: str
    kind: str
    state: AlertState
    message: str
    """What is wrong, in one sentence."""
    rule: Rule
    labels: dict[str, str]
    """Labels of the runs, if runs with the same labels are compared."""
    facts: AlertFacts
    run_id: str | None
    """Run that has opened the alert; None if there was no run in time."""
    last_run_id: str | None
    """Last run with the problem."""
    runs: int
    """Number of runs with the problem."""
    open_date: datetime
    close_date: datetime | None
    close_reason: str | None
    """``over``, ``normal`` if a person has accepted the level, or ``rule_removed``."""
    acknowledged_date: datetime | None
    acknowledged_by: str | None
    muted_until: datetime | None
    """End of a time without messages. It can be over."""


class AlertPage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of alerts."""

    metadata: PageMetadata
    alerts: list[Alert]


class RawAlertPage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of alerts that are not decoded."""

    metadata: PageMetadata
    alerts: list[Raw]
