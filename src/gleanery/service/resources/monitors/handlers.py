"""The handlers of rules and alerts."""

from __future__ import annotations

from collections.abc import Sequence

from gleanery.service.api.context import AnyContext, RequestContext, api_url
from gleanery.service.api.response import Response
from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest
from gleanery.service.foundation.models import PageMetadata
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.monitors import alert_pages, alerts, settings, suggestions
from gleanery.service.resources.monitors.models import (
    AlertIn,
    AlertPage,
    AlertsQuery,
    RuleIn,
    rule_out,
)

_NEEDS_GROUP = "give the group of the job as well, as group_id"
_NOTHING = "give at least one of acknowledged, muted_until and normal"


async def get_monitors(context: AnyContext) -> Response:
    found = await settings.read(context.database, context.path["group_id"])
    return Response(encode([rule_out(rule) for rule in found]))


async def set_monitors(context: RequestContext[None, Sequence[RuleIn]]) -> Response:
    wanted = [rule.to_rule() for rule in context.body]
    stored = await settings.replace(
        context.database,
        context.path["group_id"],
        wanted,
        context.services.clock,
        context.actor,
    )
    return Response(encode([rule_out(rule) for rule in stored]))


async def get_suggested_monitors(context: AnyContext) -> Response:
    computations, group = context.services.computations, context.path["group_id"]
    return Response(encode(await suggestions.suggest(context.database, computations, group)))


async def get_alerts(context: RequestContext[AlertsQuery, None]) -> Response:
    query = context.query
    if query.job_id is not None and query.group_id is None:
        raise InvalidRequest(ErrorDetail(("query", "job_id"), _NEEDS_GROUP, "missing"))
    found = await alert_pages.read_page(
        context.database, query.state, query.group_id, query.job_id, context.cursor, query.limit
    )
    metadata = PageMetadata(next_url=None, next_cursor=found.next_cursor)
    if found.next_cursor is not None:
        parameters = dict(context.next_page_parameters) | {"cursor": found.next_cursor}
        address = context.services.settings.address
        metadata["next_url"] = api_url(address, "alerts", query=parameters)
    return Response(encode(AlertPage(metadata=metadata, alerts=found.alerts)))


async def get_alert(context: AnyContext) -> Response:
    return Response(encode(await alert_pages.read_one(context.database, context.path["alert_id"])))


async def set_alert(context: RequestContext[None, AlertIn]) -> Response:
    body = context.body
    if body.acknowledged is None and not body.normal and "muted_until" not in body.model_fields_set:
        raise InvalidRequest(ErrorDetail(("body",), _NOTHING, "missing"))
    changed = await alerts.change(
        context.database, context.path["alert_id"], body, context.services.clock, context.actor
    )
    return Response(encode(changed))
