"""The handlers of reviews."""

from __future__ import annotations

import secrets

from gleanery.service.api.context import AnyContext, RequestContext, array_response, limits_of
from gleanery.service.api.response import Response
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.files.links import with_links
from gleanery.service.resources.reviews import adding, reading, sample
from gleanery.service.resources.reviews.models import ReviewIn, ReviewQuery, ReviewSampleQuery


async def get_latest_reviews(context: RequestContext[ReviewQuery, None]) -> Response:
    group, limits = context.path["group_id"], limits_of(context)
    if context.query.history == "true":
        page = await reading.review_history(context.database, group, limits)
    else:
        page = await reading.latest_reviews(context.database, group, limits)
    return array_response(context, page, "reviews", group)


async def get_review_sample(context: RequestContext[ReviewSampleQuery, None]) -> Response:
    query = context.query
    seed, found = await read_sample(context, query.job_id, query.seed, query.size)
    start = b'{"seed":%s,"job_id":%s,"cursor":%d,"outputs":%d,"sample":[' % (
        encode(seed),
        encode(query.job_id),
        found.cursor,
        found.output_count,
    )
    elements = [await _render(context, output) for output in found.outputs]
    return Response(start, more=(b",".join(elements), b"]}"))


async def read_sample(
    context: AnyContext, job: str, seed: str | None, size: int, as_of: int | None = None
) -> tuple[str, sample.Sample]:
    """Read a sample of a job of the request's group. Return its seed, which may be new."""
    seed = secrets.token_hex(8) if seed is None else seed
    found = await sample.read_sample(
        context.database,
        context.services.computations,
        context.path["group_id"],
        job,
        seed,
        size,
        context.services.settings.max_page_bytes,
        as_of,
    )
    return seed, found


async def _render(context: AnyContext, output: sample.SampledOutput) -> bytes:
    item = await with_links(context, output.item)
    approved_item = await with_links(context, output.approved_item or b"null")
    fields = await with_links(context, output.fields or b"null")
    return b'{"reason":"%s","detail":%s,"output":%s,"approved_output":%s,"fields":%s}' % (
        output.reason.encode(),
        encode(output.detail),
        item,
        approved_item,
        fields,
    )


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
