"""The arguments of a handler: path, query and body, validated, or all error details.

A body is read without its Content-Encoding, in bounded pieces.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from enum import Enum
from functools import cache, lru_cache
from typing import Annotated, Any, NamedTuple, get_origin
from urllib.parse import parse_qsl

from pydantic import AfterValidator, BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from gleanery.common import suggestions
from gleanery.service.api.response import as_service_error
from gleanery.service.foundation.errors import (
    MAX_DETAILS,
    BodyTooLarge,
    CompressionTooStrong,
    ErrorDetail,
    InvalidRequest,
    UnsupportedCoding,
    UnsupportedMedia,
    first_problems,
    no_record,
)
from gleanery.service.foundation.field_types import Name, StoredName, as_validation_error
from gleanery.service.foundation.models import UNKNOWN_NAME
from gleanery.service.foundation.scheduling.byte_limits import ByteReservation
from gleanery.service.foundation.values import json_text
from gleanery.service.foundation.values.compression import (
    GZIP,
    ZSTD,
    Codec,
    Decompressor,
    InvalidData,
)
from gleanery.service.http import ClientDisconnected, HttpError, Request

IDEMPOTENCY_KEY = "[!-~]{1,255}"
NDJSON_ADVICE = "; send more as NDJSON, with Content-Type: application/x-ndjson"
_NDJSON_TYPE = "; send NDJSON with Content-Type: application/x-ndjson, in curl with --data-binary"
_SEVERAL_OBJECTS = re.compile(rb"\}\s*\{")
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")  # how gzip and zstd begin
_VALUES_PER_RECORD = 20  # of a cookie or an entry, which are parsed at once
_MIN_VALUES = 100_000
_IDEMPOTENCY_KEY = re.compile(IDEMPOTENCY_KEY.encode())

_MAX_PARAMETERS = 100  # more than any operation has
_RECORDS_PER_STEP = 100  # enough for a fast check, few enough to stop soon after many problems

_TEXT_FIELD = "Value"  # what pydantic calls a text that a function of ours has checked
# Messages in JSON terms for errors that pydantic describes in Python terms.
_MESSAGES = {
    "bool_type": "expected true or false",
    "dict_type": "expected an object",
    "int_type": "expected an integer",
    "list_type": "expected an array",
    "missing": "is missing",
    "model_type": "expected an object",
    "string_type": "expected a string",
}


# --- path ---------------------------------------------------------------------------------------


def bind_path(names: dict[str, str], creates_resource: bool) -> None:
    """Check the names in the path. An invalid name gets 404, unless it may be a new one."""
    for parameter, text in names.items():
        try:
            _check_name(text, creates_resource)
        except ValidationError as error:
            if not creates_resource:
                raise no_record(parameter) from None
            raise InvalidRequest(*error_details(("path", parameter), error)) from None


@lru_cache(maxsize=4096)
def _check_name(text: str, is_new: bool) -> str:
    name: str = _validator(_NewPathName if is_new else _PathName).validate_python(text)
    return name


def _check_encoding(text: str) -> str:
    """Reject the surrogates by which the router replaces bytes that are not UTF-8."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("expected percent-encoded UTF-8")
    return text


_CheckedEncoding = AfterValidator(as_validation_error("path_encoding", _check_encoding))
_NewPathName = Annotated[Name, _CheckedEncoding]
_PathName = Annotated[StoredName, _CheckedEncoding]


# --- query --------------------------------------------------------------------------------------


class BoundQuery(NamedTuple):
    """Validated query of a request."""

    query: Any = None
    next_page_parameters: tuple[tuple[str, str], ...] = ()
    """Parameters as sent, without the cursor, for the URL of the next page."""
    cursor: int = 0


def bind_query(model: type[BaseModel], raw: bytes) -> BoundQuery:
    """Validate the parameters. An unknown or repeated parameter is an error."""
    parameters = _parse_query(raw)
    try:
        query = model.model_validate(parameters)
    except ValidationError as error:
        raise InvalidRequest(*error_details(("query",), error)) from None
    sent = sorted(parameters.keys() - {"cursor"})
    next_page_parameters = tuple((name, parameters[name]) for name in sent)
    return BoundQuery(query, next_page_parameters, getattr(query, "cursor", 0))


