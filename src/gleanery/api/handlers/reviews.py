"""The review operations."""

from __future__ import annotations

from gleanery.api import urls
from gleanery.api.context import RequestContext, Response
from gleanery.models.requests import ReviewIn, ReviewQuery
from gleanery.storage import reviews
from gleanery.values.json_text import encode


async def get_latest_reviews(call: RequestContext[ReviewQuery, None]) -> Response:
    if call.query.history == "true":
        return await _history(call)
    latest = await reviews.latest_reviews(
        call.database, call.organization_id, call.path["group_id"]
    )
    return Response(encode(latest))


async def _history(call: RequestContext[ReviewQuery, None]) -> Response:
    group, query = call.path["group_id"], call.query
    page, more = await reviews.review_history(
        call.database, call.organization_id, group, call.cursor, query.limit
    )
    body = encode(page)
    if more is None:
        return Response(body)
    follows = {"history": "true", "limit": query.limit, "cursor": more}
    return Response(body, headers=urls.next_page(call, "reviews", group, query=follows))


async def add_review(call: RequestContext[None, ReviewIn]) -> Response:
    s = call.services
    review = await reviews.add_review(
        call.database, call.organization_id, call.path["group_id"], call.body, s.clock, call.by
    )
    return Response(encode(review))
