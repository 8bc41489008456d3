"""From the bytes of a request to checked arguments, or to every fault that they have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, TypeAdapter, ValidationError

from gleanery import jsontext
from gleanery.api.calls import Receive
from gleanery.errors import Fault, Invalid, NotFound, TooLarge, UnsupportedMedia
from gleanery.fields import Name

IDEMPOTENCY_KEY = "[!-~]{1,255}"
_IDEMPOTENCY_KEY = re.compile(IDEMPOTENCY_KEY.encode())
_NAME: TypeAdapter[str] = TypeAdapter(Name)

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


class ClientGone(Exception):
    """The client went away before its request was whole: there is nobody to answer."""


# --- path ---------------------------------------------------------------------------------------


def bind_path(named: dict[str, str], creates: bool) -> None:
    """A name that nothing can have is not found, unless it was meant to come into being."""
    for parameter, text in named.items():
        try:
            _checked_name(text)
        except ValidationError as error:
            if not creates:
                raise NotFound from None
            raise Invalid(*_faults(("path", parameter), error)) from None


@lru_cache(maxsize=4096)
def _checked_name(text: str) -> str:
    return _NAME.validate_python(text)


# --- query --------------------------------------------------------------------------------------


def parse_query(raw: bytes) -> dict[str, str]:
    """The parameters as written. One that is given twice says two things: a fault."""
    if not raw:
        return {}
    try:
        pairs = _pairs(raw.decode("ascii"))
    except ValueError:
        raise Invalid(
            Fault(("query",), "expected percent-encoded UTF-8", "query_encoding")
        ) from None
    asked = dict(pairs)
    if len(asked) != len(pairs):
        times = Counter(name for name, _ in pairs)
        raise Invalid(
            *(
                Fault(("query", name), "given more than once", "given_twice")
                for name in times
                if times[name] > 1
            )
        )
    return asked


def _pairs(query: str) -> list[tuple[str, str]]:
    if "%" in query or "+" in query or ";" in query:
        return parse_qsl(query, keep_blank_values=True, errors="strict")
    split = (part.partition("=") for part in query.split("&") if part)
    return [(name, value) for name, _, value in split]


def bind_query(model: type[BaseModel], asked: dict[str, str]) -> BaseModel:
    """The parameters the operation knows; others are ignored."""
    try:
        return model.model_validate(asked)
    except ValidationError as error:
        raise Invalid(*_faults(("query",), error)) from None


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
        raise Invalid(
            Fault(
                ("header", "idempotency-key"),
                "expected 1 to 255 printable ASCII characters without space",
                "idempotency_key",
            )
        )
    return key.decode("ascii")


async def until_gone(receive: Receive) -> None:
    """Returns when the client has gone; to be asked when its body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _received(receive: Receive) -> AsyncIterator[bytes]:
    """The body, piece by piece, as the connection gives it."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def read_lines(receive: Receive, longest: int) -> AsyncIterator[bytes]:
    """The lines of a body of any length; only one is held at a time."""
    held: list[bytes] = []
    size = 0
    async for chunk in _received(receive):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join((*held, end))
            held, size = [], 0
        held.append(rest)
        size += len(rest)
        if size > longest:
            raise TooLarge(longest)
    if size:
        yield b"".join(held)


async def read_chunks(receive: Receive, headers: Headers, limit: int) -> AsyncIterator[bytes]:
    """The body as it comes in; ends with an error as soon as it is longer than the limit."""
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced) > limit:
        raise TooLarge(limit)
    size = 0
    async for chunk in _received(receive):
        size += len(chunk)
        if size > limit:
            raise TooLarge(limit)
        yield chunk


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """The whole body."""
    return b"".join([chunk async for chunk in read_chunks(receive, headers, limit)])


def bind_body(type_: TypeAdapter[Any], text: bytes, max_records: int) -> Any:
    """The body's value; of an array, every element's every fault is told."""
    if not text:
        raise Invalid(Fault(("body",), "The body is empty", "json"))
    try:
        value = jsontext.decode(text)
        if isinstance(value, list) and len(value) > max_records:
            raise Invalid(
                Fault(("body",), f"The array may hold {max_records} records at most", "too_long")
            )
        return type_.validate_python(value)
    except jsontext.BadJson as error:
        raise Invalid(Fault(("body",), str(error), "json")) from None
    except ValidationError as error:
        raise Invalid(*_faults(("body",), error)) from None


def _faults(where: tuple[str, ...], error: ValidationError) -> Iterable[Fault]:
    """pydantic's faults without the values: those may be credentials."""
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        words = _WORDS.get(fault["type"], fault["msg"])
        yield Fault((*where, *map(str, fault["loc"])), words, fault["type"])
