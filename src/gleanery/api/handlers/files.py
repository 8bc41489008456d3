"""The file operations."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from urllib.parse import quote

from gleanery.api.context import RequestContext, Response, Services
from gleanery.blobs import NoBlob
from gleanery.errors import InvalidSignature, NotFound
from gleanery.http import ranges
from gleanery.models.requests import BlobQuery, FileQuery, FileUpload
from gleanery.storage import files
from gleanery.storage.database import Database
from gleanery.values import media_types, timestamps
from gleanery.values.json_text import encode

_log = logging.getLogger("gleanery")
_FILE_POLICY = b"default-src 'none'; sandbox"  # if a browser should show it all the same


class _Upload:
    """The body on its way to the store: length_prefixed as it passes."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._held: list[bytes] = []
        self._hash = hashlib.sha256()
        self.size = 0

    async def head(self) -> bytes:
        """The beginning, which is kept for ``chunks``."""
        size = 0
        async for chunk in self._body:
            self._held.append(chunk)
            size += len(chunk)
            if size >= media_types.HEAD_BYTES:
                break
        return b"".join(self._held)[: media_types.HEAD_BYTES]

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._held:
            yield self._measured(chunk)
        self._held = []
        async for chunk in self._body:
            yield self._measured(chunk)

    def _measured(self, chunk: bytes) -> bytes:
        self._hash.update(chunk)
        self.size += len(chunk)
        return chunk

    @property
    def checksum(self) -> bytes:
        return self._hash.digest()


async def store_file(context: RequestContext[FileUpload, AsyncIterator[bytes]]) -> Response:
    s, query = context.services, context.query
    context.slot.transfer(s.transfers)
    upload = _Upload(context.body)
    declared = context.request.headers.get(b"content-type", b"").decode("latin-1")
    file_type = await asyncio.to_thread(media_types.media_type, await upload.head(), declared)
    key = await files.begin_upload(context.database, s.clock())
    file = None
    try:
        await s.blobs.put(key, file_type, upload.chunks())
        known = files.Upload(
            upload.checksum, upload.size, file_type, query.source_url, query.etag, query.filename
        )
        file = await files.keep(context.database, key, known, s.clock())
        if file.key != key and not await s.blobs.holds(file.key):  # lost, as by an old backup
            await s.blobs.copy(key, file.key)
    finally:
        if file is None or file.key != key:  # it failed, or the same bytes were here before
            await asyncio.shield(_remove(s, context.database, key))
    return Response(encode(file.shown()))


async def _remove(services: Services, database: Database, key: str) -> None:
    """What fails here the sweep does later: it is no concern of the client's."""
    try:
        await files.remove_unreferenced(database, services.blobs, key)
    except Exception:
        _log.exception("an upload is left to the sweep")


async def find_file(context: RequestContext[FileQuery, None]) -> Response:
    file = await files.find_by_source(
        context.database, context.query.source_url, context.query.etag
    )
    return Response(encode(file.shown()))


async def get_file(context: RequestContext[None, None]) -> Response:
    file = await files.find(context.database, context.path["id"])
    return await _bytes_of(context, file)


async def get_blob(context: RequestContext[BlobQuery, None]) -> Response:
    s, query = context.services, context.query
    parts = (context.path["id"], query.organization, query.expires, query.signature)
    if not s.file_links.is_valid(*parts, now=s.clock() // timestamps.SECOND):
        raise InvalidSignature
    organization_id = int(query.organization)  # which the link has proved
    context.slot.assign_tenant(organization_id)
    database = s.database.for_tenant(organization_id)
    file = await files.find(database, context.path["id"])
    return await _bytes_of(context, file)


async def _bytes_of(
    context: RequestContext[BlobQuery, None] | RequestContext[None, None], file: files.File
) -> Response:
    etag = b'"%s"' % file.checksum.hex().encode()
    headers = [
        (b"etag", etag),
        (b"accept-ranges", b"bytes"),
        (b"content-disposition", _attachment(file.filename)),
        (b"content-security-policy", _FILE_POLICY),
    ]
    if ranges.is_not_modified(context.request.headers, etag):
        return Response(b"", 304, headers=tuple(headers))
    is_head = context.request.method == "HEAD"
    range_headers = {} if is_head else context.request.headers  # HEAD describes the whole file
    part = ranges.requested_range(range_headers, etag, file.size)
    if part.is_partial:
        headers.append((b"content-range", part.header))
    if not is_head:
        context.slot.transfer(context.services.transfers)
    pieces = context.services.blobs.read(file.key, part.start, part.stop)
    return Response(
        b"" if is_head else await _first(pieces),
        206 if part.is_partial else 200,
        content_type=file.file_type.encode(),
        headers=tuple(headers),
        length=part.stop - part.start,
        rest=pieces,
    )


async def _first(pieces: AsyncIterator[bytes]) -> bytes:
    """What the store has to say against it, it says here, before the answer begins."""
    try:
        return await anext(pieces, b"")
    except NoBlob as lost:
        _log.error("the store of files has lost a blob", extra={"key": str(lost)})
        raise NotFound from None


def _attachment(filename: str) -> bytes:
    if not filename:
        return b"attachment"
    return f"attachment; filename*=UTF-8''{quote(filename, safe='')}".encode()
