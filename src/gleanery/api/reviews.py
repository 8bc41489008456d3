"""The review operations."""

from __future__ import annotations

from urllib.parse import quote

from pydantic import TypeAdapter

from gleanery.api.calls import Answer, Call
from gleanery.records import ReviewIn, ReviewOut, ReviewQuery
from gleanery.store import reviews

_ONE = TypeAdapter(ReviewOut)
_LIST = TypeAdapter(list[ReviewOut])


async def get_latest_reviews(call: Call[ReviewQuery, None]) -> Answer:
    if call.query.history == "true":
        return await _history(call)
    latest = await reviews.latest_reviews(
        call.services.database, call.organization_id, call.path["group_id"]
    )
    return Answer(_LIST.dump_json(latest))


async def _history(call: Call[ReviewQuery, None]) -> Answer:
    group, query = call.path["group_id"], call.query
    page, more = await reviews.review_history(
        call.services.database, call.organization_id, group, query.cursor, query.limit
    )
    if more is None:
        return Answer(_LIST.dump_json(page))
    address = f"{call.services.settings.address}/v1/reviews/{quote(group, safe='')}"
    link = f'<{address}?history=true&limit={query.limit}&cursor={more}>; rel="next"'
    return Answer(_LIST.dump_json(page), headers=((b"link", link.encode("ascii")),))


async def add_review(call: Call[None, ReviewIn]) -> Answer:
    s = call.services
    review = await reviews.add_review(
        s.database, call.organization_id, call.path["group_id"], call.body, s.clock
    )
    return Answer(_ONE.dump_json(review))
