"""The console's part of monitors: open alerts in the inbox, the rules of a group, and previews.

An alert in the inbox comes with the last runs of its job, which are a small chart. Nobody works on
the first alerts yet. Those that a person has acknowledged follow, and muted ones are another list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.api.context import AnyContext, RequestContext
from gleanery.service.api.response import Response
from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest
from gleanery.service.foundation.field_types import MAX_INT64, Text
from gleanery.service.foundation.models import Input, Query
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.access.console_login import grant_of
from gleanery.service.resources.monitors import alert_pages, settings, suggestions
from gleanery.service.resources.monitors.models import AlertOut, RuleIn, RuleOut, rule_out
from gleanery.service.resources.monitors.rules import DEFAULT_RULES, THRESHOLDS, WITH_LABELS
from gleanery.service.resources.run_records.rows import Status
from gleanery.service.storage.database import Database, indexed

_ALERTS = 20
_MAX_OPEN = 1000
"""Open alerts that the inbox puts in order, the newest ones."""
_CHART = 14
"""Runs in a chart."""
_LOOKED_AT = 50
"""Runs of a job among which those with the labels of the alert are sought."""
_POSITION = r"^[01]\.[0-9]{1,18}$"
_OPEN = indexed(
    f"""
SELECT id, group_id, job_id, acknowledged_at, muted_until FROM {{alerts}}
WHERE organization_id = $1 AND closed_at IS NULL
ORDER BY id DESC LIMIT {_MAX_OPEN + 1}
""",
    alerts="alerts_open",
)
_GROUP_NAME = "SELECT display_name FROM groups WHERE organization_id = $1 AND id = $2"
_RECENT_RUNS = indexed(
    f"""
SELECT run_id, status, labels, started_at, created_count, updated_count, unchanged_count,
    missing_count, rejected_count, has_alert
