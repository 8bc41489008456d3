"""The handlers of exports: a whole group as NDJSON, with a token or by a signed link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from urllib.parse import quote

from gleanery.api import export_links
from gleanery.api.context import RequestContext, Response
from gleanery.errors import ChunksRequired, ErrorDetail, InvalidRequest, InvalidSignature
from gleanery.http import Header, Request
from gleanery.models.requests import ExportLinkQuery, OutputFilters, SignedExportQuery
from gleanery.models.responses import AuditAbout, ExportLink
from gleanery.storage import audit, group_lock, organizations
from gleanery.storage.outputs import exports
from gleanery.values import timestamps
from gleanery.values.json_text import encode

_NDJSON = b"application/x-ndjson"
_SCOPE = "outputs:read"
_FROM_START = b"bytes=0-"
_PIECE_BYTES = 128 * 1024  # sent at once, which delays other requests
_NEW_LINK = "create a new one with POST /v1/exports/{group_id}/links"

_Pieces = AsyncGenerator[bytes | memoryview]
_ExportContext = RequestContext[OutputFilters, None] | RequestContext[SignedExportQuery, None]


async def export_outputs(context: RequestContext[OutputFilters, None]) -> Response:
    return await _export(context)


async def _export(context: _ExportContext) -> Response:
    _check_request(context.request)
    context.slot.transfer(context.services.transfer_limit)
    export = await exports.begin(context.database, context.path["group_id"], context.query)
    pieces = _with_links(context, export)
    # The first lines are read here, so that an error is found before the response starts.
    first = b"" if context.request.method == "HEAD" else await anext(pieces, b"")
    headers = (
        (b"accept-ranges", b"none"),
        _attachment(context.path["group_id"]),
        (b"gleanery-cursor", b"%d" % export.cursor),
    )
    return Response(b"", content_type=_NDJSON, headers=headers, rest=_joined(first, pieces))


def _check_request(request: Request) -> None:
    """Reject a client that would not notice a truncation.

    wget asks for the rest of a truncated body. If the response is a new export, wget skips the
    bytes that it has, and joins parts of two exports. So only a range from the start is ignored.
    """
    if not request.accepts_chunks:
        raise ChunksRequired
    if not request.headers.get(b"range", _FROM_START).startswith(_FROM_START):
        msg = "A part of an export cannot be requested, because the next export has other bytes"
        raise InvalidRequest(ErrorDetail(("header", "range"), f"{msg}: start again", "range"))


async def _with_links(context: _ExportContext, export: exports.Export) -> _Pieces:
    """Inserts links to files, and cuts the lines into pieces."""
    async for lines in export.lines():
        text = memoryview(await context.with_links(lines))
        for start in range(0, len(text), _PIECE_BYTES):
            yield text[start : start + _PIECE_BYTES]  # no copy
            await asyncio.sleep(0)  # other requests run between two pieces


async def _joined(first: bytes | memoryview, rest: _Pieces) -> _Pieces:
    yield first
    async for piece in rest:
        yield piece


# --- signed links -------------------------------------------------------------------------------


async def create_export_link(context: RequestContext[ExportLinkQuery, None]) -> Response:
    await _reject_a_body(context.request)
    s, group = context.services, context.path["group_id"]
    await group_lock.require_group(context.database, group)
    now = s.clock()
    expires = now // timestamps.SECOND + context.query.valid_seconds
    filters = [pair for pair in context.next_page_parameters if pair[0] != "valid_seconds"]
    url = export_links.create(
        s.address,
        s.vault,
        group,
        [
            *filters,
            ("organization", str(context.organization_id)),
            ("token", str(context.token_id)),
            ("expires", str(expires)),
        ],
    )
    entry = audit.Entry(context.actor, now, "create_export_link", AuditAbout(group_id=group))
    await s.read_auditor.record(context.database, entry)
    return Response(encode(ExportLink(url=url, expires=timestamps.render(expires))))


async def _reject_a_body(request: Request) -> None:
    """Reject filters in the body: without them, the link would show more than was asked for."""
    if await request.receive():
        msg = "This route has no body: send valid_seconds and the filters in the URL"
        raise InvalidRequest(ErrorDetail(("body",), msg, "unexpected_body"))


async def get_signed_export(context: RequestContext[SignedExportQuery, None]) -> Response:
    s, query, group = context.services, context.query, context.path["group_id"]
    if not export_links.is_valid(s.vault, group, context.next_page_parameters):
        raise InvalidSignature(_NEW_LINK)
    context.organization_id = int(query.organization)  # the signature proves the organization
    context.slot.assign_tenant(context.organization_id)
    now = s.clock()
    grant = await organizations.find_grant_by_id(s.database, int(query.token))
    is_expired = int(query.expires) <= now // timestamps.SECOND
    if is_expired or grant is None or not grant.allows(_SCOPE, now):
        raise InvalidSignature(_NEW_LINK)
    return await _export(context)


def _attachment(group: str) -> Header:
    name = quote(f"{group}.ndjson", safe="")
    return b"content-disposition", f"attachment; filename*=UTF-8''{name}".encode()
