"""The review operations."""

from __future__ import annotations

from pydantic import TypeAdapter

from gleanery.api.calls import Answer, Call
from gleanery.records import ReviewIn, ReviewOut
from gleanery.store import reviews

_ONE = TypeAdapter(ReviewOut)
_LIST = TypeAdapter(list[ReviewOut])


async def get_latest_reviews(call: Call[None, None]) -> Answer:
    latest = await reviews.latest_reviews(
        call.services.database, call.organization_id, call.path["group_id"]
    )
    return Answer(_LIST.dump_json(latest))


async def add_review(call: Call[None, ReviewIn]) -> Answer:
    s = call.services
    review = await reviews.add_review(
        s.database, call.organization_id, call.path["group_id"], call.body, s.clock
    )
    return Answer(_ONE.dump_json(review))
