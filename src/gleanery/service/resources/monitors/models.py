"""What clients send and receive about rules and alerts."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import (
    MAX_INT64,
    DateTime,
    Name,
    NonEmptyText,
    Text,
    WholeNumber,
)
from gleanery.service.foundation.models import (
    DateTimeOut,
    Input,
    PageMetadata,
    Query,
    custom_error,
)
from gleanery.service.foundation.values import json_text
from gleanery.service.resources.monitors.rules import THRESHOLDS, WITH_PATH, Kind, Rule

MAX_RULES = 200
State = Literal["open", "closed"]
CloseReason = Literal["over", "normal", "rule_removed"]


class RuleIn(Input):
    """Rule about the runs of a job."""

    kind: Kind = Field(
        description="no_run: the job is overdue. failed_run: runs have failed, or were abandoned. "
        "few_outputs: a run has sent few outputs. fill_rate: a field is filled less often. "
        "kind_change: values of a field have another kind, such as text instead of numbers. "
        "rejected: elements were not valid. missing: a complete run has not sent outputs that the "
        "job has. number_shift: the median of a number has changed. duplicates: outputs of a run "
        "have the same data. held_removal: a removal waits for a decision."
    )
    job_id: Name | None = Field(
        default=None, description="Only this job. It replaces the same rule for all jobs."
    )
    path: Text | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Only this field, of fill_rate, kind_change and number_shift. It replaces the "
        "same rule for all fields.",
    )
    threshold: float | None = Field(
        default=None,
        description="When an alert opens. no_run: times the usual interval, 2 by default. "
        "failed_run: failed runs in a row, 1. few_outputs: at most this share of the usual "
        "outputs, 0.5. fill_rate: a drop by this share, 0.2. kind_change: this share of the values "
        "has another kind, 0.2. rejected: this share of the sent elements, 0.05. missing: this "
        "share of the outputs of the job, 0.1. number_shift: this many times larger or smaller, 2. "
        "duplicates: this share of the outputs, 0.1. held_removal has none.",
    )
    hours: Annotated[float, Field(gt=0, le=8784)] | None = Field(
        default=None,
        description="Of no_run: hours without a run, instead of a threshold. It counts even for "
        "jobs that are pushed without runs.",
    )
    minimum: Annotated[int, Field(ge=0, le=MAX_INT64)] | None = Field(
        default=None,
        description="Of few_outputs: fewer outputs open an alert, whatever is usual.",
    )
    enabled: bool = Field(
        default=True,
        description="false: this job or this field has no such rule, although all others have it.",
    )

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        problems = []
        limits = THRESHOLDS[self.kind]
        threshold = self.threshold
        if threshold is not None and not limits.smallest <= threshold <= limits.largest:
            expected = f"expected a number from {limits.smallest:g} to {limits.largest:g}"
            problems.append(custom_error("threshold", expected, ["threshold"]))
        if self.path is not None and self.kind not in WITH_PATH:
            msg = f"only rules of these kinds have a path: {', '.join(WITH_PATH)}"
            problems.append(custom_error("rule_member", msg, ["path"]))
        elif self.path is not None:
            try:
                json_text.names_of_path(self.path)
            except ValueError as error:
                problems.append(custom_error("path", str(error), ["path"]))
        if self.hours is not None and self.kind != "no_run":
            msg = "only rules of the kind no_run have hours"
            problems.append(custom_error("rule_member", msg, ["hours"]))
        if self.minimum is not None and self.kind != "few_outputs":
            msg = "only rules of the kind few_outputs have a minimum"
            problems.append(custom_error("rule_member", msg, ["minimum"]))
        if problems:
            raise ValidationError.from_exception_data("rule", problems)
        return self

    def to_rule(self) -> Rule:
        threshold = THRESHOLDS[self.kind].default if self.threshold is None else self.threshold
        path = self.path
        if path is not None:  # one spelling for each field
            path = json_text.path_of_names(json_text.names_of_path(path))
        return Rule(self.kind, self.job_id, path, threshold, self.hours, self.minimum, self.enabled)


class RuleOut(TypedDict):
    """Rule about the runs of a job."""

    kind: Kind
    job_id: str | None
    path: str | None
    threshold: float
    hours: float | None
    minimum: int | None
    enabled: bool


class RulePreview(TypedDict):
    """What a rule would have done."""

    runs: Annotated[int, Field(description="Past runs that were judged.")]
    alerts: Annotated[int, Field(description="Alerts that would have opened.")]


class SuggestedRule(RuleOut):
    """Rule that fits the past runs."""

    reason: Annotated[str, Field(description="Why it is suggested, for people.")]
    preview: RulePreview


def rule_out(rule: Rule) -> RuleOut:
    return RuleOut(
        kind=rule.kind,
        job_id=rule.job_id,
        path=rule.path,
        threshold=rule.threshold,
        hours=rule.hours,
        minimum=rule.minimum,
        enabled=rule.enabled,
    )


# --- alerts -------------------------------------------------------------------------------------


class FactOut(TypedDict):
    """Field that breaks a rule."""

    path: str
    usual: float
    value: float
    detail: str | None


class FactsOut(TypedDict):
    """The numbers of an alert."""

    value: Annotated[
        float | None,
        Field(
            description="no_run: seconds since the last run, some minutes ago. failed_run: "
            "failed runs in a row. few_outputs: outputs. rejected, missing, duplicates: a share. "
            "held_removal: outputs to remove. Otherwise that of the first field."
        ),
    ]
    usual: Annotated[float | None, Field(description="The usual value, if there is one.")]
    fields: Annotated[
        list[FactOut], Field(description="Fields that break the rule, the worst first; at most 20.")
    ]
    field_count: int


class AlertOut(TypedDict):
    """Alert: a run of a job breaks a rule, or there is none."""

    alert_id: str
    group_id: str
    job_id: str
    kind: Kind
    state: State
    message: Annotated[str, Field(description="What is wrong, in one sentence for people.")]
    rule: RuleOut
    labels: Annotated[
        dict[str, str],
        Field(description="Of the runs, if runs with the same labels are compared."),
    ]
    facts: Annotated[FactsOut, Field(description="Of the last run with this problem.")]
    run_id: Annotated[str | None, Field(description="Run that has opened it; null for no_run.")]
    last_run_id: Annotated[str | None, Field(description="Last run with this problem.")]
    runs: Annotated[int, Field(description="Number of runs with this problem.")]
    open_date: DateTimeOut
    close_date: DateTimeOut | None
    close_reason: Annotated[
        CloseReason | None,
        Field(
            description="over: the condition is not true any more. normal: a person has said that "
            "this is normal now. rule_removed: the rule was removed or switched off."
        ),
    ]
    acknowledged_date: DateTimeOut | None
    acknowledged_by: str | None
    muted_until: DateTimeOut | None


class AlertPage(TypedDict):
    """Page of alerts, newest first."""

    metadata: PageMetadata
    alerts: list[AlertOut]


class AlertsQuery(Query):
    """Filters and paging of alerts."""

    state: State | None = Field(default=None, description="Only alerts in this state.")
    group_id: NonEmptyText | None = Field(default=None, description="Only alerts of this group.")
    job_id: NonEmptyText | None = Field(
        default=None, description="Only alerts of this job. Needs `group_id`."
    )
    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=MAX_INT64, ge=0, le=MAX_INT64, description="Only the alerts before this position."
    )


class AlertIn(Input):
    """What a person says about an alert. Members that are left out stay as they are."""

    acknowledged: bool | None = Field(
        default=None, description="true: somebody works on it. The alert stays open."
    )
    muted_until: DateTime | None = Field(
        default=None,
        description="No messages about this rule and job until then, even if the alert closes and "
        "opens again. null: messages again.",
    )
    normal: bool | None = Field(
        default=None,
        description="true: what the last run was like is normal now. The alert closes, and later "
        "runs are compared with that.",
    )
