"""The console's part of runs: runs next to their neighbours, and removals that are held.

A reader of a list of runs looks for one that differs from the others. So a run comes with two
numbers of its job: the largest run, which is the scale of a chart, and the usual number of outputs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median_low
from typing import NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.api.context import AnyContext, RequestContext
from gleanery.service.api.response import Response
from gleanery.service.console.values import Node
from gleanery.service.foundation.errors import no_run
from gleanery.service.foundation.field_types import MAX_INT64, NonEmptyText, WholeNumber
from gleanery.service.foundation.models import Query
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.access.console_login import grant_of
from gleanery.service.resources.monitors import alert_pages
from gleanery.service.resources.monitors.models import AlertOut
from gleanery.service.resources.outputs import console_rows
from gleanery.service.resources.outputs.console_rows import GridColumn, GridVersion
from gleanery.service.resources.run_records.models import RunOut
from gleanery.service.resources.run_records.rows import Status
from gleanery.service.resources.runs import reading
from gleanery.service.resources.runs.changing import LOOKED_AT, MISSING, MissingOutput
from gleanery.service.resources.runs.models import RunsQuery
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import Database, indexed

_RUNS = 30
_REMOVALS = 25
_OUTPUTS = 10
_MAX_BYTES = 4 * 1024**2  # of the items of a page; a browser gets much less
_NEIGHBOURS = 50  # newest runs of a job, which say what is usual
_MIN_USUAL = 3
_SENT = "created_count + updated_count + unchanged_count"
_NEIGHBOURS_OF_JOB = indexed(
    f"""
SELECT status, labels, {_SENT}, missing_count, rejected_count FROM {{runs}}
WHERE organization_id = $1 AND group_id = $2 AND job_id = (
    SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $2 AND name = $3)
ORDER BY id DESC LIMIT {_NEIGHBOURS}
""",
    runs="runs_of_job",
)
_RUN = """
SELECT job_id, started_at, removal, removal_until, has_alert, runs.output_count, jobs.output_count,
    (SELECT missing_after_runs FROM groups WHERE organization_id = $1 AND id = $2)
FROM runs JOIN jobs ON jobs.organization_id = runs.organization_id AND jobs.id = runs.job_id
WHERE runs.organization_id = $1 AND runs.run_id = $3 AND +runs.group_id = $2
"""
# Names are subqueries, because a planner could reverse a join and sort all runs.
_HELD = indexed(
    """
SELECT id, run_id,
    (SELECT name FROM groups WHERE organization_id = $1 AND groups.id = runs.group_id),
    (SELECT display_name FROM groups WHERE organization_id = $1 AND groups.id = runs.group_id),
    (SELECT name FROM jobs WHERE organization_id = $1 AND jobs.id = runs.job_id),
    finished_at, removal_count, output_count
