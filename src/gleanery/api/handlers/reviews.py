"""The handlers of reviews."""

from __future__ import annotations

from gleanery.api import lists
from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import ReviewIn, ReviewQuery
from gleanery.storage.reviews import adding, reading
from gleanery.values.json_text import encode


async def get_latest_reviews(context: RequestContext[ReviewQuery, None]) -> Response:
    group, limits = context.path["group_id"], lists.limits_of(context)
    if context.query.history == "true":
        page = await reading.review_history(context.database, group, limits)
    else:
        page = await reading.latest_reviews(context.database, group, limits)
    return lists.array_response(context, page, "reviews", group)


async def get_review(context: RequestContext[None, None]) -> Response:
    group, review_id = context.path["group_id"], context.path["review_id"]
    return Response(await reading.read_review(context.database, group, review_id))


async def add_review(context: RequestContext[None, ReviewIn]) -> Response:
    review = await adding.add_review(
        context.database,
        context.path["group_id"],
        context.body,
        context.services.clock,
        context.actor,
        context.idempotency_key,
    )
    return Response(encode(review))
