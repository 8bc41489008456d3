"""The handlers of exports: a whole group as JSON lines, CSV or Parquet.

An export needs a token, or a signed link. A link is created on request, and is valid for a limited
time without a token.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any, Literal
from urllib.parse import quote

from gleanery.service.api.context import RequestContext, api_url
from gleanery.service.api.response import Response
from gleanery.service.foundation.errors import (
    ChunksRequired,
    ErrorDetail,
    InvalidRequest,
    InvalidSignature,
    no_record,
)
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.http import Header, Request, unless_disconnected
from gleanery.service.resources.access import organizations
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.log import ReadAuditor
from gleanery.service.resources.audit.models import AuditAbout, AuditAction
from gleanery.service.resources.exports import snapshots
from gleanery.service.resources.exports.models import (
    ExportLink,
    ExportLinkQuery,
    ExportQuery,
    SignedExportQuery,
)
from gleanery.service.resources.exports.tables import TableExports, TableFile, require_format
from gleanery.service.resources.files.links import with_links
from gleanery.service.resources.outputs.models import OutputFilters
from gleanery.service.storage import group_lock

_NDJSON = b"application/x-ndjson"
_CONTENT_TYPES = {
    "csv": b"text/csv; charset=utf-8",
    "parquet": b"application/vnd.apache.parquet",
}
_FILTER_NAMES = OutputFilters.model_fields.keys()
_SCOPE = "outputs:read"
_FROM_START = b"bytes=0-"
_PIECE_BYTES = 128 * 1024  # sent at once, which delays other requests
_KEY_PURPOSE = "export links"
_SIGNATURE = "signature"
_NEW_LINK = "create a new one with POST /v1/exports/{group_id}/links"

_Parameters = Iterable[tuple[str, str]]
_TableFormat = Literal["csv", "parquet"]
_Pieces = AsyncGenerator[bytes | memoryview]
_AuditedContext = RequestContext[ExportQuery, None] | RequestContext[ExportLinkQuery, None]
_ExportContext = RequestContext[ExportQuery, None] | RequestContext[SignedExportQuery, None]


async def export_outputs(context: RequestContext[ExportQuery, None]) -> Response:
    """Export a group. A download in the console is audited, because a person has the file."""
    if context.actor.person is not None and context.request.method != "HEAD":
        require_format(context.query.format)
        await group_lock.require_group(context.database, context.path["group_id"])
        await _audit(context, "export_outputs", context.services.clock())
    return await _export(context)


async def _audit(context: _AuditedContext, action: AuditAction, now: int) -> None:
    about = AuditAbout(group_id=context.path["group_id"], format=context.query.format)
    entry = log.Entry(context.actor, now, action, about)
    await context.services[ReadAuditor].record(context.database, entry)


async def _export(context: _ExportContext) -> Response:
    if context.query.format != "jsonl":
        return await _export_table(context, context.query.format)
    _check_chunks(context.request)
    _check_range(context.request)
    context.slot.transfer(context.services.capacity.transfers)
    export = await _begin(context)
    pieces = _text_with_links(context, export)
    # The first lines are read here, so that an error is found before the response starts.
    first = b"" if context.request.method == "HEAD" else await anext(pieces, b"")
    headers = _headers(context, export.cursor, "jsonl")
    return Response(b"", content_type=_NDJSON, headers=headers, rest=_joined(first, pieces))


async def _begin(context: _ExportContext) -> snapshots.Export:
    group, query = context.path["group_id"], context.query
    return await snapshots.begin(context.database, group, query, context.wait_to_hold)


def _headers(context: _ExportContext, cursor: int, ending: str) -> tuple[Header, ...]:
    return (
        (b"accept-ranges", b"none"),
        _attachment(context.path["group_id"], ending),
        (b"gleanery-cursor", b"%d" % cursor),
    )


def _attachment(group: str, ending: str) -> Header:
    name = quote(f"{group}.{ending}", safe="")
    return b"content-disposition", f"attachment; filename*=UTF-8''{name}".encode()


def _check_chunks(request: Request) -> None:
    """Reject a client that would not notice a truncation of a response without a length."""
    if not request.accepts_chunks:
        raise ChunksRequired


def _check_range(request: Request) -> None:
    """Reject a request for a later part of an export.

    wget asks for the rest of a truncated body. If the response is a new export, wget skips the
    bytes that it has, and joins parts of two exports. So only a range from the start is ignored.
    """
    if not request.headers.get(b"range", _FROM_START).startswith(_FROM_START):
        msg = "A part of an export cannot be requested, because the next export has other bytes"
        raise InvalidRequest(ErrorDetail(("header", "range"), f"{msg}: start again", "range"))


async def _text_with_links(context: _ExportContext, export: snapshots.Export) -> _Pieces:
    """Insert links to files, and cut the lines into pieces."""
    async for lines in export.lines():
        text = memoryview(await with_links(context, lines))
        for start in range(0, len(text), _PIECE_BYTES):
            yield text[start : start + _PIECE_BYTES]  # no copy
            await asyncio.sleep(0)  # other requests run between two pieces
        del lines, text  # the next step is not read while this one is in memory


async def _joined(first: bytes | memoryview, rest: _Pieces) -> _Pieces:
    yield first
    async for piece in rest:
        yield piece


# --- tables -------------------------------------------------------------------------------------


async def _export_table(context: _ExportContext, format: _TableFormat) -> Response:  # noqa: A002
    """Convert the export, and send the file when it is complete."""
    require_format(format)
    _check_range(context.request)
    context.slot.transfer(context.services.capacity.transfers)
    content_type = _CONTENT_TYPES[format]
    if context.request.method == "HEAD":
        export = await _begin(context)
        headers = _headers(context, export.cursor, format)
        return Response(b"", content_type=content_type, headers=headers, rest=_nothing())
    turn = context.services[TableExports].turn(context.organization_id)
    with context.request.state.idle():  # the size of the group decides how long it takes
        async with turn:
            export = await _begin(context)
            table = await _convert_unless_disconnected(context, export, format)
    return Response(
        b"",
        content_type=content_type,
        headers=_headers(context, export.cursor, format),
        length=table.size,
        rest=table.pieces(),
    )


async def _convert_unless_disconnected(
    context: _ExportContext,
    export: snapshots.Export,
    format: _TableFormat,  # noqa: A002
) -> TableFile:
    """Convert the export. The conversion ends when the client disconnects."""

    async def convert() -> TableFile:
        metadata = {
            "group": context.path["group_id"],
            "filters": _filters(context),
            "cursor": export.cursor,
        }
        convert_to, owner = context.services[TableExports].convert, context.organization_id
        async with aclosing(_text_with_links(context, export)) as pieces:
            return await convert_to(owner, format, metadata, pieces)

    return await unless_disconnected(context.request, convert())


def _filters(context: _ExportContext) -> dict[str, Any]:
    """Return the given filters, as the client describes them in a file."""
    given = {name: value for name, value in context.next_page_parameters if name in _FILTER_NAMES}
    return {name: value == "true" if name == "approved" else value for name, value in given.items()}


async def _nothing() -> _Pieces:
    """Has no pieces: the response to HEAD has no body, and its length is not known."""
    return
    yield b""


# --- signed links -------------------------------------------------------------------------------


async def create_export_link(context: RequestContext[ExportLinkQuery, None]) -> Response:
    await _reject_a_body(context.request)
    s, group = context.services, context.path["group_id"]
    require_format(context.query.format)
    await group_lock.require_group(context.database, group)
    now = s.clock()
    expires = now // timestamps.SECOND + context.query.valid_seconds
    filters = [pair for pair in context.next_page_parameters if pair[0] != "valid_seconds"]
    url = _signed_url(
        s.settings.address,
        s.vault,
        group,
        context.query.format,
        [
            *filters,
            ("organization", str(context.organization_id)),
            ("token", str(context.token_id)),
            ("expires", str(expires)),
        ],
    )
    await _audit(context, "create_export_link", now)
    return Response(encode(ExportLink(url=url, expires=timestamps.render(expires))))


async def _reject_a_body(request: Request) -> None:
    """Reject filters in the body: without them, the link would show more than was asked for."""
    if await request.receive():
        msg = "This route has no body: send valid_seconds and the filters in the URL"
        raise InvalidRequest(ErrorDetail(("body",), msg, "unexpected_body"))


async def get_signed_export(context: RequestContext[SignedExportQuery, None]) -> Response:
    s, query, group = context.services, context.query, context.path["group_id"]
    if context.path["file_name"] != _file_name(query.format):
        raise no_record("file_name")
    if not _is_signed(s.vault, group, context.next_page_parameters):
        raise InvalidSignature(_NEW_LINK)
    context.organization_id = int(query.organization)  # the signature proves the organization
    context.slot.assign_tenant(context.organization_id)
    now = s.clock()
    grant = await organizations.find_grant_by_id(s.database, int(query.token))
    is_expired = int(query.expires) <= now // timestamps.SECOND
    if is_expired or grant is None or not grant.allows(_SCOPE, now):
        raise InvalidSignature(_NEW_LINK)
    state = context.request.state
    state.organization, state.token = grant.organization_id, grant.token_id
    return await _export(context)


def _file_name(format: str) -> str:  # noqa: A002
    """Return the last segment of the path: tools take the format from its ending."""
    return f"outputs.{format}"


def _signed_url(
    address: str,
    vault: Vault,
    group: str,
    format: str,  # noqa: A002
    parameters: _Parameters,
) -> str:
    """Return the signed URL of an export with these parameters."""
    key = vault.key(vault.current).derive(_KEY_PURPOSE)
    query = dict(parameters)
    query[_SIGNATURE] = _sign(key, group, query.items())
    return api_url(address, "exports", group, _file_name(format), query=query)


def _is_signed(vault: Vault, group: str, parameters: _Parameters) -> bool:
    """Check that a known key signed this group and these parameters."""
    query = dict(parameters)
    given = query.pop(_SIGNATURE).encode()
    return any(
        hmac.compare_digest(_sign(key, group, query.items()).encode(), given)
        for key in vault.derive_all(_KEY_PURPOSE)
    )


def _sign(key: bytes, group: str, parameters: _Parameters) -> str:
    text = encode([group, sorted(parameters)])
    return hmac.digest(key, text, "sha256").hex()
