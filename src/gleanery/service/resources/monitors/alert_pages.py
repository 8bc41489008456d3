"""Alerts as clients and people see them: a page, one alert, and those of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gleanery.service.foundation.errors import NotFound, no_alert
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.monitors import messages
from gleanery.service.resources.monitors.models import (
    AlertOut,
    CloseReason,
    FactsOut,
    State,
    rule_out,
)
from gleanery.service.resources.monitors.rules import Kind, Rule
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, Row, Sql, indexed

_COLUMNS = """
id, alert_id, (SELECT name FROM groups WHERE organization_id = $1 AND groups.id = alerts.group_id),
(SELECT name FROM jobs WHERE organization_id = $1 AND jobs.id = alerts.job_id),
kind, labels, rule, facts, run_id, last_run_id, run_count, opened_at, closed_at, close_reason,
acknowledged_at, acknowledged_by, muted_until
"""
BY_ID = f"SELECT {_COLUMNS} FROM alerts WHERE organization_id = $1 AND id = $2"
_FIND = f"SELECT {_COLUMNS} FROM alerts WHERE organization_id = $1 AND alert_id = $2"
_OF_RUN = indexed(
    f"""
SELECT {_COLUMNS} FROM {{alerts}} WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
    AND (run_id = $4 OR last_run_id = $4)
ORDER BY id DESC LIMIT 20
""",
    alerts="alerts_of_job",
)
_PAGE = f"""
SELECT {_COLUMNS} FROM {{alerts}} WHERE organization_id = $1 AND id < $2 {{conditions}}
ORDER BY id DESC LIMIT $3
"""
_JOB = "SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $2 AND name = $3"
_decode_facts = msgspec.json.Decoder(FactsOut).decode


class _AlertRow(NamedTuple):
    id: int
    alert_id: str
    group: str
    job: str
    kind: Kind
    labels: str
    rule: str
    facts: str
    run_id: str | None
    last_run_id: str | None
    run_count: int
    opened_at: int
    closed_at: int | None
    close_reason: CloseReason | None
    acknowledged_at: int | None
    acknowledged_by: str | None
    muted_until: int | None


def to_alert(row: Row) -> AlertOut:
    alert = _AlertRow(*row)
    rule, facts = Rule(**json.loads(alert.rule)), _decode_facts(alert.facts)
    return AlertOut(
        alert_id=alert.alert_id,
        group_id=alert.group,
        job_id=alert.job,
        kind=alert.kind,
        state="open" if alert.closed_at is None else "closed",
        message=messages.describe(alert.kind, alert.job, rule, facts),
        rule=rule_out(rule),
        labels=json.loads(alert.labels or "{}"),
        facts=facts,
        run_id=alert.run_id,
        last_run_id=alert.last_run_id,
        runs=alert.run_count,
        open_date=timestamps.render_microseconds(alert.opened_at),
        close_date=_date(alert.closed_at),
        close_reason=alert.close_reason,
        acknowledged_date=_date(alert.acknowledged_at),
        acknowledged_by=alert.acknowledged_by,
        muted_until=_date(alert.muted_until),
    )


def _date(time: int | None) -> str | None:
    return None if time is None else timestamps.render_microseconds(time)


class Alerts(NamedTuple):
    """A page of alerts, and the cursor of the next page."""

    alerts: list[AlertOut]
    next_cursor: int | None


async def read_page(
    database: Database,
    state: State | None,
    group: str | None,
    job: str | None,
    cursor: int,
    limit: int,
) -> Alerts:
    """Read a page, newest first. Raise NotFound for an unknown group or job."""
    values: list[int] = []
    if group is not None:
        try:
            values.append(await group_lock.require_group(database, group))
        except NotFound:
            msg = "There is no group with this group_id"
            raise NotFound(("query", "group_id"), msg) from None
        if job is not None:
            found = await database.read(_JOB, database.organization_id, *values, job)
            if not found:
                raise NotFound(("query", "job_id"), "This group has no job with this job_id")
            values.append(found[0][0])
    sql = page_statement(state, len(values))
    rows = await database.read(sql, database.organization_id, cursor, limit + 1, *values)
    next_cursor = rows[limit - 1][0] if len(rows) > limit else None
    return Alerts([to_alert(row) for row in rows[:limit]], next_cursor)


def page_statement(state: State | None, filters: int) -> Sql:
    """Return the statement of a page of all alerts, or of a group, or of a job of it."""
    conditions = ["AND group_id = $4", "AND job_id = $5"][:filters]
    if state is not None:
        conditions.append(f"AND closed_at IS {'' if state == 'open' else 'NOT '}NULL")
    index = _OPEN_INDEXES[filters] if state == "open" else _INDEXES[filters]
    return indexed(_PAGE.replace("{conditions}", " ".join(conditions)), alerts=index)


_INDEXES = ("alerts_in_order", "alerts_of_group", "alerts_of_job")
_OPEN_INDEXES = ("alerts_open", "alerts_open_of_group", "alerts_open_of_job")


async def read_one(database: Database, alert_id: str) -> AlertOut:
    """Read one alert. Raise NotFound."""
    rows = await database.read(_FIND, database.organization_id, alert_id)
    if not rows:
        raise no_alert()
    return to_alert(rows[0])


async def read_some(database: Database, ids: Iterable[int]) -> list[tuple[int, AlertOut]]:
    """Return those of these alerts that exist, each with its number."""
    key = database.organization_id
    return [(row[0], to_alert(row)) for id_ in ids for row in await database.read(BY_ID, key, id_)]


async def read_of_run(
    database: Database, group_id: int, job_id: int, run_id: str
) -> list[AlertOut]:
    """Return the alerts that this run of the job has opened, or was the last one with."""
    key = (database.organization_id, group_id, job_id, run_id)
    return [to_alert(row) for row in await database.read(_OF_RUN, *key)]
