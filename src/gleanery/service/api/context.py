"""What the API knows of a request: its state, whether it repeats another, and the handler's input.

The state is in ``request.state``, from the admission of a request to its end.

A client that pages sends the same request many times, except for the cursor. A client that polls
sends exactly the same one. If the headers repeat, the HTTP server reuses the parsed header block. A
memo in that block keeps the last target and its bound query. If only the cursor differs, the query
is not bound again. The memo ends with the connection.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from gleanery.service.api import binding
from gleanery.service.api.binding import BoundQuery
from gleanery.service.api.operation import Handler, Operation
from gleanery.service.api.response import Response
from gleanery.service.api.services import Services
from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest
from gleanery.service.foundation.scheduling.byte_limits import (
    UNCOUNTED_BYTES,
    ByteReservation,
    UnsentBytes,
    UnsentResponse,
    no_memory,
)
from gleanery.service.foundation.scheduling.fair_shares import Slot
from gleanery.service.foundation.security.tokens import Actor, Grant
from gleanery.service.foundation.values.compression import Codec
from gleanery.service.http import (
    ClientDisconnected,
    Header,
    HeaderBlock,
    Request,
    unless_disconnected,
)
from gleanery.service.storage.database import Database
from gleanery.service.storage.paging import ListPage, PageLimits

Query = TypeVar("Query")
Body = TypeVar("Body")
_NONE: Any = None
_ETAG = re.compile(rb'(W/)?"([\x21\x23-\x7e]*)"')
_ETAGS = re.compile(rb"\s*%b(\s*,\s*%b)*\s*" % (_ETAG.pattern, _ETAG.pattern))
_MAX_ETAGS = 10
_LARGE_BODY_BYTES = 256 * 1024  # parsed in a thread, so that other requests do not wait
# 18 digits are always below the maximum, so such a cursor is valid.
_CURSOR = re.compile(rb"(?:.*&)?cursor=([1-9][0-9]{0,17})(?:&.*)?")
_MAX_DIGITS = 18


# --- state --------------------------------------------------------------------------------------


class RequestState:
    """Data about one request from its admission to its end."""

    __slots__ = (
        "admitted",
        "body_bytes",
        "bound",
        "caller",
        "cursor",
        "idle_seconds",
        "is_response_sent",
        "organization",
        "rate_limit_headers",
        "received_bytes",
        "sending",
        "sent_bytes",
        "slot",
        "stored_outputs",
        "token",
        "unsent",
    )

    def __init__(self, caller: bytes) -> None:
        self.caller = caller
        """Digest of the Authorization header."""
        self.slot: Slot | None = None
        self.body_bytes: ByteReservation | None = None
        """The bytes of the body in memory; None for a request without such a body."""
        self.unsent: UnsentResponse | None = None
        """The bytes of a large response in memory; None for a small one."""
        self.bound: BoundRequest | None = None
        """Set if the request repeats the previous one, except for the cursor."""
        self.cursor = 0
        """Cursor of such a request."""
        self.rate_limit_headers: Sequence[Header] = ()
        self.is_response_sent = False
        """True if the response is written, at least to the write buffer."""
        self.admitted = time.perf_counter()
        self.idle_seconds = 0.0
        """Seconds in which the request waited for its client, or for a change."""
        self.organization: int | None = None
        """Id for the log and the usage; None without a valid token or a valid link."""
        self.token: int | None = None
        """Id of the token, for the log."""
        self.received_bytes = 0
        """Bytes of the body that were read, before they are decompressed."""
        self.sent_bytes = 0
        """Bytes of the response's body, compressed if it is."""
        self.stored_outputs = 0
        """Outputs that the request has created or updated."""
        self.sending: Sending | None = None
        """A response that a batch has sent, and that the client has not read yet."""

    def identify(self, grant: Grant) -> None:
        """Note whose request it is, for the log and the usage."""
        self.organization, self.token = grant.organization_id, grant.token_id

    @property
    def organization_id(self) -> int | None:
        """The tenant that holds the slot."""
        return None if self.slot is None else self.slot.organization_id

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Count the time in the context as time for which the service is not responsible."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.idle_seconds += time.perf_counter() - started

    def unsent_response(self, limit: UnsentBytes) -> UnsentResponse:
        """Return the bytes that the response holds; none at first."""
        if self.unsent is None:
            assert self.slot is not None
            self.unsent = UnsentResponse(limit, self.slot.organization_id)
        return self.unsent

    def release(self) -> None:
        """Release what the request holds of the limits that it shares with others."""
        if self.unsent is not None:
            self.unsent.release()
        if self.body_bytes is not None:
            self.body_bytes.release()
        if self.slot is not None:
            self.slot.release()
            self.slot = None


class Sending(NamedTuple):
    """A response that is being sent, and what its record needs."""

    response: Response
    operation: str
    """Name of the operation."""
    request_id: bytes
    started: float


