"""Reads runs for clients: a page of a group or job, newest first, and one run by its ``run_id``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from gleanery.service.foundation.errors import no_run
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.run_records.rows import Status
from gleanery.service.resources.runs.models import (
    Comparison,
    Removal,
    RunCounts,
    RunOut,
    RunsQuery,
)
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, Row, indexed

# A run that was silent for too long has ended, although its row may not say so yet.
_STATUS = """
CASE WHEN status <> 'running' OR ends_at > $2 THEN status
    WHEN is_implicit THEN 'unknown' ELSE 'abandoned' END
"""
_COLUMNS = f"""
id, run_id, (SELECT name FROM jobs WHERE organization_id = $1 AND jobs.id = runs.job_id),
{_STATUS} AS shown_status, started_at,
CASE WHEN status = 'running' AND ends_at <= $2 THEN seen_at ELSE finished_at END,
message, labels, is_implicit, created_count, updated_count, unchanged_count, rejected_count,
missing_count, removed_count, comparison, removal, removal_count
"""
ONE = f"""
SELECT {_COLUMNS} FROM runs WHERE organization_id = $1 AND run_id = $4 AND +group_id = $3
"""
_OF_GROUP = indexed(
    f"""
SELECT {_COLUMNS} FROM {{runs}} WHERE organization_id = $1 AND group_id = $3 AND id < $4
ORDER BY id DESC LIMIT $5
""",
    runs="runs_of_group",
)
_OF_JOB = indexed(
    f"""
SELECT {_COLUMNS} FROM {{runs}} WHERE organization_id = $1 AND group_id = $3 AND job_id = (
    SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $3 AND name = $6)
    AND id < $4
ORDER BY id DESC LIMIT $5
""",
    runs="runs_of_job",
)
_LOOKED_AT = 2000  # runs that a page with a filter of the status looks at


class _RunRow(NamedTuple):
    id: int
    run_id: str
    job: str
    status: Status
    started_at: int
    finished_at: int | None
    message: str | None
    labels: str
    is_implicit: bool
    created: int
    updated: int
    unchanged: int
    rejected: int
    missing: int
    removed: int
    comparison: Comparison | None
    removal: Removal | None
    removal_count: int


class Runs(NamedTuple):
    """A page of runs, and the cursor of the next page."""

    runs: Sequence[RunOut]
    next_cursor: int | None


async def read_page(
    database: Database, group: str, query: RunsQuery, cursor: int, now: int
) -> Runs:
    """Read a page. With a filter of the status, it may have few runs and still a next cursor."""
    group_id = await group_lock.require_group(database, group)
    count = query.limit if query.status is None else max(query.limit, _LOOKED_AT)
    values = (database.organization_id, now, group_id, cursor, count + 1)
    if query.job_id is None:
        rows = await database.read(_OF_GROUP, *values)
    else:
        rows = await database.read(_OF_JOB, *values, query.job_id)
    looked_at = [_RunRow(*row) for row in rows[:count]]
    found = [row for row in looked_at if query.status in (None, row.status)]
    has_more = len(rows) > count or len(found) > query.limit
    found = found[: query.limit]
    last = found[-1] if len(found) == query.limit else looked_at[-1] if looked_at else None
    next_cursor = last.id if has_more and last is not None else None
    return Runs([_to_response(group, row) for row in found], next_cursor)


async def read_run(database: Database, group: str, run_id: str, now: int) -> RunOut:
    """Read one run. Raise NotFound."""
    group_id = await group_lock.require_group(database, group)
    rows = await database.read(ONE, database.organization_id, now, group_id, run_id)
    return to_response(group, rows)


def to_response(group: str, rows: Sequence[Row]) -> RunOut:
    """Return the run of this row; raise NotFound if there is none."""
    if not rows:
        raise no_run()
    return _to_response(group, _RunRow(*rows[0]))


def _to_response(group: str, row: _RunRow) -> RunOut:
    return RunOut(
        run_id=row.run_id,
        group_id=group,
        job_id=row.job,
        status=row.status,
        start_date=timestamps.render_microseconds(row.started_at),
        finish_date=None
        if row.finished_at is None
        else timestamps.render_microseconds(row.finished_at),
        message=row.message,
        labels=json.loads(row.labels),
        is_implicit=bool(row.is_implicit),
        counts=RunCounts(
            created=row.created,
            updated=row.updated,
            unchanged=row.unchanged,
            rejected=row.rejected,
            missing=row.missing,
            removed=row.removed,
        ),
        comparison=row.comparison,
        removal=row.removal,
        removable=row.removal_count,
    )
