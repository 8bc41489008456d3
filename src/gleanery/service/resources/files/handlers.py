"""The handlers of files: upload of bytes or of a form, lookup, and download with ranges.

The media type of a file is detected from its first bytes and its declared type.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote

from pydantic import ValidationError

from gleanery.service.api.context import RequestContext
from gleanery.service.api.response import Response
from gleanery.service.api.services import Services
from gleanery.service.foundation.blobs import BlobNotFound
from gleanery.service.foundation.errors import (
    ErrorDetail,
    InvalidRequest,
    InvalidSignature,
    UnsupportedMedia,
    no_file,
)
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.http import InvalidForm
from gleanery.service.http.content import FileForm, requested_range
from gleanery.service.http.request import check_precondition, is_not_modified
from gleanery.service.resources.files import records
from gleanery.service.resources.files.links import FileLinks
from gleanery.service.resources.files.models import BlobQuery, FileQuery, FileUpload
from gleanery.service.storage.database import Database

_log = logging.getLogger("gleanery")
_FORM = "multipart/form-data"
_OTHER_FORM = "application/x-www-form-urlencoded"
_HOW_TO_SEND = (
    "send the bytes with curl --data-binary @x.pdf -H 'Content-Type: application/pdf', "
    "or one file with curl -F file=@x.pdf"
)
_FILE_POLICY = b"default-src 'none'; sandbox"  # protects a browser that displays the file

HEAD_BYTES = 4096
"""The number of bytes at the start of a file that detection needs."""

_UNKNOWN_TYPE = "application/octet-stream"
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")
_MIN_CONFIDENCE = 0.3  # a match of three bytes; a match of two may be the start of a CSV file
_ZIP = "application/zip"
_CONTAINERS = (b"PK", b"\xd0\xcf\x11\xe0")  # ZIP and OLE: formats of many document types
_TEXT_TYPE = re.compile(r"text/|.*[/+](json|xml)$|application/mbox")


# --- uploads ------------------------------------------------------------------------------------


class _Content(NamedTuple):
    """The bytes of a file, and what the client says about them."""

    chunks: AsyncIterator[bytes]
    declared_type: str
    filename: str


async def _open_body(context: RequestContext[FileUpload, AsyncIterator[bytes]]) -> _Content:
    """Open the body: the bytes of the file, or a form with one file."""
    declared = context.request.headers.get(b"content-type", b"").decode("latin-1")
    media_type = declared.partition(";")[0].strip().lower()
    if media_type == _OTHER_FORM:
        raise UnsupportedMedia(
            "content-type",
            f"{_OTHER_FORM} is the default of curl -d, which changes the bytes: {_HOW_TO_SEND}",
        )
    if media_type != _FORM:
        return _Content(context.body, declared, context.query.filename)
    with _as_invalid_request():
        form = FileForm(declared, context.body)
        head = await form.head()
    filename = context.query.filename or _check_filename(head.filename)
    return _Content(_read_form(form), head.content_type, filename)


async def _read_form(form: FileForm) -> AsyncIterator[bytes]:
    with _as_invalid_request():
        async for chunk in form.content():
            yield chunk


@contextmanager
def _as_invalid_request() -> Iterator[None]:
    try:
        yield
    except InvalidForm as error:
        detail = ErrorDetail(("body",), f"{error}; {_HOW_TO_SEND}", "invalid_form")
        raise InvalidRequest(detail) from None


def _check_filename(filename: str) -> str:
    """Check the file name of a form by the rules of the query parameter."""
    try:
        return FileUpload(filename=filename).filename
    except ValidationError as error:
        [found] = error.errors(include_url=False, include_context=False, include_input=False)
        detail = ErrorDetail(("body", "filename"), found["msg"], found["type"])
        raise InvalidRequest(detail) from None


class _Upload:
    """Hashes and counts the bytes of a file while they are written to the store."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._head_chunks: list[bytes] = []
        self._hash = hashlib.sha256()
        self.size = 0

    async def head(self) -> bytes:
        """Read the first bytes; ``chunks`` returns them again."""
        size = 0
        async for chunk in self._body:
            self._head_chunks.append(chunk)
            size += len(chunk)
            if size >= HEAD_BYTES:
                break
        return b"".join(self._head_chunks)[:HEAD_BYTES]

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._head_chunks:
            yield self._count(chunk)
        self._head_chunks = []
        async for chunk in self._body:
            yield self._count(chunk)

    def _count(self, chunk: bytes) -> bytes:
        self._hash.update(chunk)
        self.size += len(chunk)
        return chunk

    @property
    def checksum(self) -> bytes:
        return self._hash.digest()


