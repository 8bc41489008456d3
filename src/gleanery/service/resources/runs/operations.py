"""The operations of runs, with their examples."""

from __future__ import annotations

from typing import Any

from gleanery.service.api.examples import (
    GROUP_ID,
    IMPLICIT_RUN_ID,
    IN_GROUP,
    JOB_ID,
    LAST_PAGE,
    REVIEW_DATE,
    RUN_ID,
    SCRAPE_DATE,
)
from gleanery.service.api.operation import Example, Operation, Resource
from gleanery.service.resources.run_records.models import RunOut
from gleanery.service.resources.runs import console, handlers
from gleanery.service.resources.runs.models import (
    DecisionIn,
    FinishIn,
    RunIn,
    RunPage,
    RunsQuery,
)

_IN_RUN = {**IN_GROUP, "run_id": RUN_ID}
_COUNTS = ("created", "updated", "unchanged", "rejected", "missing", "removed")
_STARTED: dict[str, Any] = {
    "run_id": RUN_ID,
    "group_id": GROUP_ID,
    "job_id": JOB_ID,
    "status": "running",
    "start_date": REVIEW_DATE,
    "finish_date": None,
    "message": None,
    "labels": {"country": "DE"},
    "is_implicit": False,
    "counts": dict.fromkeys(_COUNTS, 0),
    "comparison": None,
    "removal": None,
    "removable": 0,
}
_FINISHED = _STARTED | {
    "status": "complete",
    "finish_date": REVIEW_DATE,
    "message": "0 of 214 pages had a product",
    "counts": {**_STARTED["counts"], "missing": 2},
    "comparison": "done",
    "removal": "held",
    "removable": 2,
}
_IMPLICIT = _STARTED | {
    "run_id": IMPLICIT_RUN_ID,
    "start_date": SCRAPE_DATE,
    "labels": {},
    "is_implicit": True,
    "counts": {**_STARTED["counts"], "created": 2},
}

_OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/runs/{group_id}",
        handler=handlers.start_run,
        title="Start a run",
        description="Starts a run of a job. Send its outputs with `run_id`, from as many workers "
        "as you like, and finish it. A new group and a new job are created.",
        scopes=("outputs:write",),
        creates_resource=True,
        accepts_idempotency_key=True,
        body=RunIn,
        response=RunOut,
        example=Example(
            path=IN_GROUP,
            body={"job_id": JOB_ID, "labels": {"country": "DE"}},
            response=_STARTED,
        ),
    ),
    Operation(
        method="GET",
        path="/v1/runs/{group_id}",
        handler=handlers.get_runs,
        title="Get runs",
        description="The runs of a group or job, newest first. For the next page, pass "
        "`next_cursor` as `cursor`, or follow `next_url`. Both are null on the last page, and only "
        "there. With a `status`, a page can have few runs and still a next page. A job keeps its "
        "last 1,000 runs.",
        scopes=("outputs:read",),
        query=RunsQuery,
        response=RunPage,
        example=Example(
            path=IN_GROUP,
            query={"job_id": JOB_ID},
            response={"metadata": LAST_PAGE, "runs": [_FINISHED, _IMPLICIT]},
        ),
    ),
    Operation(
        method="GET",
        path="/v1/runs/{group_id}/{run_id}",
        handler=handlers.get_run,
        title="Get a run",
        description="One run with its counts.",
        scopes=("outputs:read",),
        response=RunOut,
        example=Example(path=_IN_RUN, response=_FINISHED),
    ),
    Operation(
        method="POST",
        path="/v1/runs/{group_id}/{run_id}/finish",
        handler=handlers.finish_run,
        title="Finish a run",
        description="Ends a run. A complete run is compared with the outputs of its job: those "
        "that no run has sent since its start are missing. If the job has at most 10,000 outputs, "
        "the response has the final counts. Otherwise `comparison` is `pending`, and the service "
        "goes on. To repeat the request is harmless; another status gets 409.",
        scopes=("outputs:write",),
        body=FinishIn,
        response=RunOut,
        extra_errors=(409,),
        example=Example(
            path=_IN_RUN,
            body={"status": "complete", "message": _FINISHED["message"]},
            response=_FINISHED,
        ),
    ),
    Operation(
        method="POST",
        path="/v1/runs/{group_id}/{run_id}/removal",
        handler=handlers.decide_removal,
        title="Decide about a removal",
        description="Removes the outputs that were missing in several complete runs in a row, or "
        "keeps them. Only for a run whose `removal` is `held`.",
        scopes=("reviews:write",),
        body=DecisionIn,
        response=RunOut,
        extra_errors=(409,),
        example=Example(
            path=_IN_RUN, body={"decision": "keep"}, response=_FINISHED | {"removal": "kept"}
        ),
    ),
)

_CONSOLE_OPERATIONS = (
    Operation(
        method="GET",
        path="/console/api/inbox/removals",
        handler=console.console_inbox_removals,
        title="Held removals",
        description="Removals of missing outputs that wait for a decision, newest first.",
        scopes=("outputs:read",),
        needs_session=True,
        query=console.HeldRemovalsQuery,
        response=console.HeldRemovals,
    ),
    Operation(
        method="GET",
        path="/console/api/runs/{group_id}",
        handler=console.console_runs,
        title="Runs of a group",
        description="The runs of a group, newest first, and what the runs of their jobs are like.",
        scopes=("outputs:read",),
        needs_session=True,
        query=console.ConsoleRunsQuery,
        response=console.ListedRuns,
    ),
    Operation(
        method="GET",
        path="/console/api/runs/{group_id}/{run_id}",
        handler=console.console_run,
        title="Run",
        description="One run, with the numbers that a decision about its removal needs.",
        scopes=("outputs:read",),
        needs_session=True,
        response=console.ConsoleRun,
    ),
    Operation(
        method="GET",
        path="/console/api/runs/{group_id}/{run_id}/removal",
        handler=console.console_removal,
        title="Outputs of a removal",
        description="The outputs that a held removal would remove.",
        scopes=("outputs:read",),
        needs_session=True,
        query=console.RemovalQuery,
        response=console.RemovableOutputs,
    ),
)

RESOURCE = Resource(
    tags={"runs": "Runs of jobs, with what they stored and what they did not send any more."},
    operations=_OPERATIONS,
    console_operations=_CONSOLE_OPERATIONS,
)
