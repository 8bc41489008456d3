"""The handlers of reviews."""

from __future__ import annotations

from gleanery.api import lists
from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import ReviewIn, ReviewQuery
from gleanery.storage import reviews
from gleanery.values.json_text import encode


async def get_latest_reviews(context: RequestContext[ReviewQuery, None]) -> Response:
    group, limits = context.path["group_id"], lists.limits_of(context)
    if context.query.history == "true":
        page = await reviews.review_history(context.database, group, limits)
    else:
        page = await reviews.latest_reviews(context.database, group, limits)
    return lists.array_response(context, page, "reviews", group)


async def add_review(context: RequestContext[None, ReviewIn]) -> Response:
    review = await reviews.add_review(
        context.database,
        context.path["group_id"],
        context.body,
        context.services.clock,
        context.actor,
        context.idempotency_key,
    )
    return Response(encode(review))
