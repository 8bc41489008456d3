"""The operations of rules and alerts, with their examples."""

from __future__ import annotations

from typing import Any

from gleanery.service.api.examples import GROUP_ID, IN_GROUP, JOB_ID, LAST_PAGE, REVIEW_DATE, RUN_ID
from gleanery.service.api.operation import Example, Operation, Resource
from gleanery.service.resources.monitors import console, handlers
from gleanery.service.resources.monitors.models import (
    AlertIn,
    AlertOut,
    AlertPage,
    AlertsQuery,
    RuleIn,
    RuleOut,
    RulePreview,
    SuggestedRule,
)

_RULE: dict[str, Any] = {
    "kind": "few_outputs",
    "job_id": None,
    "path": None,
    "threshold": 0.5,
    "hours": None,
    "minimum": 5,
    "enabled": True,
}
_OVERDUE = _RULE | {"kind": "no_run", "threshold": 2.0, "minimum": None}
_SENT = [{"kind": "no_run"}, {"kind": "few_outputs", "minimum": 5}]
_STORED = [_OVERDUE, _RULE]
_ALERT_ID = "7c0de5a1b2f34c56a7d8e9f0a1b2c3d4"
_IN_ALERT = {"alert_id": _ALERT_ID}
_ALERT = {
    "alert_id": _ALERT_ID,
    "group_id": GROUP_ID,
    "job_id": JOB_ID,
    "kind": "few_outputs",
    "state": "open",
    "message": "example-shop stored 0 outputs; at least 5 are expected.",
    "rule": _RULE,
    "labels": {"country": "DE"},
    "facts": {"value": 0.0, "usual": None, "fields": [], "field_count": 0},
    "run_id": RUN_ID,
    "last_run_id": RUN_ID,
    "runs": 1,
    "open_date": REVIEW_DATE,
    "close_date": None,
    "close_reason": None,
    "acknowledged_date": None,
    "acknowledged_by": None,
    "muted_until": None,
}
_SUGGESTED = [
    _RULE
    | {"kind": "failed_run", "threshold": 1.0, "minimum": None}
    | {"reason": "A run that fails may store nothing."}
    | {"preview": {"runs": 1, "alerts": 0}},
    _RULE
    | {"kind": "held_removal", "threshold": 0.0, "minimum": None}
    | {"reason": "A removal that is held waits for a person."}
    | {"preview": {"runs": 1, "alerts": 1}},
]

_RULE_OPERATIONS = (
    Operation(
        method="PUT",
        path="/v1/monitors/{group_id}",
        handler=handlers.set_monitors,
        title="Set the rules of a group",
        description="Replaces the rules of a group. A run of its jobs is judged by them when it "
        "ends. A rule for a job or a field replaces the same rule for all. Alerts of rules that "
        "are gone close. At most 200 rules.",
        scopes=("monitors:write",),
        body=list[RuleIn],
        response=list[RuleOut],
        example=Example(path=IN_GROUP, body=_SENT, response=_STORED),
    ),
    Operation(
        method="GET",
        path="/v1/monitors/{group_id}",
        handler=handlers.get_monitors,
        title="Get the rules of a group",
        description="The rules of a group. A group for which nobody has set any has three: no run "
        "for twice the usual interval, half of the usual outputs or less, and a fill rate that "
        "drops by 20 percentage points. What is usual is the median of the last ten complete runs "
        "with the same labels, without runs that had an alert; at least four are needed.",
        scopes=("monitors:read",),
        response=list[RuleOut],
        example=Example(path=IN_GROUP, response=_STORED),
    ),
    Operation(
        method="GET",
        path="/v1/monitors/{group_id}/suggested",
        handler=handlers.get_suggested_monitors,
        title="Get suggested rules",
        description="Rules that fit the past runs and that the group does not have, with what they "
        "would have done in the last 30 runs of each of the jobs that ran last. Nothing is "
        "switched on: send those that you want with the present ones.",
        scopes=("monitors:read",),
        response=list[SuggestedRule],
        example=Example(path=IN_GROUP, response=_SUGGESTED, is_excerpt=True),
    ),
)
_ALERT_OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/alerts",
        handler=handlers.get_alerts,
        title="Get alerts",
        description="Alerts, newest first. A rule has at most one open alert for a job. It closes "
        "by itself when its condition is not true any more.",
        scopes=("monitors:read",),
        query=AlertsQuery,
        response=AlertPage,
        extra_errors=(404,),
        example=Example(
            query={"state": "open", "group_id": GROUP_ID},
            response={"metadata": LAST_PAGE, "alerts": [_ALERT]},
        ),
    ),
    Operation(
        method="GET",
        path="/v1/alerts/{alert_id}",
        handler=handlers.get_alert,
        title="Get an alert",
        description="One alert.",
        scopes=("monitors:read",),
        response=AlertOut,
        example=Example(path=_IN_ALERT, response=_ALERT),
    ),
    Operation(
        method="POST",
        path="/v1/alerts/{alert_id}",
        handler=handlers.set_alert,
        title="Change an alert",
        description="Acknowledges an alert, mutes its messages, or says that the present level is "
        "normal now.",
        scopes=("monitors:write",),
        body=AlertIn,
        response=AlertOut,
        extra_errors=(409,),
        example=Example(
            path=_IN_ALERT,
            body={"muted_until": "2026-03-09T00:00:00Z"},
            response=_ALERT | {"muted_until": "2026-03-09T00:00:00Z"},
        ),
    ),
)

_CONSOLE_OPERATIONS = (
    Operation(
        method="GET",
        path="/console/api/inbox/alerts",
        handler=console.console_inbox_alerts,
        title="Open alerts",
        description="Open alerts with the last runs of their jobs; acknowledged ones come last.",
        scopes=("monitors:read",),
        needs_session=True,
        query=console.InboxAlertsQuery,
        response=console.InboxAlerts,
    ),
    Operation(
        method="GET",
        path="/console/api/monitors/{group_id}",
        handler=console.console_monitors,
        title="Rules of a group",
        description="The rules of a group, and the thresholds that rules can have.",
        scopes=("monitors:read",),
        needs_session=True,
        response=console.ConsoleMonitors,
    ),
    Operation(
        method="POST",
        path="/console/api/monitors/{group_id}/preview",
        handler=console.console_preview,
        title="Preview a rule",
        description="What a rule would have done in the past runs. Nothing is stored.",
        scopes=("monitors:read",),
        needs_session=True,
        body=console.PreviewIn,
        response=RulePreview,
    ),
)

RULES = Resource(
    tags={"monitors": "Rules about the runs of jobs."},
    operations=_RULE_OPERATIONS,
    console_operations=_CONSOLE_OPERATIONS,
)
ALERTS = Resource(
    tags={"alerts": "What the rules have found."},
    operations=_ALERT_OPERATIONS,
)