FROM {{runs}} WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
ORDER BY id DESC LIMIT {_LOOKED_AT}
""",
    runs="runs_of_job",
)
_NO_RULE = "there is no rule at this position"


# --- alerts in the inbox ------------------------------------------------------------------------


class InboxAlertsQuery(Query):
    """Page of the open alerts."""

    muted: Literal["true"] | None = Field(
        default=None, description="Only alerts that are muted. Without it: all others."
    )
    after: Text | None = Field(default=None, pattern=_POSITION, description="`next` of a page.")


class ChartCounts(TypedDict):
    """Numbers of outputs."""

    created: int
    updated: int
    unchanged: int
    missing: int
    rejected: int


class ChartRun(TypedDict):
    """A run in a chart. Its start is in microseconds."""

    run_id: str
    status: Status
    started_at: int
    counts: ChartCounts
    has_alert: bool


class InboxAlert(AlertOut):
    """An open alert, and the last runs of its job."""

    group_name: str | None
    recent: list[ChartRun]
    """Oldest first; empty without the scope ``outputs:read``."""


class AlertCounts(TypedDict):
    """Numbers of open alerts."""

    new: int
    """Nobody has acknowledged or muted them."""
    acknowledged: int
    muted: int
    has_more: bool
    """True if there are more open alerts, which the inbox does not list."""


class InboxAlerts(TypedDict):
    """Open alerts, those that are acknowledged last, otherwise newest first."""

    alerts: list[InboxAlert]
    counts: AlertCounts
    next: str | None


class _OpenRow(NamedTuple):
    id: int
    group_id: int
    job_id: int
    acknowledged_at: int | None
    muted_until: int | None

    def is_muted(self, now: int) -> bool:
        return self.muted_until is not None and self.muted_until > now

    @property
    def position(self) -> tuple[bool, int]:
        """The place in the order of the inbox."""
        return self.acknowledged_at is not None, -self.id


async def console_inbox_alerts(context: RequestContext[InboxAlertsQuery, None]) -> Response:
    query, database, now = context.query, context.database, context.services.clock()
    found = await database.read(_OPEN, database.organization_id)
    rows = [_OpenRow(*row) for row in found[:_MAX_OPEN]]
    muted = [row for row in rows if row.is_muted(now)]
    others = [row for row in rows if not row.is_muted(now)]
    acknowledged = sum(row.acknowledged_at is not None for row in others)
    after = _decode_position(query.after)
    wanted = sorted(others if query.muted is None else muted, key=lambda row: row.position)
    waiting = [row for row in wanted if after is None or row.position > after]
    body = InboxAlerts(
        alerts=await _with_runs(context, waiting[:_ALERTS]),
        counts=AlertCounts(
            new=len(others) - acknowledged,
            acknowledged=acknowledged,
            muted=len(muted),
            has_more=len(found) > _MAX_OPEN,
        ),
        next=_encode_position(waiting[_ALERTS - 1]) if len(waiting) > _ALERTS else None,
    )
    return Response(encode(body))


def _decode_position(text: str | None) -> tuple[bool, int] | None:
    if text is None:
        return None
    part, _, id_ = text.partition(".")
    return part == "1", -int(id_)


def _encode_position(row: _OpenRow) -> str:
    return f"{int(row.acknowledged_at is not None)}.{row.id}"


async def _with_runs(context: AnyContext, rows: Sequence[_OpenRow]) -> list[InboxAlert]:
    database = context.database
    names: dict[int, str | None] = {}
    runs: dict[int, list[_ChartRow]] = {}
    may_read_runs = "outputs:read" in grant_of(context).scopes
    for row in rows:
        if row.group_id not in names:
            key = (database.organization_id, row.group_id)
            names[row.group_id] = next(
                (name for [name] in await database.read(_GROUP_NAME, *key)), None
            )
        if row.job_id not in runs:
            runs[row.job_id] = await _read_runs(database, row) if may_read_runs else []
    found = dict(await alert_pages.read_some(database, [r.id for r in rows]))
    return [
        InboxAlert(
            **found[row.id],
            group_name=names[row.group_id],
            recent=_chart(runs[row.job_id], found[row.id]),
        )
        for row in rows
        if row.id in found  # its job may have been deleted since
    ]


class _ChartRow(NamedTuple):
    run_id: str
    status: Status
    labels: str
    started_at: int
    created: int
    updated: int
    unchanged: int
    missing: int
    rejected: int
    has_alert: bool


async def _read_runs(database: Database, row: _OpenRow) -> list[_ChartRow]:
    key = (database.organization_id, row.group_id, row.job_id)
    return [_ChartRow(*found) for found in await database.read(_RECENT_RUNS, *key)]


def _chart(rows: Sequence[_ChartRow], alert: AlertOut) -> list[ChartRun]:
    """Return the last runs, with the same labels if the alert compares those."""
    compares_labels = alert["kind"] in WITH_LABELS
    same = [row for row in rows if not compares_labels or json.loads(row.labels) == alert["labels"]]
    return [
        ChartRun(
            run_id=row.run_id,
            status=row.status,
            started_at=row.started_at,
            counts=ChartCounts(
                created=row.created,
                updated=row.updated,
                unchanged=row.unchanged,
                missing=row.missing,
                rejected=row.rejected,
            ),
            has_alert=bool(row.has_alert),
        )
        for row in same[:_CHART][::-1]
    ]


# --- the rules of a group -----------------------------------------------------------------------


class ThresholdOut(TypedDict):
    """The values that the threshold of a kind of rule can have."""

    default: float
    smallest: float
    largest: float


class ConsoleMonitors(TypedDict):
    """The rules of a group, and what a form about them needs."""

    rules: list[RuleOut]
    defaults: list[RuleOut]
    """The rules of a group for which nobody has set others."""
    thresholds: Mapping[str, ThresholdOut]
    """By kind of rule."""


async def console_monitors(context: AnyContext) -> Response:
    found = await settings.read(context.database, context.path["group_id"])
    body = ConsoleMonitors(
        rules=[rule_out(rule) for rule in found],
        defaults=[rule_out(rule) for rule in DEFAULT_RULES],
        thresholds={
            kind: ThresholdOut(
                default=limits.default, smallest=limits.smallest, largest=limits.largest
            )
            for kind, limits in THRESHOLDS.items()
        },
    )
    return Response(encode(body))


class PreviewIn(Input):
    """Rules that a group could have, and the one of them that is previewed."""

    rules: list[RuleIn]
    position: int = Field(ge=0, le=MAX_INT64)


async def console_preview(context: RequestContext[None, PreviewIn]) -> Response:
    body = context.body
    if body.position >= len(body.rules):
        raise InvalidRequest(ErrorDetail(("body", "position"), _NO_RULE, "no_rule"))
    wanted = [rule.to_rule() for rule in body.rules]
    settings.check(wanted)
    computations, group = context.services.computations, context.path["group_id"]
    found = await suggestions.preview(
        context.database, computations, group, wanted, wanted[body.position]
    )
    return Response(encode(found))
