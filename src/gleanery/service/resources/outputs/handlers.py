"""The handlers of outputs: pages, versions, batches as JSON arrays or NDJSON, deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Literal

from gleanery.service.api.binding import BoundQuery
from gleanery.service.api.context import RequestContext, api_url, limits_of
from gleanery.service.api.operation import BatchedPage
from gleanery.service.api.response import Response
from gleanery.service.api.services import Services
from gleanery.service.foundation.errors import (
    MAX_DETAILS,
    Conflict,
    ErrorDetail,
    GleaneryError,
    InvalidRequest,
)
from gleanery.service.foundation.field_types import GivenTime
from gleanery.service.foundation.json_schema import SchemaValidator
from gleanery.service.foundation.models import PageMetadata
from gleanery.service.foundation.values import json_text
from gleanery.service.resources.files.links import with_links, with_local_links
from gleanery.service.resources.history import reading, version_pages
from gleanery.service.resources.outputs import ingest, mutations, search
from gleanery.service.resources.outputs.batches import (
    Batch,
    BatchOptions,
    LargeBatch,
    RefusedBatch,
    bind_lines,
)
from gleanery.service.resources.outputs.elements import parse_output_id
from gleanery.service.resources.outputs.large_batches import LargeBatches
from gleanery.service.resources.outputs.models import (
    IngestQuery,
    IngestResult,
    NdjsonResult,
    OutputQuery,
    OutputTime,
    VersionQuery,
)
from gleanery.service.resources.outputs.positions import Position
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import Page, PageRead

_COUNTS: tuple[Literal["created", "updated", "unchanged"], ...]
_COUNTS = ("created", "updated", "unchanged")
_MAX_BATCH_LINES = 1000
_MAX_BATCH_BYTES = 1024 * 1024


async def get_outputs(context: RequestContext[OutputQuery, None]) -> Response:
    group = context.path["group_id"]
    max_bytes = context.services.settings.max_page_bytes
    page = await paging.read_from_replica(
        context.services.database,
        context.organization_id,
        lambda database: search.read_page(
            database, group, context.query, context.cursor, max_bytes, context.hold_response
        ),
        lambda page: page.next_cursor is not None,
    )
    parts = [await with_links(context, part) for part in page.parts]
    address, next_page_parameters = context.services.settings.address, context.next_page_parameters
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
    """Return ``next_url`` up to the cursor, escaped for a JSON string."""
    query = dict(next_page_parameters) | {"cursor": ""}
    return json_text.encode(api_url(base, "outputs", group, query=query))[1:-1]


def _batched_read(
    services: Services, organization_id: int, path: dict[str, str], query: OutputQuery, cursor: int
) -> PageRead:
    max_bytes = services.settings.max_page_bytes
    return search.page_read(organization_id, path["group_id"], query, cursor, max_bytes)


def _batched_response(
    services: Services, organization_id: int, path: dict[str, str], query: BoundQuery, page: Page
) -> Response | None:
    """Return the response of a page; None if the store must sign its links.

    A page that is empty because its group does not exist has no response either.
    """
    group, reader = path["group_id"], services.database.page_reader
    assert reader is not None
    is_empty = not page.parts and page.next_cursor is None
    if is_empty and not group_lock.has_group(reader, organization_id, group):
        return None
    [part] = page.parts or (b"",)  # a batch reads no large page
    items = with_local_links(services, organization_id, part)
    if items is None:
        return None
    address, next_page_parameters = services.settings.address, query.next_page_parameters
    return page_response(address, group, next_page_parameters, (items,), page.next_cursor)


BATCHED_PAGE = BatchedPage(
    max_items=100,  # for larger pages a batch saves nothing
    read=_batched_read,
    respond=_batched_response,
)


async def get_output(context: RequestContext[OutputTime, None]) -> Response:
    group, output_id = context.path["group_id"], context.path["output_id"]
    if context.query.at is None:
        item = await search.read_output(context.database, group, output_id)
    else:
        item = await _read_version(context, context.query.at)
    return Response(bytes(await with_links(context, item)))


async def _read_version(context: RequestContext[OutputTime, None], at: GivenTime) -> bytes:
    now, position = context.services.clock(), at.microseconds
    if at.cursor is not None:
        position = Position.from_cursor(at.cursor, now).seq
    return await reading.read_item(
        context.database,
        context.services.computations,
        context.path["group_id"],
        parse_output_id(context.path["output_id"]),
        position,
        now,
    )


async def get_history(context: RequestContext[VersionQuery, None]) -> Response:
    group, output_id = context.path["group_id"], context.path["output_id"]
    page = await version_pages.read_page(
        context.database,
        context.services.computations,
        group,
        parse_output_id(output_id),
        limits_of(context),
        context.services.clock(),
    )
    metadata = PageMetadata(next_url=None, next_cursor=page.next_cursor)
    if page.next_cursor is not None:
        query = dict(context.next_page_parameters) | {"cursor": page.next_cursor}
        segments = ("outputs", group, output_id, "history")
        metadata["next_url"] = api_url(context.services.settings.address, *segments, query=query)
    versions = await with_links(context, b",".join(page.records))
    start = b'{"metadata":%s,"versions":[' % json_text.encode(metadata)
    return Response(start, more=(versions, b"]}"))


async def delete_output(context: RequestContext[None, None]) -> Response:
    group, output_id = context.path["group_id"], context.path["output_id"]
    clock = context.services.clock
    deleted = await mutations.delete_output(context.database, group, output_id, clock)
    return Response(b'{"deleted":%d}' % deleted)


# --- storing ------------------------------------------------------------------------------------


async def store_outputs(
    context: RequestContext[IngestQuery, Batch | LargeBatch | RefusedBatch],
) -> Response:
    """Store a JSON array as one batch."""
    async with _rejections_counted(context):
        if isinstance(context.body, RefusedBatch):
            raise context.body.error
        result = await _store_batch(context, context.body)
    if "results" not in result:  # the key belongs to a request with NDJSON
        raise Conflict
    return Response(json_text.encode(result))


async def store_ndjson(
    context: RequestContext[IngestQuery, AsyncIterator[list[bytes]]],
) -> Response:
    """Store NDJSON as many batches, so that a body of any length needs little memory.

    An error names the first line that is not stored.
    """
    options = BatchOptions.from_query(context.query)
    max_values = context.services.settings.max_json_values
    result = NdjsonResult(created=0, updated=0, unchanged=0, lines=0)
    if options.skips_invalid:
        result["skipped"], result["errors"] = 0, []
    try:
        async for lines, end in _chunks(context.body):
            if not lines and result["lines"]:  # the end of the body, which costs no transaction
                result["lines"] = end
                break
            async with _rejections_counted(context):
                batch = await context.services.computations.run(
                    context.organization_id, bind_lines, lines, max_values, options
                )
                stored = await _store_batch(context, batch, lists_results=False)
            for name in _COUNTS:
                result[name] += stored[name]
            result["lines"] = end
            if options.skips_invalid:
                result["skipped"] += stored["skipped"]
                result["errors"] += stored["errors"][: MAX_DETAILS - len(result["errors"])]
    except GleaneryError as error:
        error.details = (*error.details, _first_unstored(result["lines"]))
        raise
    return Response(json_text.encode(result))


@asynccontextmanager
async def _rejections_counted(context: RequestContext[IngestQuery, Any]) -> AsyncIterator[None]:
    """Count the elements of a refused batch in the run that it names."""
    try:
        yield
    except InvalidRequest as error:
        group, run_id = context.path["group_id"], context.query.run_id
        if run_id is not None:
            clock = context.services.clock
            await ingest.record_rejected(context.database, group, run_id, error, clock)
        raise


async def _store_batch(
    context: RequestContext[IngestQuery, Any], batch: Batch | LargeBatch, lists_results: bool = True
) -> IngestResult:
    result = await _write_batch(context, batch, lists_results)
    context.request.state.stored_outputs += result["created"] + result["updated"]
    return result


async def _write_batch(
    context: RequestContext[IngestQuery, Any], batch: Batch | LargeBatch, lists_results: bool
) -> IngestResult:
    if isinstance(batch, LargeBatch):
        return await ingest.store_large_batch(
            context.database,
            context.services[SchemaValidator],
            context.services[LargeBatches],
            context.services.computations,
            context.path["group_id"],
            batch,
            context.services.clock,
            context.idempotency_key,
            lists_results,
            context.query.run_id,
        )
    return await ingest.store_batch(
        context.database,
        context.services[SchemaValidator],
        context.services.computations,
        context.path["group_id"],
        batch,
        context.services.clock,
        context.idempotency_key,
        lists_results,
        context.query.run_id,
    )


async def _chunks(body: AsyncIterator[list[bytes]]) -> AsyncIterator[tuple[dict[int, bytes], int]]:
    """Group the lines that are not blank into chunks, one for each batch.

    Yields each chunk by the positions of its lines, and the position after it. Blank lines cost no
    batch: a compressed body can have millions. The last chunk has no line if only they are left.
    """
    chunk: dict[int, bytes] = {}
    size = position = 0
    async for lines in body:
        for line in lines:
            position += 1
            if not line or line.isspace():
                continue
            chunk[position - 1] = line
            size += len(line)
            if len(chunk) == _MAX_BATCH_LINES or size > _MAX_BATCH_BYTES:
                yield chunk, position
                chunk, size = {}, 0
    if position:
        yield chunk, position


def _first_unstored(line: int) -> ErrorDetail:
    msg = f"The lines before line {line} are stored, the others are not; lines count from 0"
    if line == 0:
        msg = "No line is stored; lines count from 0"
    return ErrorDetail(("body", str(line)), msg, "stopped")