FROM {runs} WHERE organization_id = $1 AND removal = 'held' AND id < $2
ORDER BY id DESC LIMIT $3
""",
    runs="runs_held",
)
_ITEM = """
SELECT seq, created_seq, version_seq, identity, item FROM outputs
WHERE organization_id = $1 AND identity = $2 AND seq = $3
"""


# --- runs of a group ----------------------------------------------------------------------------


class ConsoleRunsQuery(Query):
    """Filters and page of the runs of a group."""

    job_id: NonEmptyText | None = Field(default=None)
    status: Status | None = Field(default=None)
    before: WholeNumber = Field(
        default=MAX_INT64, ge=0, le=MAX_INT64, description="`next` of a page."
    )


class ListedRun(RunOut):
    """A run, and what the other runs of its job are like."""

    scale: int
    """Outputs of the largest among the newest runs of its job: sent, missing and rejected.

    A run can have more rejected elements than that.
    """
    usual: int | None
    """Outputs that a run of the job with the same labels usually sends; null if not known."""
    has_alert: bool
    """It breaks a rule of the monitors."""


class ListedRuns(TypedDict):
    """Runs of a group, newest first."""

    runs: list[ListedRun]
    next: int | None


async def console_runs(context: RequestContext[ConsoleRunsQuery, None]) -> Response:
    query, database = context.query, context.database
    group, now = context.path["group_id"], context.services.clock()
    wanted = RunsQuery.model_construct(  # its values are checked already
        job_id=query.job_id, status=query.status, limit=_RUNS
    )
    page = await reading.read_page(database, group, wanted, query.before, now)
    listed = await _with_neighbours(database, group, page.runs, page.with_alert)
    return Response(encode(ListedRuns(runs=listed, next=page.next_cursor)))


class _Neighbours(NamedTuple):
    """What the newest runs of a job are like."""

    scale: int
    usual: Mapping[str, int]
    """Usual number of outputs by the labels of a run, as text."""


class _NeighbourRow(NamedTuple):
    status: str
    labels: str
    sent: int
    missing: int
    rejected: int


async def _with_neighbours(
    database: Database, group: str, runs: Sequence[RunOut], with_alert: Collection[str]
) -> list[ListedRun]:
    if not runs:
        return []
    group_id = await group_lock.require_group(database, group)
    jobs = {
        job: await _read_neighbours(database, group_id, job)
        for job in {run["job_id"]: None for run in runs}
    }
    return [_to_listed(run, jobs[run["job_id"]], run["run_id"] in with_alert) for run in runs]


async def _read_neighbours(database: Database, group_id: int, job: str) -> _Neighbours:
    found = await database.read(_NEIGHBOURS_OF_JOB, database.organization_id, group_id, job)
    rows = [_NeighbourRow(*row) for row in found]
    sent: dict[str, dict[str, list[int]]] = {}
    for row in rows:
        sent.setdefault(row.labels, {}).setdefault(row.status, []).append(row.sent)
    usual = {labels: _usual(by_status) for labels, by_status in sent.items()}
    known = {labels: count for labels, count in usual.items() if count is not None}
    return _Neighbours(_scale(rows), known)


def _scale(rows: Sequence[_NeighbourRow]) -> int:
    """Return the largest total. Rejected elements, which may be sent often, at most double it."""
    largest = max((row.sent + row.missing for row in rows), default=0)
    most_rejected = largest or max((row.rejected for row in rows), default=0)
    return max(
        (row.sent + row.missing + min(row.rejected, most_rejected) for row in rows), default=0
    )


def _usual(sent: Mapping[str, list[int]]) -> int | None:
    """Return the median of complete runs. A job may have none: nobody starts and finishes them."""
    complete, unknown = sent.get("complete", []), sent.get("unknown", [])
    counts = complete if len(complete) >= _MIN_USUAL else [*complete, *unknown]
    return median_low(counts) if len(counts) >= _MIN_USUAL else None


def _to_listed(run: RunOut, neighbours: _Neighbours, has_alert: bool) -> ListedRun:
    counts = run["counts"]
    sent = counts["created"] + counts["updated"] + counts["unchanged"]
    labels = json.dumps(run["labels"], sort_keys=True)  # as it is stored
    return ListedRun(
        **run,
        scale=max(neighbours.scale, sent + counts["missing"]),
        usual=neighbours.usual.get(labels),
        has_alert=has_alert,
    )


# --- one run ------------------------------------------------------------------------------------


class ConsoleRun(TypedDict):
    """A run with everything about its removal."""

    run: ListedRun
    outputs: int
    """Outputs of its job, now."""
    compared: int
    """Outputs that its job had when the run ended; 0 if it was not compared with them."""
    after_runs: int | None
    """Complete runs in a row after which a missing output is removed; null: never."""
    alerts: list[AlertOut]
    """Those that it has opened, or was the last run with; none without the scope
    ``monitors:read``."""


class _RunRow(NamedTuple):
    job_id: int
    started_at: int
    removal: str | None
    removal_until: int
    has_alert: bool
    compared: int
    outputs: int
    after_runs: int | None


async def console_run(context: RequestContext[None, None]) -> Response:
    database, group = context.database, context.path["group_id"]
    found = await _read_run(context)
    now = context.services.clock()
    run = await reading.read_run(database, group, context.path["run_id"], now)
    with_alert = {run["run_id"]} if found.has_alert else ()
    [listed] = await _with_neighbours(database, group, [run], with_alert)
    body = ConsoleRun(
        run=listed,
        outputs=found.outputs,
        compared=found.compared,
        after_runs=found.after_runs,
        alerts=await _read_alerts(context, found.job_id),
    )
    return Response(encode(body))


async def _read_alerts(context: AnyContext, job_id: int) -> list[AlertOut]:
    if "monitors:read" not in grant_of(context).scopes:
        return []
    database = context.database
    group_id = await group_lock.require_group(database, context.path["group_id"])
    return await alert_pages.read_of_run(database, group_id, job_id, context.path["run_id"])


async def _read_run(context: AnyContext) -> _RunRow:
    database = context.database
    group_id = await group_lock.require_group(database, context.path["group_id"])
    key = (database.organization_id, group_id, context.path["run_id"])
    rows = await database.read(_RUN, *key)
    if not rows:
        raise no_run()
    return _RunRow(*rows[0])


# --- outputs that a removal is about ------------------------------------------------------------


class RemovalQuery(Query):
    """Page of the outputs that a removal is about."""

    after: WholeNumber = Field(default=0, ge=0, le=MAX_INT64, description="`next` of a page.")


class RemovableOutput(TypedDict):
    """An output that a held removal would remove. Times are in microseconds."""

    output_id: str
    source_url: Node
    cells: list[Node | None]
    """The value of each column; null if the output does not have the field."""
    last_sent_at: int


class RemovableOutputs(TypedDict):
    """Outputs in the order of their last changes. A page may have none, and still a next one."""

    outputs: list[RemovableOutput]
    columns: list[GridColumn]
    """Columns that fit these outputs."""
    next: int | None


async def console_removal(context: RequestContext[RemovalQuery, None]) -> Response:
    database, after = context.database, context.query.after
    run = await _read_run(context)
    if run.removal != "held":
        return Response(encode(RemovableOutputs(outputs=[], columns=[], next=None)))
    group_id = await group_lock.require_group(database, context.path["group_id"])
    key = (database.organization_id, group_id, run.job_id)
    found = await database.read(MISSING, *key, after, LOOKED_AT)
    rows = [MissingOutput(*row) for row in found]
    wanted = [row for row in rows if row.is_removable(run.removal_until, run.started_at)]
    count = paging.count_fitting([row.size for row in wanted[:_OUTPUTS]], _MAX_BYTES)
    chosen = wanted[:count]
    next_seq = None
    if count < len(wanted):
        next_seq = chosen[-1].seq
    elif len(rows) == LOOKED_AT:
        next_seq = rows[-1].seq
    body = await _render(context, chosen, next_seq)
    return Response(encode(body))


async def _render(
    context: AnyContext, chosen: Iterable[MissingOutput], next_seq: int | None
) -> RemovableOutputs:
    """Read the items. One that has changed since is left out: it was sent again."""
    database = context.database
    versions: list[GridVersion] = []
    last_sent: dict[int, int] = {}
    for row in chosen:
        key = (database.organization_id, row.identity, row.seq)
        versions += [GridVersion(*found) for found in await database.read_large(_ITEM, *key)]
        last_sent[row.seq] = row.last_scraped_at
    run = context.services.computations.run
    columns, rows = await run(context.organization_id, console_rows.render_usual, versions)
    outputs = [
        RemovableOutput(
            output_id=row["output_id"],
            source_url=row["source_url"],
            cells=row["cells"],
            last_sent_at=last_sent[row["cursor"]],
        )
        for row in rows
    ]
    return RemovableOutputs(outputs=outputs, columns=columns, next=next_seq)


# --- removals that are held ---------------------------------------------------------------------


class HeldRemovalsQuery(Query):
    """Page of the removals that are held."""

    before: WholeNumber = Field(
        default=MAX_INT64, ge=0, le=MAX_INT64, description="`next` of a page."
    )


class HeldRemoval(TypedDict):
    """A removal that waits for a decision. Times are in microseconds."""

    run_id: str
    group_id: str
    group_name: str | None
    job_id: str
    finished_at: int
    removable: int
    outputs: int
    """Outputs that the job had when the run ended."""


class HeldRemovals(TypedDict):
    """Removals that wait for a decision, newest first."""

    removals: list[HeldRemoval]
    next: int | None


class _HeldRow(NamedTuple):
    id: int
    run_id: str
    group: str
    group_name: str | None
    job: str
    finished_at: int
    removable: int
    outputs: int


async def console_inbox_removals(context: RequestContext[HeldRemovalsQuery, None]) -> Response:
    database = context.database
    key = (database.organization_id, context.query.before, _REMOVALS + 1)
    rows = [_HeldRow(*row) for row in await database.read(_HELD, *key)]
    shown = rows[:_REMOVALS]
    removals = [
        HeldRemoval(
            run_id=row.run_id,
            group_id=row.group,
            group_name=row.group_name,
            job_id=row.job,
            finished_at=row.finished_at,
            removable=row.removable,
            outputs=row.outputs,
        )
        for row in shown
    ]
    next_id = shown[-1].id if len(rows) > _REMOVALS else None
    return Response(encode(HeldRemovals(removals=removals, next=next_id)))