# --- repetitions --------------------------------------------------------------------------------


class BoundRequest(NamedTuple):
    """The operation of a request, and its arguments except for the body."""

    operation: Operation
    path: dict[str, str]
    query: BoundQuery


class RequestMemo:
    """Cached results for requests with the same headers."""

    __slots__ = (
        "_around_cursor",
        "_path",
        "_query",
        "bound",
        "caller",
        "codec",
        "is_codec_known",
    )

    def __init__(self) -> None:
        self.caller = b""
        """Digest of the Authorization header; empty until the authenticator computes it."""
        self.bound: BoundRequest | None = None
        """The last request that was bound."""
        self.codec: Codec | None = None
        """Codec that the client accepts; valid if ``is_codec_known``."""
        self.is_codec_known = False
        self._path = self._query = b""
        self._around_cursor: tuple[bytes, bytes] | None = None

    def store(self, path: bytes, query: bytes, bound: BoundRequest) -> None:
        self.bound, self._path, self._query = bound, path, query
        self._around_cursor = None

    def find_cursor(self, path: bytes, query: bytes) -> int | None:
        """Return the cursor if the request differs from the stored one only in its cursor."""
        if self.bound is None or path != self._path:
            return None
        if query == self._query:
            return self.bound.query.cursor
        if self._around_cursor is None:  # computed late: most headers are never sent again
            self._around_cursor = _around_cursor(self._query)
        before, after = self._around_cursor
        if not (before and query.startswith(before) and query.endswith(after)):
            return None
        digits = query[len(before) : len(query) - len(after)]
        if not digits.isdigit() or digits[:1] == b"0" or len(digits) > _MAX_DIGITS:
            return None
        return int(digits)


def _around_cursor(query: bytes) -> tuple[bytes, bytes]:
    """Return the query before and after the cursor; empty if it has no cursor."""
    found = _CURSOR.fullmatch(query)
    if found is None:
        return b"", b""
    return query[: found.start(1)], query[found.end(1) :]


def memo_of(block: HeaderBlock) -> RequestMemo:
    """Return the memo of a header block; create it at the first request."""
    memo: RequestMemo | None = block.memo
    if memo is None:
        memo = block.memo = RequestMemo()
    return memo


def bind_target(
    operation: Operation, path: dict[str, str], request: Request
) -> tuple[BoundQuery, int]:
    """Return the query and its cursor. Remember them for requests that repeat this one."""
    state: RequestState = request.state
    if state.bound is not None:
        return state.bound.query, state.cursor
    binding.bind_path(path, operation.creates_resource)
    query = BoundQuery()
    if operation.query_model is not None:
        query = binding.bind_query(operation.query_model, request.query)
    if request.method == "GET":
        memo = memo_of(request.header_block)
        memo.store(request.path, request.query, BoundRequest(operation, path, query))
    return query, query.cursor


# --- the input of a handler ---------------------------------------------------------------------


@dataclass(slots=True)
class RequestContext(Generic[Query, Body]):
    """One request: its organization, and the validated path, query and body."""

    services: Services
    organization_id: int
    token_id: int | None
    request_id: bytes
    """Identifies the request in the audit log, together with the token."""
    request: Request
    path: dict[str, str]
    query: Query = _NONE
    """Query without the cursor: several requests may share this object."""
    cursor: int = 0
    next_page_parameters: tuple[tuple[str, str], ...] = ()
    """Parameters as sent, without the cursor, for the URL of the next page."""
    body: Body = _NONE
    idempotency_key: str | None = None
    if_match: tuple[str, ...] | None = None
    """ETags of which one must be current; None without a condition."""
    grant: Grant | None = None
    """Rights of the caller; None if the operation needs none."""

    @property
    def actor(self) -> Actor:
        """Return the actor for the audit log."""
        session = None if self.grant is None else self.grant.session
        person = None if session is None else session.person
        return Actor(self.token_id, self.request_id.decode("ascii"), person)

    @property
    def database(self) -> Database:
        """Return the database, restricted to the rows of the organization."""
        return self.services.database.for_tenant(self.organization_id)

    @property
    def slot(self) -> Slot:
        """Return the slot that the request holds in a concurrency limit."""
        slot: Slot | None = self.request.state.slot
        assert slot is not None
        return slot

    def hold_response(self, size: int) -> None:
        """Hold memory for a response of this size, before it is read or between two parts.

        Raises Overloaded if there is none; the pipeline waits for it, and calls the handler of a
        GET again. Raises ClientDisconnected if nobody would read the response.
        """
        _hold(self.request, self._unsent_response, size)

    async def wait_to_hold(self, size: int) -> None:
        """Wait for memory for the next part of a response. It replaces what the last part held.

        Raises Overloaded, and ClientDisconnected.
        """
        unsent = self._unsent_response
        if not unsent.try_grow(size):
            await unless_disconnected(self.request, unsent.wait(size))
        unsent.resize(size)

    @property
    def _unsent_response(self) -> UnsentResponse:
        state: RequestState = self.request.state
        return state.unsent_response(self.services.capacity.unsent_bytes)


