"""Reads runs for clients: a page of a group or job, newest first, and one run by its ``run_id``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gleanery.service.resources.run_records.models import RunOut
from gleanery.service.resources.run_records.responses import (
    COLUMNS,
    ONE,
    RunRow,
    render,
    to_response,
)
from gleanery.service.resources.runs.models import RunsQuery
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, indexed

_OF_GROUP = indexed(
    f"""
SELECT {COLUMNS} FROM {{runs}} WHERE organization_id = $1 AND group_id = $3 AND id < $4
ORDER BY id DESC LIMIT $5
""",
    runs="runs_of_group",
)
_OF_JOB = indexed(
    f"""
SELECT {COLUMNS} FROM {{runs}} WHERE organization_id = $1 AND group_id = $3 AND job_id = (
    SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $3 AND name = $6)
    AND id < $4
ORDER BY id DESC LIMIT $5
""",
    runs="runs_of_job",
)
_LOOKED_AT = 2000  # runs that a page with a filter of the status looks at


class Runs(NamedTuple):
    """A page of runs, and the cursor of the next page."""

    runs: Sequence[RunOut]
    next_cursor: int | None
    with_alert: frozenset[str]
    """Those that break a rule of the monitors."""


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
    looked_at = [RunRow(*row) for row in rows[:count]]
    found = [row for row in looked_at if query.status in (None, row.status)]
    has_more = len(rows) > count or len(found) > query.limit
    found = found[: query.limit]
    last = found[-1] if len(found) == query.limit else looked_at[-1] if looked_at else None
    next_cursor = last.id if has_more and last is not None else None
    with_alert = frozenset(row.run_id for row in found if row.has_alert)
    return Runs([render(group, row) for row in found], next_cursor, with_alert)


async def read_run(database: Database, group: str, run_id: str, now: int) -> RunOut:
    """Read one run. Raise NotFound."""
    group_id = await group_lock.require_group(database, group)
    rows = await database.read(ONE, database.organization_id, now, group_id, run_id)
    return to_response(group, rows)