def _parse_query(raw: bytes) -> dict[str, str]:
    """Parse the parameters. A repeated parameter is an error."""
    if not raw:
        return {}
    if raw.count(b"&") >= _MAX_PARAMETERS:
        msg = f"At most {_MAX_PARAMETERS} parameters are allowed"
        raise InvalidRequest(ErrorDetail(("query",), msg, "too_long"))
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", separator="&"
        )
    except ValueError:
        raise InvalidRequest(
            ErrorDetail(("query",), "expected percent-encoded UTF-8", "query_encoding")
        ) from None
    parameters = dict(pairs)
    if len(parameters) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise InvalidRequest(
            *(
                ErrorDetail(("query", name), "given more than once", "given_twice")
                for name in counts
                if counts[name] > 1
            )
        )
    return parameters


# --- body ---------------------------------------------------------------------------------------


class Media(Enum):
    """Media type of a body."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"


Headers = Mapping[bytes, bytes]


def parse_media_type(headers: Headers, *known: Media) -> Media:
    """Return the media type of the body, which must be in UTF-8."""
    media, _, parameters = headers.get(b"content-type", b"").decode("latin-1").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    for candidate in known:
        if media.strip().lower() == candidate.value and charset in ("", "charset=utf-8"):
            return candidate
    names = " or ".join(candidate.value for candidate in known)
    msg = f"Send Content-Type: {names}, in UTF-8"
    if Media.NDJSON in known:  # curl -T sends no Content-Type
        msg += "; for JSON Lines in curl: -H 'Content-Type: application/x-ndjson'"
    raise UnsupportedMedia("content-type", msg)


def idempotency_key(headers: Headers) -> str | None:
    key = headers.get(b"idempotency-key")
    if key is None:
        return None
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidRequest(
            ErrorDetail(
                ("header", "idempotency-key"),
                "expected 1 to 255 printable ASCII characters without spaces",
                "idempotency_key",
            )
        )
    return key.decode("ascii")


async def read_lines(
    body: Body, max_line_bytes: int, body_bytes: ByteReservation
) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a body of any length, as they arrive.

    Only the lines of one piece, and the beginning of the next line, are in memory. The beginning
    is reserved.
    """
    pending: list[bytes] = []
    size = 0
    while chunk := await body.receive():
        *ends, rest = chunk.split(b"\n")
        if ends:
            ends[0] = b"".join((*pending, ends[0]))
            yield ends
            pending, size = [], 0
        pending.append(rest)
        size += len(rest)
        if size > max_line_bytes:
            raise _too_large(body.request, max_line_bytes, "A line")
        body_bytes.resize(size + body.held_bytes)
    if size:
        yield [b"".join(pending)]


async def read_chunks(body: Body, limit: int) -> AsyncIterator[bytes]:
    """Yield the body as it arrives, and raise as soon as it is larger than the limit."""
    request = body.request
    declared_length = request.headers.get(b"content-length", b"")
    if declared_length.isdigit() and int(declared_length) > limit:
        raise _too_large(request, limit)
    size = 0
    while chunk := await body.receive():
        size += len(chunk)
        if size > limit:
            raise _too_large(request, limit)
        yield chunk


def _too_large(request: Request, limit: int, subject: str = "The body") -> BodyTooLarge:
    request.keep_alive = False  # otherwise the server would read the rest of the body
    return BodyTooLarge(limit, subject)


async def read_body(body: Body, limit: int, body_bytes: ByteReservation) -> bytes:
    """Read the complete body. A declared length is reserved before the first byte is read."""
    declared_length = body.request.headers.get(b"content-length", b"")
    reserved = int(declared_length) if declared_length.isdigit() else 0
    if reserved <= limit:  # otherwise the first chunk raises
        body_bytes.resize(reserved)
    pieces, size = [], 0
    async for chunk in read_chunks(body, limit):
        pieces.append(chunk)
        size += len(chunk)
        if size > reserved:
            body_bytes.resize(size + body.held_bytes)
    return b"".join(pieces)


