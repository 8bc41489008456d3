"""The output operations."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import lru_cache, partial

from gleanery.api import urls
from gleanery.api.binding import bind_strictly
from gleanery.api.context import RequestContext, Response
from gleanery.errors import ErrorDetail, GleaneryError, InvalidRequest
from gleanery.models import batches
from gleanery.models.batches import Batch
from gleanery.models.requests import Output, OutputIn, OutputQuery
from gleanery.storage.outputs import ingest, mutations, pages
from gleanery.values import json_text
from gleanery.values.json_text import encode

_LINES_AT_ONCE = 1000
_BYTES_AT_ONCE = 1024 * 1024


async def get_outputs(context: RequestContext[OutputQuery, None]) -> Response:
    group = context.path["group_id"]
    page = await pages.read_page(
        context.database, context.organization_id, group, context.query, context.cursor
    )
    items = await context.with_links(page.items)
    address, repeated = context.services.address, context.repeated
    return page_response(address, group, repeated, items, page.next_cursor)


def page_response(
    base: str,
    group: str,
    repeated: tuple[tuple[str, str], ...],
    items: bytes | memoryview,
    next_cursor: int | None,
) -> Response:
    """Returns the response for a page whose links are inserted."""
    start = b'{"metadata":{"next_url":null,"next_cursor":null},"items":['
    if next_cursor is not None:
        start = b'{"metadata":{"next_url":"%s%d","next_cursor":%d},"items":[' % (
            _next_url(base, group, repeated),
            next_cursor,
            next_cursor,
        )
    return Response(start, more=(items, b"]}"))


@lru_cache(maxsize=64)  # of values of any length
def _next_url(base: str, group: str, repeated: tuple[tuple[str, str], ...]) -> bytes:
    """What ``next_url`` has before the cursor, as it stands inside a JSON string."""
    query = dict(repeated) | {"cursor": ""}
    return json_text.encode(urls.address(base, "outputs", group, query=query))[1:-1]


async def delete_output(context: RequestContext[None, None]) -> Response:
    s = context.services
    deleted = await mutations.delete_output(
        context.database,
        context.organization_id,
        context.path["group_id"],
        context.path["output_id"],
        s.clock,
    )
    return Response(b'{"deleted":%d}' % deleted)


async def store_outputs(context: RequestContext[None, Batch]) -> Response:
    s = context.services
    answer = await ingest.store_outputs(
        context.database,
        s.schemas,
        context.organization_id,
        context.path["group_id"],
        context.body,
        s.clock,
        idempotency_key=context.idempotency_key,
    )
    return Response(encode(answer))


async def store_lines(context: RequestContext[None, AsyncIterator[bytes]]) -> Response:
    """Stores a thousand lines, or a megabyte, at a time: memory stays flat whatever the length.

    Whatever goes wrong on the way, the answer says from which line on nothing is stored.
    """
    tally, batch, first, size, count = Counter[str](), [], 0, 0, 0
    try:
        async for line in context.body:
            batch.append(line)
            size, count = size + len(line), count + 1
            if len(batch) == _LINES_AT_ONCE or size > _BYTES_AT_ONCE:
                tally += await _store_lines(context, batch, first)
                batch, first, size = [], count, 0
        tally += await _store_lines(context, batch, first)
    except GleaneryError as error:
        reached = f"Nothing is stored from line {first} on, counted from 0; all before it is"
        error.details = (*error.details, ErrorDetail(("body", str(first)), reached, "stopped"))
        raise
    counts = {name: tally[name] for name in ("created", "updated", "unchanged")}
    return Response(json_text.encode(counts | {"lines": count}))


async def _store_lines(
    context: RequestContext[None, AsyncIterator[bytes]], batch: list[bytes], first: int
) -> Counter[str]:
    s = context.services
    answer = await ingest.store_outputs(
        context.database,
        s.schemas,
        context.organization_id,
        context.path["group_id"],
        await asyncio.to_thread(_bind_lines, batch, first),
        s.clock,
        idempotency_key=context.idempotency_key,
    )
    return Counter(result["change"] for result in answer["results"])


def _bind_lines(lines: list[bytes], first: int) -> Batch:
    numbered = {place: line for place, line in enumerate(lines, first) if line.strip()}
    in_full = partial(_bind_strictly, numbered)
    return batches.of_texts([*numbered.values()], [*numbered], json_text.DEEPEST, in_full)


def _bind_strictly(lines: dict[int, bytes]) -> list[Output]:
    """The outputs, or every detail of every line."""
    bound: list[Output] = []
    details: list[ErrorDetail] = []
    for place, line in lines.items():
        try:
            bound.append(bind_strictly(OutputIn, line, 1).checked())
        except InvalidRequest as error:
            details += [replace(f, loc=("body", str(place), *f.loc[1:])) for f in error.details]
    if details:
        raise InvalidRequest(*details)
    return bound