async def store_file(context: RequestContext[FileUpload, AsyncIterator[bytes]]) -> Response:
    s, query = context.services, context.query
    context.slot.transfer(s.capacity.transfers)
    content = await _open_body(context)
    upload = _Upload(content.chunks)
    head = await upload.head()
    file_type = await asyncio.to_thread(detect_media_type, head, content.declared_type)
    key = await records.begin_upload(context.database, s.clock())
    file = None
    try:
        await s.blobs.put(key, file_type, upload.chunks(), _max_size(context))
        received = records.Upload(
            upload.checksum, upload.size, file_type, query.source_url, query.etag, content.filename
        )
        file = await records.finish_upload(context.database, key, received, s.clock())
        # The blob can be missing after a restore from an old backup.
        if file.key != key and not await s.blobs.exists(file.key):
            await s.blobs.copy(key, file.key)
    finally:
        # The upload failed, or its bytes were known. If the store is away, the sweep deletes them.
        if (file is None or file.key != key) and not s.blobs.is_away:
            await asyncio.shield(_delete_blob(s, context.database, key))
    return Response(encode(file.to_response()))


def _max_size(context: RequestContext[FileUpload, AsyncIterator[bytes]]) -> int:
    """Return the most bytes that the body can have."""
    length = context.request.headers.get(b"content-length", b"")
    return int(length) if length.isdigit() else context.services.settings.max_file_bytes


async def _delete_blob(services: Services, database: Database, key: str) -> None:
    """Delete the blob of an upload. If this fails, the sweep does it later."""
    try:
        await records.delete_unreferenced_blob(database, services.blobs, key)
    except Exception:
        _log.exception("a blob could not be deleted; the sweep will delete it")


def detect_media_type(head: bytes, declared: str) -> str:
    """Return the media type of a file from its first bytes and its Content-Type header.

    The declared type wins for text and for containers: the first bytes do not identify those.
    """
    declared = declared.partition(";")[0].strip().lower()
    if not _MEDIA_TYPE.fullmatch(declared):
        declared = _UNKNOWN_TYPE
    detected = _detect(head)
    if not detected or declared in detected:
        return declared
    is_ambiguous = head.startswith(_CONTAINERS) or _TEXT_TYPE.match(detected[0])
    if is_ambiguous and declared != _UNKNOWN_TYPE:
        return declared
    return _ZIP if head.startswith(b"PK") else detected[0]


def _detect(head: bytes) -> list[str]:
    """Return the types with the highest confidence, or none if the confidence is too low."""
    import puremagic  # imported on first use: its table takes a tenth of the start to load

    try:
        matches = puremagic.magic_string(head)
    except (puremagic.PureError, ValueError):
        return []
    confidence = max((match.confidence for match in matches), default=0.0)
    if confidence < _MIN_CONFIDENCE:
        return []
    types = [match.mime_type.strip() for match in matches if match.confidence == confidence]
    return [name for name in types if _MEDIA_TYPE.fullmatch(name) and name != _UNKNOWN_TYPE]


# --- look-up and download -----------------------------------------------------------------------


async def find_file(context: RequestContext[FileQuery, None]) -> Response:
    query, now = context.query, context.services.clock()
    file = await records.find_by_source(context.database, query.source_url, query.etag, now)
    return Response(encode(file.to_response()))


async def get_file(context: RequestContext[None, None]) -> Response:
    file = await records.find(context.database, context.path["id"])
    return await _send_file(context, file)


async def get_blob(context: RequestContext[BlobQuery, None]) -> Response:
    s, query = context.services, context.query
    parts = (context.path["id"], query.organization, query.expires, query.signature)
    if not s[FileLinks].is_valid(*parts, now=s.clock() // timestamps.SECOND):
        raise InvalidSignature
    organization_id = int(query.organization)  # the signature proves the organization
    context.slot.assign_tenant(organization_id)
    context.request.state.organization = organization_id
    database = s.database.for_tenant(organization_id)
    file = await records.find(database, context.path["id"])
    return await _send_file(context, file)


async def _send_file(
    context: RequestContext[BlobQuery, None] | RequestContext[None, None], file: records.File
) -> Response:
    etag = b'"%s"' % file.checksum.hex().encode()
    headers = [
        (b"etag", etag),
        (b"accept-ranges", b"bytes"),
        (b"content-disposition", _attachment(file.filename)),
        (b"content-security-policy", _FILE_POLICY),
    ]
    check_precondition(context.request.headers, etag)
    if is_not_modified(context.request.headers, etag):
        return Response(b"", 304, headers=tuple(headers))
    is_head = context.request.method == "HEAD"
    range_headers = {} if is_head else context.request.headers  # HEAD describes the whole file
    part = requested_range(range_headers, etag, file.size)
    if part.is_partial:
        headers.append((b"content-range", part.header))
    if not is_head:
        context.slot.transfer(context.services.capacity.transfers)
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
    """Read the first chunk, so that an error of the store is found before the response starts."""
    try:
        return await anext(pieces, b"")
    except BlobNotFound as lost:
        _log.error("a blob is missing in the store", extra={"key": str(lost)})
        raise no_file() from None


def _attachment(filename: str) -> bytes:
    if not filename:
        return b"attachment"
    return f"attachment; filename*=UTF-8''{quote(filename, safe='')}".encode()