@cache
def _validator(type_: Any) -> TypeAdapter[Any]:
    """Create a validator on first use, so that it does not delay the start."""
    return TypeAdapter(type_)


def bind_body(type_: Any, text: bytes, max_records: int, max_values: int) -> Any:
    """Return the value of a body."""
    max_values = min(max_values, max(_MIN_VALUES, _VALUES_PER_RECORD * max_records))
    check_value_count(text, max_values)
    return validate_with_model(type_, text, max_records)


def check_value_count(text: bytes, max_values: int, loc: tuple[str, ...] = ("body",)) -> None:
    """Reject a text whose values would need much more memory than its bytes."""
    if json_text.has_more_values(text, max_values):
        msg = f"At most {max_values} JSON values are allowed here: send less at a time"
        raise InvalidRequest(ErrorDetail(loc, msg, "too_many_values"))


def validate_with_model(
    type_: Any, text: bytes, max_records: int, *, is_batch: bool = False
) -> Any:
    """Validate a body by its model. The error lists the first problems of all elements.

    A batch can be one object, and its errors name NDJSON.
    """
    if not text:
        raise InvalidRequest(ErrorDetail(("body",), "The body is empty", "json"))
    try:
        value = json_text.decode(text)
    except json_text.InvalidJson as error:
        msg = f"{error}{advice_on_invalid_json(text, _NDJSON_TYPE if is_batch else '')}"
        raise InvalidRequest(ErrorDetail(("body",), msg, "json")) from None
    if isinstance(value, dict) and is_batch:
        value = [value]
    if isinstance(value, list) and len(value) > max_records:
        raise _too_many_records(max_records, NDJSON_ADVICE if is_batch else "")
    if isinstance(value, list) and get_origin(type_) is list:
        return _validate_array(type_, value)
    try:
        return _validator(type_).validate_python(value)
    except ValidationError as error:
        details = [*error_details(("body",), error)]
        raise InvalidRequest(*first_problems(details)) from None


def _validate_array(type_: Any, records: list[Any]) -> list[Any]:
    """Validate an array step by step: a record with problems takes 50 times as long as another."""
    validated: list[Any] = []
    details: list[ErrorDetail] = []
    for start in range(0, len(records), _RECORDS_PER_STEP):
        try:
            validated += _validator(type_).validate_python(
                records[start : start + _RECORDS_PER_STEP]
            )
        except ValidationError as error:
            details += error_details(("body",), error, first_index=start)
        if len(details) > MAX_DETAILS:
            break
    if details:
        raise InvalidRequest(*first_problems(details))
    return validated


def advice_on_invalid_json(text: bytes, on_several_objects: str) -> str:
    """Return advice about undeclared compression, or about several objects in one text."""
    if text.startswith(_COMPRESSED):
        return "; send a compressed body with Content-Encoding: gzip or zstd"
    has_several = text.lstrip().startswith(b"{") and _SEVERAL_OBJECTS.search(text)
    return on_several_objects if has_several else ""


def _too_many_records(limit: int, advice: str) -> InvalidRequest:
    msg = f"The array may have at most {limit} records{advice}"
    return InvalidRequest(ErrorDetail(("body",), msg, "too_long"))


def error_details(
    loc: tuple[str, ...], error: ValidationError, first_index: int | None = None
) -> Iterable[ErrorDetail]:
    """Yield pydantic's first errors without the values, which may be credentials.

    The errors of a part of an array have indexes in this part, which starts at the first index.
    """
    found_errors = error.errors(include_url=False, include_input=False)
    for found in found_errors[: MAX_DETAILS + 1]:
        path = found["loc"]
        if first_index is not None:
            path = (first_index + int(path[0]), *path[1:])
        yield ErrorDetail((*loc, *map(str, path)), _message(found), found["type"])


def _message(error: ErrorDetails) -> str:
    if error["type"] == UNKNOWN_NAME:
        return _suggestion(str(error["loc"][-1]), **error["ctx"])
    if error["type"] in ("too_long", "too_short"):
        return _length_message(error["ctx"])
    return _MESSAGES.get(error["type"], error["msg"])


