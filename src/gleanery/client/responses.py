"""Responses of the service: their values, or the error that they report."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from gleanery.client.errors import ApiError, ErrorDetail, InvalidResponse, error_class

if TYPE_CHECKING:
    from msgspec.json import Decoder

T = TypeVar("T")
_NEXT_LINK = re.compile(r'<([^<>]*)>\s*;\s*rel="?next"?')


@dataclass(frozen=True, slots=True)
class Response:
    """Response whose body is complete. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@cache
def _decoder(kind: Hashable) -> Decoder[Any]:
    from msgspec.json import Decoder

    return Decoder(kind)


def decode(response: Response, kind: type[T]) -> T:
    """Decode the body. Raise InvalidResponse if it has another form."""
    from msgspec import DecodeError

    try:
        value: T = _decoder(kind).decode(response.body)  # type: ignore[arg-type]
    except (DecodeError, RecursionError) as error:  # DecodeError names a path, never a value
        raise InvalidResponse(
            f"The response is not one of a Gleanery service, or of a newer version: {error}"
        ) from None
    return value


def raise_for_status(response: Response) -> None:
    """Raise the ApiError that a response reports, if it reports one."""
    if response.status >= 300:
        raise to_error(response)


def to_error(response: Response) -> ApiError:
    """Return the error that a response reports."""
    return error_class(response.status)(
        response.status, _details(response), response.headers.get("x-request-id")
    )


def _details(response: Response) -> list[ErrorDetail]:
    """Return the problems that the service lists; else what a proxy may have said."""
    try:
        details = json.loads(response.body)["detail"]
        return [
            ErrorDetail(tuple(map(str, row["loc"])), str(row["msg"]), str(row["type"]))
            for row in details
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        return [ErrorDetail((), _describe(response), "unknown")]


def _describe(response: Response) -> str:
    if 300 <= response.status < 400:
        place = response.headers.get("location", "another address")
        return f"The service redirects to {place.partition('?')[0]}: use its address as base URL"
    return f"The service responded with status {response.status} and without an explanation"


def next_cursor(response: Response) -> str | None:
    """Return the cursor of the next page from the Link header of a list."""
    match = _NEXT_LINK.search(response.headers.get("link", ""))
    if match is None:
        return None
    values = parse_qs(urlsplit(match[1]).query, keep_blank_values=True).get("cursor")
    if not values:
        raise InvalidResponse("The Link header of the response has no cursor")
    return values[0]
