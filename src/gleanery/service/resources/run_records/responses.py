"""A run as clients see it, and the event ``run.finished``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from gleanery.service.foundation.errors import no_run
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.events import storing
from gleanery.service.resources.run_records.models import Comparison, Removal, RunCounts, RunOut
from gleanery.service.resources.run_records.rows import Run, Status
from gleanery.service.storage.database import Row
from gleanery.service.storage.group_lock import LockedGroup

# A run that was silent for too long has ended, although its row may not say so yet.
_STATUS = """
CASE WHEN status <> 'running' OR ends_at > $2 THEN status
    WHEN is_implicit THEN 'unknown' ELSE 'abandoned' END
"""
COLUMNS = f"""
id, run_id, (SELECT name FROM jobs WHERE organization_id = $1 AND jobs.id = runs.job_id),
{_STATUS} AS shown_status, started_at,
CASE WHEN status = 'running' AND ends_at <= $2 THEN seen_at ELSE finished_at END,
message, labels, is_implicit, created_count, updated_count, unchanged_count, rejected_count,
missing_count, removed_count, comparison, removal, removal_count, has_alert
"""
ONE = f"""
SELECT {COLUMNS} FROM runs WHERE organization_id = $1 AND run_id = $4 AND +group_id = $3
"""
_MAX_EVENT_BYTES = 18_000  # receivers of webhooks expect less than 20 kB
_SHORT = 500  # characters of the message, in an event that would be larger


class RunRow(NamedTuple):
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
    has_alert: bool


def to_response(group: str, rows: Sequence[Row]) -> RunOut:
    """Return the run of this row; raise NotFound if there is none."""
    if not rows:
        raise no_run()
    return render(group, RunRow(*rows[0]))


def render(group: str, row: RunRow) -> RunOut:
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


async def store_event(locked: LockedGroup, run: Run) -> None:
    """Store ``run.finished`` for the webhooks that want it."""
    wanting = await storing.wanting(locked.transaction, "run.finished", locked.name)
    if wanting:
        key = (locked.organization_id, locked.now, locked.group_id, run.row.run_id)
        data = to_response(locked.name, await locked.transaction.fetch(ONE, *key))
        await storing.store(
            locked.transaction, wanting, "run.finished", _shortened(data), locked.now
        )


def _shortened(run: RunOut) -> RunOut:
    """Return the run with less text, if the event would be too large."""
    if len(encode(run)) > _MAX_EVENT_BYTES:
        message = run["message"]
        run["labels"] = {}
        run["message"] = None if message is None else f"{message[:_SHORT]}…"
    return run