def _length_message(context: Mapping[str, Any]) -> str:
    unit = "character" if context["field_type"] == _TEXT_FIELD else "element"
    bound, length = ("least", "min_length") if "min_length" in context else ("most", "max_length")
    number = context[length]
    return f"expected at {bound} {number} {unit}{'' if number == 1 else 's'}"


def _suggestion(name: str, noun: str, known: frozenset[str]) -> str:
    """Describe an unknown name, and name the most likely right one."""
    similar = suggestions.closest(name, known)
    if similar is not None:
        return f'unknown {noun}; did you mean "{similar}"?'
    if not known:
        return f"unknown {noun}; this operation has no {noun}s"
    return f"unknown {noun}; expected {', '.join(sorted(known))}"


_CODECS = {"gzip": GZIP, "x-gzip": GZIP, "zstd": ZSTD}
_PIECE_BYTES = 64 * 1024  # decompressed in 0.3 ms at most
_MAX_RATIO = 500  # most outputs compress to a fifth, very similar ones to a two-hundredth
_ANY_RATIO_BYTES = 1024 * 1024
_ACCEPTED = "gzip, zstd"
_NOT_ACCEPTED = "Send the body with Content-Encoding: gzip or zstd, or without Content-Encoding"
_FILE_NOT_ACCEPTED = "A file is stored as it is sent: send it without Content-Encoding"


class Body:
    """Body of a request."""

    def __init__(self, request: Request) -> None:
        self.request = request

    @property
    def held_bytes(self) -> int:
        """Bytes in memory besides those that were received."""
        return 0

    async def receive(self) -> bytes:
        """Return the next piece, empty at the end. Convert errors of the HTTP connection."""
        state = self.request.state
        try:
            with state.idle():
                piece = await self.request.receive()
        except ClientDisconnected:
            raise
        except HttpError as error:
            raise as_service_error(error) from error
        state.received_bytes += len(piece)
        return piece


class DecodedBody(Body):
    """Body that is decompressed while it arrives.

    The reader limits the size. So a small body that decompresses to a huge one needs little memory.
    """

    def __init__(self, request: Request, codec: Codec) -> None:
        super().__init__(request)
        self._decompressor = Decompressor(codec)

    @property
    def held_bytes(self) -> int:
        return self._decompressor.held_bytes

    async def receive(self) -> bytes:
        try:
            piece = await self._next_piece()
        except InvalidData as error:
            detail = ErrorDetail(("body",), str(error), "content_encoding")
            raise InvalidRequest(detail) from None
        self._check_ratio()
        return piece

    async def _next_piece(self) -> bytes:
        decompressor = self._decompressor
        while True:
            if not decompressor.needs_input:
                await asyncio.sleep(0)  # other requests run between the pieces
            elif received := await super().receive():
                decompressor.add(received)
            else:
                decompressor.check_end()
                return b""
            if piece := decompressor.read(_PIECE_BYTES):
                return piece

    def _check_ratio(self) -> None:
        """Limits the work that a client causes with few bytes."""
        size, consumed = self._decompressor.produced, self._decompressor.consumed
        if size > _ANY_RATIO_BYTES and size > _MAX_RATIO * consumed:
            self.request.keep_alive = False  # otherwise the server would read the rest of the body
            raise CompressionTooStrong(_ANY_RATIO_BYTES, _MAX_RATIO)


def open_body(request: Request) -> Body:
    """Return the body without its content coding. Raise UnsupportedCoding."""
    coding = _coding(request.headers)
    if not coding:
        return Body(request)
    if coding not in _CODECS:
        raise UnsupportedCoding(_NOT_ACCEPTED, _ACCEPTED)
    return DecodedBody(request, _CODECS[coding])


def open_file(request: Request) -> Body:
    """Return the bytes of a file. They are stored as they are sent, so a coding is an error."""
    if _coding(request.headers):
        raise UnsupportedCoding(_FILE_NOT_ACCEPTED, "identity")
    return Body(request)


def _coding(headers: Mapping[bytes, bytes]) -> str:
    """Return the codings as sent, empty if the body has none."""
    coding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    return "" if coding == "identity" else coding
