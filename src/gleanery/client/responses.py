"""Responses of the service: their values, or the error that they report."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from gleanery.client.errors import (
    UNEXPLAINED,
    ApiError,
    CursorExpired,
    ErrorDetail,
    Invalid,
    InvalidResponse,
    UnexpectedPage,
    error_class,
)

if TYPE_CHECKING:
    from msgspec.json import Decoder

T = TypeVar("T")
_GROUP = ("path", "group_id")
_JSON = "application/json"
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Response:
    """Response whose body is complete. The names of its headers are in lower case."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def __repr__(self) -> str:
        return f"Response({self.status})"


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
        media_type = _media_type(response)
        named = "" if media_type == _JSON else f" ({media_type or 'without a content type'})"
        raise InvalidResponse(
            f"The response{named} is not one of a Gleanery service, or of a newer version: {error}"
        ) from None
    return value


def find_page(response: Response) -> UnexpectedPage | None:
    """Return the error of an HTML page with a status of success, which no operation returns."""
    if response.status >= 300 or _media_type(response) not in _PAGES:
        return None
    return UnexpectedPage(
        f"The response is a page for people ({_media_type(response)}, status {response.status}), "
        "not one of a Gleanery service: a proxy or another service has sent it"
    )


def _media_type(response: Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def raise_for_status(response: Response) -> None:
    """Raise the ApiError that a response reports, if it reports one."""
    if response.status >= 300:
        raise to_error(response)


def to_error(response: Response, path: str | None = None) -> ApiError:
    """Return the error that a response reports. With the path, it names the group.

    Only the service knows that a cursor is too old: after that error, a copy is built again.
    """
    details = _details(response)
    if path is not None:
        details = [_name_group(detail, path) for detail in details]
    kind = error_class(response.status)
    if kind is CursorExpired and not details:
        kind = Invalid
    return kind(
        response.status,
        details or [ErrorDetail((), _describe(response), UNEXPLAINED)],
        response.headers.get("x-request-id"),
        retry_after(response),
    )


def _details(response: Response) -> list[ErrorDetail]:
    """Return the problems that the service lists; nothing if a proxy has responded."""
    from json import loads

    try:
        details = loads(response.body)["detail"]
        return [
            ErrorDetail(tuple(map(str, row["loc"])), str(row["msg"]), str(row["type"]))
            for row in details
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _name_group(detail: ErrorDetail, path: str) -> ErrorDetail:
    """Return the detail with the name of a group that does not exist."""
    if detail.loc != _GROUP or detail.type != "not_found":
        return detail
    segments = path.split("/")  # "", "v1", the resource, the group
    return detail._replace(msg=f"There is no group {unquote(segments[3])}")


def _describe(response: Response) -> str:
    if response.status in _REDIRECTS:
        place = response.headers.get("location", "another address").partition("?")[0]
        return f"The service redirects to {place[:200]!r}: use the address there as base URL"
    return f"The service responded with status {response.status} and without an explanation"


def retry_after(response: Response) -> float | None:
    """Return the seconds of the Retry-After header; None if there is none that can be read."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    return _seconds_until(value) if value else None


def _seconds_until(http_date: str) -> float | None:
    from email.utils import parsedate_to_datetime  # takes 10 ms

    try:
        date = parsedate_to_datetime(http_date)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())


def next_cursor(response: Response) -> str | None:
    """Return the cursor of the next page from the Link header of a list."""
    link, _, relation = response.headers.get("link", "").partition(">")
    if "next" not in relation:
        return None
    values = parse_qs(urlsplit(link.strip(" <")).query, keep_blank_values=True).get("cursor")
    if not values:
        raise InvalidResponse("The Link header of the response has no cursor")
    return values[0]
