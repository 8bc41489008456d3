"""The rows of the table that is the API: operations with everything about them, and their routing.

An operation has its route, handler, input, response, description and example. The router finds the
operation of a method and path in a tree of path segments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel

from gleanery.service.api.binding import BoundQuery
from gleanery.service.api.response import Response
from gleanery.service.api.services import Services
from gleanery.service.foundation.errors import MethodNotAllowed, NotFound
from gleanery.service.foundation.models import NoQuery
from gleanery.service.storage.database import Page, PageRead

Handler = Callable[[Any], Awaitable[Response]]
_MAX_CACHED_PATH = 512
_UPLOAD_ADVICE = "; curl -T sends PUT: add -X POST"
SERVICE_URL = "https://gleanery.example.com"
"""Address in the examples. It is not that of a real service, where these links would get 404."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """Request and response of one operation."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """JSON value; a string for other media types."""
    response: Any = None
    """JSON value; a string for other media types."""
    is_excerpt: bool = False
    """True if a real response has more text or members."""


class BatchedPage(NamedTuple):
    """How small pages of an operation are read in batches; see ``read_batches``."""

    max_items: int
    """Items of the largest page for which a batch saves time."""
    read: Callable[[Services, int, dict[str, str], Any, int], PageRead]
    """Describes the read of a request: its organization, path, query and cursor."""
    respond: Callable[[Services, int, dict[str, str], BoundQuery, Page], Response | None]
    """Makes the response of a page. None if a task has to make it."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One row: route, handler, required scopes, input, response and description."""

    method: str
    path: str
    handler: Handler
    title: str
    description: str
    scopes: tuple[str, ...] = ()
    """Scopes that the token must have, all of them; empty if the operation needs no token."""
    needs_session: bool = False
    """True if only a session of the console may call the operation."""
    creates_resource: bool = False
    """True if the path may name a new record. Otherwise an invalid name gets 404."""
    query: type[BaseModel] | None = None
    body: Any = None
    """Type of a JSON body; ``bytes`` for a streamed body of any media type.

    ``str`` is a document of any media type. The handler gets its bytes, because a document may
    say its encoding itself.
    """
    max_body_bytes: int | None = None
    """Limit of a JSON body, if it is smaller than that of the settings."""
    ndjson_handler: Handler | None = None
    """Handler of an NDJSON body."""
    accepts_idempotency_key: bool = False
    """True if a repeated request with the same Idempotency-Key gets the first response."""
    has_etag: bool = False
    """True if the response has an ETag, and a request with If-None-Match can get 304."""
    accepts_if_match: bool = False
    """True if a request with If-Match fails with 412 if the records have changed meanwhile."""
    ndjson_response: Any = None
    """Type of the response to an NDJSON body."""
    response: Any = None
    status: int = 200
    """Status of success; 307 for a redirect, which has no body."""
    media_type: str = "application/json"
    other_media_types: tuple[str, ...] = ()
    """Other media types that a parameter of the request can choose."""
    may_be_text: bool = False
    """True if a successful response can be ``text/plain`` as well."""
    response_headers: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of the headers that a successful response has."""
    extra_errors: tuple[int, ...] = ()
    """Error statuses that do not follow from the other fields."""
    always_admit: bool = False
    """True if the request is admitted even when the service is overloaded.

    Anybody may send such a request at any rate, so each must cost little.
    """
    is_static: bool = False
    """True if the response is always the same, so that it is compressed once."""
    batched_page: BatchedPage | None = None
    """How repeated requests for small pages are read in batches; None if they are not."""
    bind_json: Callable[[bytes, int, int, Any], Any] | None = None
    """Makes the body of a JSON text, the limits of records and values, and the query.

    If it is None, the type of the body decides.
    """
    example: Example | None = None
    ndjson_example: Example | None = None

    @cached_property
    def name(self) -> str:
        return self.handler.__name__

    @cached_property
    def query_model(self) -> type[BaseModel] | None:
        """Model of the query. Only pages and probes ignore their query."""
        if self.query is None and self.path.startswith(("/v1/", "/console/api/")):
            return NoQuery
        return self.query

    @property
    def path_parameters(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    def error_statuses(self) -> list[int]:
        """List every error status that this operation can return."""
        possible = {431, 500, *self.extra_errors}
        if self.scopes or self.needs_session:
            possible |= {401, 403, 429}
        if not self.always_admit:
            possible |= {503}
        if self.path_parameters and not self.creates_resource:
            possible |= {404}
        if self.query_model is not None:
            possible |= {422}
        if self.body is not None:
            possible |= {413, 415, 422}
        if self.response is bytes:
            possible |= {412, 416}
        if self.accepts_idempotency_key:
            possible |= {409}
        if self.accepts_if_match:
            possible |= {412, 422}
        return sorted(possible)


@dataclass(frozen=True, kw_only=True)
class Resource:
    """The operations of a resource, with its tags in the reference."""

    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of its paths, and their descriptions."""
    operations: tuple[Operation, ...] = ()
    console_operations: tuple[Operation, ...] = ()
    """Operations of the console. They are not a part of the public API and may change."""


# --- routing ------------------------------------------------------------------------------------


class Match(NamedTuple):
    """Operation of a request, with its path parameters."""

    operation: Operation
    path: dict[str, str]


class _Node:
    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.parameter: tuple[str, _Node] | None = None
        self.operations: dict[str, Operation] = {}

    def child(self, segment: str) -> _Node:
        if not segment.startswith("{"):
            return self.children.setdefault(segment, _Node())
        if self.parameter is None:
            self.parameter = (segment[1:-1], _Node())
        return self.parameter[1]


class Router:
    """Finds operations by the encoded path, so that an encoded slash stays in its segment."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        for operation in operations:
            node = self._root
            for segment in operation.path.split("/"):
                node = node.child(segment)
            node.operations[operation.method] = operation
            if operation.method == "GET":
                node.operations["HEAD"] = operation
        self._cached_find = lru_cache(maxsize=4096)(self._find)

    def find(self, method: str, raw_path: bytes) -> Match:
        """Return the operation and the path parameters, which callers must not change."""
        find = self._cached_find if len(raw_path) <= _MAX_CACHED_PATH else self._find
        return find(method, raw_path)

    def _find(self, method: str, raw_path: bytes) -> Match:
        node = parent = self._root
        parameters = {}
        for segment in raw_path.decode("latin-1").split("/"):
            child = node.children.get(segment)
            if child is None:
                if node.parameter is None:
                    raise _no_route(raw_path)
                name, child = node.parameter
                # Binding rejects text that is not UTF-8, after the authentication.
                parameters[name] = unquote_to_bytes(segment).decode("utf-8", "surrogateescape")
            parent, node = node, child
        if not node.operations:
            raise _no_route(raw_path)
        is_last_empty = raw_path.endswith(b"/") and bool(parameters)
        if is_last_empty and (parent.operations or method not in node.operations):
            raise _no_route(raw_path)
        if method not in node.operations:
            is_upload = method == "PUT" and "POST" in node.operations
            raise MethodNotAllowed(node.operations, _UPLOAD_ADVICE if is_upload else "")
        return Match(node.operations[method], parameters)


def _no_route(raw_path: bytes) -> NotFound:
    has_slash = raw_path.endswith(b"/")
    advice = "remove the slash at the end of the path" if has_slash else "see /docs"
    return NotFound(msg=f"This route does not exist: {advice}")
