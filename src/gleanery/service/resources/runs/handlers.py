"""The handlers of runs."""

from __future__ import annotations

from gleanery.service.api.context import RequestContext, api_url
from gleanery.service.api.response import Response
from gleanery.service.foundation.models import PageMetadata
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.runs import changing, reading
from gleanery.service.resources.runs.changing import RunWork
from gleanery.service.resources.runs.models import DecisionIn, FinishIn, RunIn, RunPage, RunsQuery


async def start_run(context: RequestContext[None, RunIn]) -> Response:
    run = await changing.start(
        context.database,
        context.path["group_id"],
        context.body,
        context.services.clock,
        context.idempotency_key,
    )
    return Response(encode(run))


async def get_runs(context: RequestContext[RunsQuery, None]) -> Response:
    group = context.path["group_id"]
    now = context.services.clock()
    found = await reading.read_page(context.database, group, context.query, context.cursor, now)
    metadata = PageMetadata(next_url=None, next_cursor=found.next_cursor)
    if found.next_cursor is not None:
        query = dict(context.next_page_parameters) | {"cursor": found.next_cursor}
        address = context.services.settings.address
        metadata["next_url"] = api_url(address, "runs", group, query=query)
    return Response(encode(RunPage(metadata=metadata, runs=[*found.runs])))


async def get_run(context: RequestContext[None, None]) -> Response:
    group, run_id = context.path["group_id"], context.path["run_id"]
    now = context.services.clock()
    return Response(encode(await reading.read_run(context.database, group, run_id, now)))


async def finish_run(context: RequestContext[None, FinishIn]) -> Response:
    run = await changing.finish(
        context.database,
        context.services[RunWork],
        context.path["group_id"],
        context.path["run_id"],
        context.body,
        context.services.clock,
    )
    return Response(encode(run))


async def decide_removal(context: RequestContext[None, DecisionIn]) -> Response:
    run = await changing.decide(
        context.database,
        context.services[RunWork],
        context.path["group_id"],
        context.path["run_id"],
        context.body,
        context.services.clock,
        context.actor,
    )
    return Response(encode(run))
