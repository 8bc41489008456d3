"""The review operations."""

from __future__ import annotations

from gleanery.api import urls
from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import ReviewIn, ReviewQuery
from gleanery.storage import reviews
from gleanery.values.json_text import encode


async def get_latest_reviews(context: RequestContext[ReviewQuery, None]) -> Response:
    if context.query.history == "true":
        return await _history(context)
    latest = await reviews.latest_reviews(context.database, context.path["group_id"])
    return Response(encode(latest))


async def _history(context: RequestContext[ReviewQuery, None]) -> Response:
    group, query = context.path["group_id"], context.query
    page, more = await reviews.review_history(context.database, group, context.cursor, query.limit)
    body = encode(page)
    if more is None:
        return Response(body)
    follows = {"history": "true", "limit": query.limit, "cursor": more}
    return Response(body, headers=urls.next_page(context, "reviews", group, query=follows))


async def add_review(context: RequestContext[None, ReviewIn]) -> Response:
    s = context.services
    review = await reviews.add_review(
        context.database, context.path["group_id"], context.body, s.clock, context.actor
    )
    return Response(encode(review))
