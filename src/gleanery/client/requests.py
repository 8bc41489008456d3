"""Requests of the client, before they are sent, and the filters that several of them have."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Literal, TypedDict
from urllib.parse import quote, urlencode

from gleanery.client.errors import ErrorDetail, Invalid

Parameter = str | int | bool | date | None
"""Value of a query parameter; None leaves it out. A datetime is a date, too."""

Body = bytes | Iterable[bytes] | AsyncIterable[bytes]
"""Body of a request. Each attempt iterates over it from the start."""


class Request:
    """One request. It can be sent several times."""

    __slots__ = (
        "body",
        "extra_seconds",
        "headers",
        "is_repeatable",
        "is_retried",
        "max_timeout",
        "method",
        "parameters",
        "path",
        "retries",
    )

    def __init__(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Parameter] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        *,
        extra_seconds: float = 0,
        is_retried: bool = True,
        is_repeatable: bool = True,
        max_timeout: float | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.parameters = parameters or {}
        self.headers = headers or {}
        self.body = body
        self.extra_seconds = extra_seconds
        """Time that the service may wait on purpose before it responds."""
        self.is_retried = is_retried
        self.is_repeatable = is_repeatable
        """False if the service must not execute it twice: then only a request that it has not
        executed is retried."""
        self.max_timeout = max_timeout
        """Longest timeout in seconds, if a late response is worth nothing."""
        self.retries = 0
        """Number of retries until now."""

    def __repr__(self) -> str:
        return f"Request({self.method!r}, {self.path!r})"

    @property
    def target(self) -> str:
        """Return the path with the query."""
        given = {
            name: render(value) for name, value in self.parameters.items() if value is not None
        }
        return f"{self.path}?{urlencode(given)}" if given else self.path


def json_request(
    method: str,
    path: str,
    value: Mapping[str, object] | Sequence[object],
    *,
    has_idempotency_key: bool = False,
) -> Request:
    """Return a request with a JSON body.

    With the idempotency key, the service executes the request once, even if it is sent again.
    """
    from json import dumps

    headers = {"content-type": "application/json"}
    if has_idempotency_key:
        headers["idempotency-key"] = os.urandom(16).hex()
    return Request(method, path, headers=headers, body=dumps(value).encode())


def to_json(records: Any) -> bytes:
    """Return the JSON text of records. An error does not contain a value."""
    from msgspec.json import encode

    try:
        return encode(records)
    except UnicodeEncodeError:  # its representation has the whole text
        raise ValueError("A record has a text that is not valid Unicode") from None


def write_headers(if_match: str | None) -> dict[str, str]:
    """Return the headers of a write of JSON, which can have a condition."""
    return {"content-type": "application/json"} | condition(if_match)


def condition(if_match: str | None) -> dict[str, str]:
    """Return the header that makes a write conditional, if a version is given."""
    return {} if if_match is None else {"if-match": if_match}


def path(*segments: str) -> str:
    """Return the path under ``/v1``. A segment can contain any character.

    Proxies and libraries remove empty segments and dots, so the request would go to another route.
    """
    if not all(segment.strip(".") or len(segment) > 2 for segment in segments):
        raise _invalid_name()
    try:
        return "/".join(["/v1", *(quote(segment, safe="") for segment in segments)])
    except UnicodeEncodeError:
        raise _invalid_name() from None


def _invalid_name() -> Invalid:
    message = "A name must be text that is not empty, not '.' and not '..'"
    return Invalid(422, [ErrorDetail(("path",), message, "value_error")])


def render(value: str | int | bool | date) -> str:
    """Return the text of a query parameter. A datetime without a zone is in UTC."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else str(value)


View = Literal["full", "approved"]
"""Outputs as they are now, or each output in its last approved version."""


class OutputFilters(TypedDict, total=False):
    """What outputs must have; None is the same as a filter that is left out."""

    job_id: str | None
    created_after: date | str | None
    """Also outputs that were updated since then."""
    url: str | None
    country: str | None
    region: str | None
    approved: bool | None
    view: View | None
    missing: Literal[True] | None
    """Only outputs that the last complete run of their job did not send."""


def describe_filters(filters: OutputFilters) -> dict[str, Any]:
    """Return the filters that are given, as JSON values."""
    values: dict[str, Any] = dict(filters)
    return {
        name: value if isinstance(value, bool) else render(value)
        for name, value in values.items()
        if value is not None
    }