AnyContext = RequestContext[Any, Any]


async def bind_body(operation: Operation, context: AnyContext) -> Handler:
    """Bind the body of a request. Return the handler for its media type."""
    services, request = context.services, context.request
    settings, headers = services.settings, request.headers
    if operation.body is bytes:
        file = binding.open_file(request)
        context.body = binding.read_chunks(file, settings.max_file_bytes)
        return operation.handler
    body = binding.open_body(request)
    body_bytes = ByteReservation(services.capacity.body_bytes, context.organization_id)
    request.state.body_bytes = body_bytes
    if operation.body is str:
        context.body = await binding.read_body(body, settings.max_body_bytes, body_bytes)
        return operation.handler
    has_lines = operation.ndjson_handler is not None
    known = [binding.Media.JSON] + [binding.Media.NDJSON] * has_lines
    media = binding.parse_media_type(headers, *known)
    if operation.accepts_idempotency_key:
        context.idempotency_key = binding.idempotency_key(headers)
    if media is binding.Media.NDJSON and operation.ndjson_handler is not None:
        context.body = binding.read_lines(body, settings.max_body_bytes, body_bytes)
        return operation.ndjson_handler
    max_bytes = operation.max_body_bytes or settings.max_body_bytes
    text = await binding.read_body(body, min(max_bytes, settings.max_body_bytes), body_bytes)
    limits = (settings.max_records, settings.max_json_values)
    if operation.bind_json is not None:
        bind: Callable[[], Any] = partial(operation.bind_json, text, *limits, context.query)
    else:
        bind = partial(binding.bind_body, operation.body, text, *limits)
    if len(text) >= _LARGE_BODY_BYTES:
        context.body = await services.computations.run(context.organization_id, bind)
    else:
        context.body = bind()
    return operation.handler


def parse_if_match(headers: Mapping[bytes, bytes]) -> tuple[str, ...] | None:
    """Return the ETags of If-Match; None if the header is absent or matches every version."""
    value = headers.get(b"if-match")
    if value is None or value.strip() == b"*":
        return None
    tags = _ETAG.findall(value)
    if not _ETAGS.fullmatch(value) or len(tags) > _MAX_ETAGS:
        msg = f"expected an ETag in quotes, as it was sent, or at most {_MAX_ETAGS} with commas"
        raise InvalidRequest(ErrorDetail(("header", "if-match"), msg, "etag"))
    # A weak ETag never matches (RFC 9110).
    return tuple(content.decode("ascii") for weakness, content in tags if not weakness)


def hold_made_response(
    request: Request, operation: Operation, limit: UnsentBytes, response: Response
) -> Response:
    """Hold memory for a response whose size was not known before. Raise as ``hold_response``."""
    size, state = response.size, request.state
    if size <= UNCOUNTED_BYTES or response.rest is not None or state.slot is None:
        return response
    unsent = state.unsent_response(limit)
    # What is held can be an estimate. What a change reports is stored, so it must be sent.
    if operation.method == "GET" and size > unsent.held + UNCOUNTED_BYTES:
        _hold(request, unsent, size)
    return response


def _hold(request: Request, unsent: UnsentResponse, size: int) -> None:
    if request.is_closed:
        raise ClientDisconnected
    if not unsent.try_grow(size):
        raise no_memory(size)


def api_url(base: str, *segments: str, query: Mapping[str, object]) -> str:
    """Return the URL of a path below ``/v1``, given as segments, with a query."""
    path = "/".join(quote(segment, safe="") for segment in segments)
    return f"{base}/v1/{path}?{urlencode(query)}"


def next_page(
    context: AnyContext, *segments: str, query: Mapping[str, object]
) -> tuple[tuple[bytes, bytes], ...]:
    """Return the Link header with the URL of the next page, for responses that are arrays."""
    target = api_url(context.services.settings.address, *segments, query=query)
    return ((b"link", f'<{target}>; rel="next"'.encode("ascii")),)


def limits_of(context: AnyContext) -> PageLimits:
    """Return the limits of the page that the request selects."""
    max_bytes = context.services.settings.max_page_bytes
    return PageLimits(context.cursor, context.query.limit, max_bytes, context.hold_response)


def array_response(context: AnyContext, page: ListPage, *segments: str) -> Response:
    """Return the records as an array; the Link header has the URL of the next page.

    ``segments`` are the path of the list below ``/v1``.
    """
    headers: tuple[Header, ...] = ()
    if page.next_cursor is not None:
        query = dict(context.next_page_parameters) | {"cursor": page.next_cursor}
        headers = next_page(context, *segments, query=query)
    return Response(b"[", more=(b",".join(page.records), b"]"), headers=headers)
