"""The handlers of exports: a whole group as NDJSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gleanery.api.context import RequestContext, Response
from gleanery.errors import ChunksRequired
from gleanery.models.requests import OutputFilters
from gleanery.storage.outputs import exports

_NDJSON = b"application/x-ndjson"


async def export_outputs(context: RequestContext[OutputFilters, None]) -> Response:
    if not context.request.accepts_chunks:
        raise ChunksRequired
    context.slot.transfer(context.services.transfer_limit)
    export = await exports.begin(context.database, context.path["group_id"], context.query)
    pieces = _with_links(context, export)
    # The first lines are read here, so that an error is found before the response starts.
    first = b"" if context.request.method == "HEAD" else await anext(pieces, b"")
    headers = ((b"gleanery-cursor", b"%d" % export.cursor),)
    return Response(b"", content_type=_NDJSON, headers=headers, rest=_joined(first, pieces))


async def _with_links(
    context: RequestContext[OutputFilters, None], export: exports.Export
) -> AsyncGenerator[bytes]:
    async for piece in export.pieces():
        yield bytes(await context.with_links(piece))


async def _joined(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    async for piece in rest:
        yield piece
