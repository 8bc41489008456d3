"""The handlers of outputs: pages, batches as JSON arrays or NDJSON, deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import lru_cache, partial

from gleanery.api import urls
from gleanery.api.binding import check_value_count, parse_lines
from gleanery.api.context import AnyContext, RequestContext, Response
from gleanery.errors import ErrorDetail, GleaneryError
from gleanery.models import batches
from gleanery.models.batches import Batch, LargeBatch
from gleanery.models.requests import OutputQuery
from gleanery.models.responses import IngestResult, NdjsonResult
from gleanery.storage.outputs import ingest, mutations, pages, single
from gleanery.values import json_text

_MAX_BATCH_LINES = 1000
_MAX_BATCH_BYTES = 1024 * 1024


async def get_outputs(context: RequestContext[OutputQuery, None]) -> Response:
    group = context.path["group_id"]
    max_bytes = context.services.settings.max_page_bytes
    page = await pages.read_page(context.database, group, context.query, context.cursor, max_bytes)
    parts = [await context.with_links(part) for part in page.parts]
    address, next_page_parameters = context.services.address, context.next_page_parameters
    return page_response(address, group, next_page_parameters, parts, page.next_cursor)


def page_response(
    base: str,
    group: str,
    next_page_parameters: tuple[tuple[str, str], ...],
    parts: Sequence[bytes | memoryview],
    next_cursor: int | None,
) -> Response:
    """Return the response for the parts of a page with inserted links."""
    start = b'{"metadata":{"next_url":null,"next_cursor":null},"items":['
    if next_cursor is not None:
        start = b'{"metadata":{"next_url":"%s%d","next_cursor":%d},"items":[' % (
            _next_url_prefix(base, group, next_page_parameters),
            next_cursor,
            next_cursor,
        )
    return Response(start, more=(*parts, b"]}"))


@lru_cache(maxsize=64)  # small, because the values can be long
def _next_url_prefix(
    base: str, group: str, next_page_parameters: tuple[tuple[str, str], ...]
) -> bytes:
    """Returns ``next_url`` up to the cursor, escaped for a JSON string."""
    query = dict(next_page_parameters) | {"cursor": ""}
    return json_text.encode(urls.address(base, "outputs", group, query=query))[1:-1]


async def get_output(context: RequestContext[None, None]) -> Response:
    group, output_id = context.path["group_id"], context.path["output_id"]
    item = await single.read_output(context.database, group, output_id)
    return Response(bytes(await context.with_links(item)))


async def delete_output(context: RequestContext[None, None]) -> Response:
    group, output_id = context.path["group_id"], context.path["output_id"]
    clock = context.services.clock
    deleted = await mutations.delete_output(context.database, group, output_id, clock)
    return Response(b'{"deleted":%d}' % deleted)


# --- storing ------------------------------------------------------------------------------------


async def store_outputs(context: RequestContext[None, Batch | LargeBatch]) -> Response:
    """Stores a JSON array as one batch."""
    return Response(json_text.encode(await _store_batch(context, context.body)))


async def store_ndjson(context: RequestContext[None, AsyncIterator[bytes]]) -> Response:
    """Stores NDJSON as many batches, so that a body of any length needs little memory.

    An error names the first line that is not stored.
    """
    counts = NdjsonResult(created=0, updated=0, unchanged=0, lines=0)
    try:
        async for lines in _chunks(context.body):
            max_values = context.services.settings.max_json_values
            batch = await context.services.computations.run(
                context.organization_id, _bind_lines, lines, counts["lines"], max_values
            )
            stored = await _store_batch(context, batch)
            counts["created"] += stored["created"]
            counts["updated"] += stored["updated"]
            counts["unchanged"] += stored["unchanged"]
            counts["lines"] += len(lines)
    except GleaneryError as error:
        error.details = (*error.details, _first_unstored(counts["lines"]))
        raise
    return Response(json_text.encode(counts))


async def _store_batch(context: AnyContext, batch: Batch | LargeBatch) -> IngestResult:
    if isinstance(batch, LargeBatch):
        return await ingest.store_large_batch(
            context.database,
            context.services.schema_validator,
            context.services.large_batches,
            context.services.computations,
            context.path["group_id"],
            batch,
            context.services.clock,
            context.idempotency_key,
        )
    return await ingest.store_batch(
        context.database,
        context.services.schema_validator,
        context.services.computations,
        context.path["group_id"],
        batch,
        context.services.clock,
        context.idempotency_key,
    )


async def _chunks(lines: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Groups lines into chunks, one for each batch."""
    chunk: list[bytes] = []
    size = 0
    async for line in lines:
        chunk.append(line)
        size += len(line)
        if len(chunk) == _MAX_BATCH_LINES or size > _MAX_BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _bind_lines(lines: list[bytes], first_position: int, max_values: int) -> Batch | LargeBatch:
    """Creates a batch of the lines that are not blank."""
    numbered = {n: line for n, line in enumerate(lines, first_position) if line.strip()}
    for position, line in numbered.items():
        if len(line) > max_values:
            check_value_count(line, max_values, ("body", str(position)))
    texts, positions = [*numbered.values()], [*numbered]
    if positions and batches.is_large(texts):
        return LargeBatch(texts, positions, len(texts))
    parse_strictly = partial(parse_lines, numbered)
    return batches.from_texts(texts, positions, json_text.MAX_DEPTH, parse_strictly)


def _first_unstored(line: int) -> ErrorDetail:
    msg = f"The lines before line {line} are stored, the others are not; lines count from 0"
    if line == 0:
        msg = "No line is stored; lines count from 0"
    return ErrorDetail(("body", str(line)), msg, "stopped")
