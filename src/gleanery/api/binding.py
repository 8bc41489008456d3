"""From the bytes of a request to checked arguments, or to every detail that they have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from enum import Enum
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from pydantic import BaseModel, TypeAdapter, ValidationError

from gleanery.api.error_responses import as_service_error
from gleanery.errors import BodyTooLarge, ErrorDetail, InvalidRequest, NotFound, UnsupportedMedia
from gleanery.http import ClientDisconnected, HttpError, Request
from gleanery.models import batches
from gleanery.models.fields import Name
from gleanery.models.requests import Output, OutputIn
from gleanery.values import json_text

IDEMPOTENCY_KEY = "[!-~]{1,255}"
_IDEMPOTENCY_KEY = re.compile(IDEMPOTENCY_KEY.encode())

# In JSON's words, where pydantic's are Python's.
_WORDS = {
    "bool_type": "expected true or false",
    "dict_type": "expected an object",
    "int_type": "expected an integer",
    "list_type": "expected an array",
    "missing": "is missing",
    "model_type": "expected an object",
    "string_type": "expected a string",
}


# --- path ---------------------------------------------------------------------------------------


def bind_path(named: dict[str, str], creates: bool) -> None:
    """A name that nothing can have is not found, unless it was meant to come into being."""
    for parameter, text in named.items():
        try:
            _checked_name(text)
        except ValidationError as error:
            if not creates:
                raise NotFound from None
            raise InvalidRequest(*_faults(("path", parameter), error)) from None


@lru_cache(maxsize=4096)
def _checked_name(text: str) -> str:
    name: str = _validator(Name).validate_python(text)
    return name


# --- query --------------------------------------------------------------------------------------


class BoundQuery(NamedTuple):
    """The query of a request; parameters that the operation does not know are ignored."""

    query: Any = None
    repeated: tuple[tuple[str, str], ...] = ()
    """The others as they were written, but for the cursor, for links that repeat them."""
    cursor: int = 0


def bind_query(model: type[BaseModel], raw: bytes) -> BoundQuery:
    given = _parsed(raw)
    try:
        query = model.model_validate(given)
    except ValidationError as error:
        raise InvalidRequest(*_faults(("query",), error)) from None
    known = model.model_fields.keys() & given.keys() - {"cursor"}
    repeated = tuple((name, given[name]) for name in sorted(known))
    return BoundQuery(query, repeated, getattr(query, "cursor", 0))


def _parsed(raw: bytes) -> dict[str, str]:
    """The parameters as written. One that is given twice says two things: a detail."""
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", separator="&"
        )
    except ValueError:
        raise InvalidRequest(
            ErrorDetail(("query",), "expected percent-encoded UTF-8", "query_encoding")
        ) from None
    asked = dict(pairs)
    if len(asked) != len(pairs):
        times = Counter(name for name, _ in pairs)
        raise InvalidRequest(
            *(
                ErrorDetail(("query", name), "given more than once", "given_twice")
                for name in times
                if times[name] > 1
            )
        )
    return asked


# --- body ---------------------------------------------------------------------------------------


class Media(Enum):
    """How a body is written."""

    JSON = "application/json"
    LINES = "application/x-ndjson"


Headers = Mapping[bytes, bytes]


def refuse_coding(headers: Headers) -> None:
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise UnsupportedMedia("content-encoding", "Send the body without Content-Encoding")


def media_of(headers: Headers, *known: Media) -> Media:
    """Which of the known media the body is; in UTF-8, not compressed."""
    media, _, parameters = headers.get(b"content-type", b"").decode("latin-1").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    refuse_coding(headers)
    for one in known:
        if media.strip().lower() == one.value and charset in ("", "charset=utf-8"):
            return one
    names = " or ".join(one.value for one in known)
    raise UnsupportedMedia("content-type", f"Send Content-Type: {names}, in UTF-8")


def idempotency_key(headers: Headers) -> str | None:
    key = headers.get(b"idempotency-key")
    if key is None:
        return None
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidRequest(
            ErrorDetail(
                ("header", "idempotency-key"),
                "expected 1 to 255 printable ASCII characters without space",
                "idempotency_key",
            )
        )
    return key.decode("ascii")


async def _receive(request: Request) -> bytes:
    """Returns the next piece of the body. Errors of the HTTP exchange become the service's own."""
    try:
        return await request.receive()
    except ClientDisconnected:
        raise
    except HttpError as error:
        raise as_service_error(error) from error


async def read_lines(request: Request, longest: int) -> AsyncIterator[bytes]:
    """The lines of a body of any length; only one is held at a time."""
    held: list[bytes] = []
    size = 0
    while chunk := await _receive(request):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join((*held, end))
            held, size = [], 0
        held.append(rest)
        size += len(rest)
        if size > longest:
            raise _too_large(request, longest)
    if size:
        yield b"".join(held)


async def read_chunks(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The body as it comes in; ends with an error as soon as it is longer than the limit."""
    announced = request.headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(request, limit)
    size = 0
    while chunk := await _receive(request):
        size += len(chunk)
        if size > limit:
            raise _too_large(request, limit)
        yield chunk


def _too_large(request: Request, limit: int) -> BodyTooLarge:
    request.keep_alive = False  # or the rest of the body would be read to its end
    return BodyTooLarge(limit)


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body."""
    return b"".join([chunk async for chunk in read_chunks(request, limit)])


@cache
def _validator(type_: Any) -> TypeAdapter[Any]:
    """Made when it is first needed: the start does not wait for all of them."""
    return TypeAdapter(type_)


def bind_body(type_: Any, text: bytes, max_records: int) -> Any:
    """The body's value; outputs are bound as a batch, of which nothing may have been read yet."""
    if type_ == list[OutputIn]:
        return batches.of_array(text, max_records, partial(_outputs, text, max_records))
    return bind_strictly(type_, text, max_records)


def _outputs(text: bytes, max_records: int) -> list[Output]:
    bound: list[OutputIn] = bind_strictly(list[OutputIn], text, max_records)
    return [output.checked() for output in bound]


def bind_strictly(type_: Any, text: bytes, max_records: int) -> Any:
    """By the model; of an array, every element's every detail is told."""
    if not text:
        raise InvalidRequest(ErrorDetail(("body",), "The body is empty", "json"))
    try:
        value = json_text.decode(text)
        if isinstance(value, list) and len(value) > max_records:
            raise InvalidRequest(
                ErrorDetail(
                    ("body",), f"The array may hold {max_records} records at most", "too_long"
                )
            )
        return _validator(type_).validate_python(value)
    except json_text.BadJson as error:
        raise InvalidRequest(ErrorDetail(("body",), str(error), "json")) from None
    except ValidationError as error:
        raise InvalidRequest(*_faults(("body",), error)) from None


def _faults(where: tuple[str, ...], error: ValidationError) -> Iterable[ErrorDetail]:
    """pydantic's details without the values: those may be credentials."""
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        words = _WORDS.get(detail["type"], detail["msg"])
        yield ErrorDetail((*where, *map(str, detail["loc"])), words, detail["type"])
