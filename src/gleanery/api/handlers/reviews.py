"""The handlers of reviews."""

from __future__ import annotations

from gleanery.api import urls
from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import ReviewIn, ReviewQuery
from gleanery.storage import reviews
from gleanery.values.json_text import encode


async def get_latest_reviews(context: RequestContext[ReviewQuery, None]) -> Response:
    if context.query.history == "true":
        return await _get_history(context)
    latest = await reviews.latest_reviews(context.database, context.path["group_id"])
    return Response(encode(latest))


async def _get_history(context: RequestContext[ReviewQuery, None]) -> Response:
    group, limit = context.path["group_id"], context.query.limit
    page, next_cursor = await reviews.review_history(context.database, group, context.cursor, limit)
    body = encode(page)
    if next_cursor is None:
        return Response(body)
    query = {"history": "true", "limit": limit, "cursor": next_cursor}
    return Response(body, headers=urls.next_page(context, "reviews", group, query=query))


async def add_review(context: RequestContext[None, ReviewIn]) -> Response:
    group, clock = context.path["group_id"], context.services.clock
    review = await reviews.add_review(context.database, group, context.body, clock, context.actor)
    return Response(encode(review))
