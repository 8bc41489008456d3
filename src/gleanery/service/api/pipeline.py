"""The request pipeline: runs the stages of each request.

The stages are: admit, route, authenticate, bind, handle, respond.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gleanery.service.api import binding, content_coding
from gleanery.service.api.context import (
    AnyContext,
    BoundRequest,
    RequestContext,
    RequestState,
    memo_of,
)
from gleanery.service.api.cross_origin import PREFLIGHT_RESPONSE, CrossOrigin
from gleanery.service.api.operation import Handler, Operation, Router
from gleanery.service.api.read_batches import ReadBatches
from gleanery.service.api.response import (
    Response,
    as_service_error,
    for_error,
    internal_error,
    respond,
    send_rest,
)
from gleanery.service.api.services import Services, require_scopes
from gleanery.service.foundation.errors import (
    BodyTooLarge,
    GleaneryError,
    Overloaded,
    RateLimited,
    Unavailable,
    no_session,
)
from gleanery.service.foundation.observability.telemetry import CLIENT_DISCONNECTED, request_id_of
from gleanery.service.foundation.scheduling.byte_limits import (
    UNCOUNTED_BYTES,
    ByteReservation,
    no_memory,
)
from gleanery.service.foundation.scheduling.fair_shares import Slot
from gleanery.service.foundation.security.tokens import Grant
from gleanery.service.foundation.values.compression import Codec
from gleanery.service.http import ClientDisconnected, HttpError, Request

if TYPE_CHECKING:
    from gleanery.service.api.rate_limits import RateLimiter

_log = logging.getLogger("gleanery")

UNMATCHED = "unmatched"
"""Name of the operation, in metrics and logs, of a request that was not routed."""

_NO_TENANT = 0
_STOPPED = 503
_USES_DATABASE = (b"/v1/", b"/console/api/")
_LARGE_BODY_BYTES = 256 * 1024  # parsed in a thread, so that other requests are served meanwhile
_OVERLOADED = Overloaded()
_OVERLOADED_RESPONSE = for_error(_OVERLOADED)


class RequestPipeline:
    """Implements ``gleanery.service.http.Application``."""

    def __init__(self, services: Services, operations: Sequence[Operation]) -> None:
        self._services = services
        self._authenticator = services.authenticator
        self._rate_limiter = services.rate_limiter
        self._cross_origin = CrossOrigin.from_settings(services.settings, operations)
        self._send_response = respond if self._cross_origin is None else self._cross_origin.respond
        self._router = Router(operations)
        self._always_admitted = {
            operation.path.encode() for operation in operations if operation.always_admit
        }
        self._read_batches = self._create_read_batches()

    def _create_read_batches(self) -> ReadBatches | None:
        """Create the read batching, if neither the database nor the rate limit can wait."""
        reader, rate_limiter = self._services.database.page_reader, self._rate_limiter
        if reader is None or (rate_limiter is not None and rate_limiter.is_shared):
            return None
        batches = ReadBatches(self._services, reader, self._respond_in_batch)
        self._services.capacity.scheduler.after_each_round(batches.flush)
        return batches

    # --- admission --------------------------------------------------------------------------------

    def admit(self, request: Request) -> None:
        try:
            self._admit(request)
        except BaseException:
            self.abandon(request)
            raise

    def is_always_admitted(self, request: Request) -> bool:
        return request.path in self._always_admitted or (
            self._cross_origin is not None and self._cross_origin.is_preflight(request)
        )

    def abandon(self, request: Request) -> None:
        """Releases what a request holds that will not be handled."""
        state: RequestState | None = request.state
        if state is not None:
            state.release()

    def _admit(self, request: Request) -> None:
        if self._cross_origin is not None and self._cross_origin.is_preflight(request):
            request.state = RequestState(b"")
            answer = partial(self._send_at_once, request, PREFLIGHT_RESPONSE)
            self._services.capacity.scheduler.defer_rejection(
                answer
            )  # so that a flood of them slows down
            return
        memo = memo_of(request.header_block)
        if not memo.caller:
            memo.caller = self._authenticator.caller(request.headers)
        state = request.state = RequestState(memo.caller)
        cursor = memo.find_cursor(request.path, request.query)
        if cursor is not None:
            state.bound, state.cursor = memo.bound, cursor
        if request.path in self._always_admitted:
            request.start()
            return
        error: GleaneryError | None = self._services.readiness.problem
        if error is None or not request.path.startswith(_USES_DATABASE):
            error = self._try_to_admit(state)
        if error is not None:
            rejection = partial(self._send_at_once, request, error)
            self._services.capacity.scheduler.defer_rejection(rejection)
        else:
            self._schedule(request, state)

    def _try_to_admit(self, state: RequestState) -> GleaneryError | None:
        """Assign a slot to the request, or return the error for the rejection."""
        if self._rate_limiter is not None:
            rate_limited = self._known_rate_limit(self._rate_limiter, state)
            if rate_limited is not None:
                return rate_limited
        organization_id = self._authenticator.cached_organization(state.caller) or _NO_TENANT
        if not self._services.capacity.requests.can_acquire(organization_id):
            return _OVERLOADED
        state.slot = Slot(self._services.capacity.requests, organization_id)
        return None

    def _known_rate_limit(
        self, rate_limiter: RateLimiter, state: RequestState
    ) -> RateLimited | None:
        """Return an error if the token is already known to have reached its limit."""
        token_id = self._authenticator.cached_token(state.caller)
        reached = None if token_id is None else rate_limiter.exhausted(token_id)
        if reached is None:
            return None
        state.rate_limit_headers = reached.headers
        return RateLimited(reached.seconds)

    def _schedule(self, request: Request, state: RequestState) -> None:
        assert state.slot is not None
        scheduler, batches = self._services.capacity.scheduler, self._read_batches
        if batches is not None and state.bound is not None and batches.accepts(state.bound):
            scheduler.add_to_next_round(state.slot, partial(batches.add, request))
        else:
            scheduler.add(state.slot, request.start)

    def _send_at_once(self, request: Request, answer: GleaneryError | Response) -> None:
        """Send the response without a task, because a rejection must be cheap."""
        try:
            self._respond_at_once(request, answer)
        except ClientDisconnected:
            pass
        finally:
            request.finish()

    def reject(self, request: Request, error: HttpError) -> None:
        request.state = RequestState(b"")
        self._respond_at_once(request, as_service_error(error))

    def _respond_at_once(self, request: Request, answer: GleaneryError | Response) -> None:
        started = time.perf_counter()
        grant = self._authenticator.last_grant(request.state.caller)
        if grant is not None:  # the log says whose requests are rejected
            request.state.identify(grant)
        response = _response_at_once(answer)
        request_id = request_id_of(request.headers)
        try:
            self._send_response(request, response, request_id, request.state.rate_limit_headers)
        finally:
            telemetry = self._services.telemetry
            telemetry.record(request, UNMATCHED, request_id, response.status, started)

    def shutdown(self) -> None:
        self._services.database.stop_subscriptions()

    # --- handling ---------------------------------------------------------------------------------

    async def handle(self, request: Request) -> None:
        state: RequestState = request.state
        try:
            if state.is_response_sent:
                await self._finish_batched(request, state)
            else:
                await self._handle(request, state)
        finally:
            state.release()

    def _respond_in_batch(
        self, request: Request, grant: Grant, response: Response, started: float
    ) -> None:
        """Send a page that a batch has read, if that needs neither a thread nor more memory.

        Otherwise, or if the rate limit is reached, a task handles the request as usual.
        """
        state: RequestState = request.state
        assert state.bound is not None
        operation = state.bound.operation
        if response.size > UNCOUNTED_BYTES:
            unsent = state.unsent_response(self._services.capacity.unsent_bytes)
            if not unsent.try_grow(response.size):
                return
        codec = content_coding.requested_codec(request.header_block, operation)
        if codec is not None:
            if content_coding.is_large(response):
                return
            response = content_coding.compress_small(response, codec)
        if self._rate_limiter is not None:
            counted = self._rate_limiter.count_in_process(grant.token_id)
            if counted.is_exceeded:
                return
            state.rate_limit_headers = counted.headers
        state.identify(grant)
        request_id = request_id_of(request.headers)
        status = response.status
        try:
            self._send_response(request, response, request_id, state.rate_limit_headers)
            state.is_response_sent = True
        except ClientDisconnected:
            status = CLIENT_DISCONNECTED
            raise
        finally:
            if state.is_response_sent and request.is_write_paused:
                state.unrecorded = operation.name, request_id, status, started
            else:
                telemetry = self._services.telemetry
                telemetry.record(request, operation.name, request_id, status, started)

    async def _finish_batched(self, request: Request, state: RequestState) -> None:
        """Wait until the client has read a response that a batch has sent, and record it."""
        if state.unrecorded is None:  # the client was gone before
            return
        name, request_id, status, started = state.unrecorded
        try:
            with state.idle():
                await request.drain()
        except ClientDisconnected:
            status = CLIENT_DISCONNECTED
            raise
        finally:
            self._services.telemetry.record(request, name, request_id, status, started)

    async def _handle(self, request: Request, state: RequestState) -> None:
        started = time.perf_counter()
        request_id = request_id_of(request.headers)
        name = UNMATCHED
        try:
            operation, path = self._route(request, state)
            name = operation.name
            response = await self._call(operation, path, request, request_id)
            codec = content_coding.requested_codec(request.header_block, operation)
            if codec is not None:
                response = await self._compress(operation, request, response, codec)
        except ClientDisconnected:
            telemetry = self._services.telemetry
            telemetry.record(request, name, request_id, CLIENT_DISCONNECTED, started)
            raise
        except HttpError as error:
            response = for_error(as_service_error(error))
        except GleaneryError as error:
            response = self._response_to(error, request_id)
        except Exception as error:
            response = await self._response_to_unexpected(error, request_id)
        await self._send(request, response, name, request_id, started)

    async def _compress(
        self, operation: Operation, request: Request, response: Response, codec: Codec
    ) -> Response:
        organization_id = request.state.organization_id or _NO_TENANT
        thread = self._services.compressions
        return await content_coding.compress(response, operation, codec, organization_id, thread)

    async def _response_to_unexpected(self, error: Exception, request_id: bytes) -> Response:
        """Return 503 if a statement failed because the schema is not this program's; else 500."""
        problem = await self._services.readiness.find_mismatch()
        if problem is not None:
            return self._response_to(problem, request_id)
        # The error is named: after the check above, the current exception can be another one.
        _log.error("internal error", extra={"request_id": request_id.decode()}, exc_info=error)
        return internal_error()

    def _response_to(self, error: GleaneryError, request_id: bytes) -> Response:
        if isinstance(error, Unavailable):
            _log_unavailable(error, request_id)
        return for_error(error)

    def _route(self, request: Request, state: RequestState) -> tuple[Operation, dict[str, str]]:
        if state.bound is not None:
            return state.bound.operation, state.bound.path
        return self._router.find(request.method, request.path)

    async def _call(
        self, operation: Operation, path: dict[str, str], request: Request, request_id: bytes
    ) -> Response:
        """Authenticate, bind and call the handler."""
        state: RequestState = request.state
        organization_id, token_id, grant = _NO_TENANT, None, None
        if operation.scopes or operation.needs_session:
            grant = self._authenticator.cached_grant(state.caller, operation.scopes)
            if grant is None:
                grant = await self._authenticate(request, operation.scopes)
            organization_id, token_id = grant.organization_id, grant.token_id
            state.identify(grant)
            if state.slot is not None:
                state.slot.assign_tenant(organization_id)
            if operation.needs_session and grant.session is None:
                raise no_session()
            if self._rate_limiter is not None:
                await self._count(self._rate_limiter, token_id, state)
        query, cursor = self._bind(operation, path, request, state)
        context: AnyContext = RequestContext(
            self._services,
            organization_id,
            token_id,
            request_id,
            request,
            path,
            query.query,
            cursor,
            query.next_page_parameters,
            grant=grant,
        )
        handler = operation.handler
        if operation.accepts_if_match:
            context.if_match = binding.if_match(request.headers)
        if operation.body is not None:
            try:
                handler = await self._bind_body(operation, context)
            except BodyTooLarge as error:
                if operation.ndjson_handler is None:
                    raise
                raise BodyTooLarge(error.limit, advice=binding.NDJSON_ADVICE) from None
        return await self._call_handler(operation, handler, context)

    async def _call_handler(
        self, operation: Operation, handler: Handler, context: AnyContext
    ) -> Response:
        """Call the handler, and hold memory for its response until that is sent.

        If there is no memory for the response of a GET, drop it, wait, and call the handler again.
        Reads that are audited are then recorded twice.
        """
        try:
            return self._hold_response(operation, context, await handler(context))
        except Overloaded as error:
            needed_bytes = error.needed_bytes
            if not needed_bytes or operation.method != "GET":
                raise
        try:
            await context.wait_to_hold(needed_bytes)
        except ClientDisconnected:  # a client that has closed one direction can read the error
            raise no_memory() from None
        return await handler(context)

    def _hold_response(
        self, operation: Operation, context: AnyContext, response: Response
    ) -> Response:
        """Hold memory for a response whose size was not known before. Raises Overloaded."""
        size = response.size
        if size <= UNCOUNTED_BYTES or response.rest is not None:
            return response
        state: RequestState = context.request.state
        if state.slot is None:
            return response
        unsent = state.unsent_response(self._services.capacity.unsent_bytes)
        # What is held can be an estimate. What a change reports is stored, so it must be sent.
        if operation.method == "GET" and size > unsent.held + UNCOUNTED_BYTES:
            context.hold_response(size)
        return response

    async def _authenticate(self, request: Request, scopes: Sequence[str]) -> Grant:
        """Return the grant of the caller, who is known to the log even if a scope is missing."""
        state: RequestState = request.state
        grant = await self._authenticator.authenticate(state.caller, request.headers)
        state.identify(grant)
        require_scopes(grant, scopes)
        return grant

    async def _count(self, rate_limiter: RateLimiter, token_id: int, state: RequestState) -> None:
        counted = await rate_limiter.count(token_id)
        state.rate_limit_headers = counted.headers
        if counted.is_exceeded:
            raise RateLimited(counted.seconds)

    def _bind(
        self, operation: Operation, path: dict[str, str], request: Request, state: RequestState
    ) -> tuple[binding.BoundQuery, int]:
        """Return the query and its cursor; remembers them for requests that repeat this one."""
        if state.bound is not None:
            return state.bound.query, state.cursor
        binding.bind_path(path, operation.creates_resource)
        query = binding.BoundQuery()
        if operation.query_model is not None:
            query = binding.bind_query(operation.query_model, request.query)
        if request.method == "GET":
            memo = memo_of(request.header_block)
            memo.store(request.path, request.query, BoundRequest(operation, path, query))
        return query, query.cursor

    async def _bind_body(self, operation: Operation, context: AnyContext) -> Handler:
        """Binds the body; returns the handler for its media type."""
        settings, request = self._services.settings, context.request
        headers = request.headers
        if operation.body is bytes:
            file = binding.open_file(request)
            context.body = binding.read_chunks(file, settings.max_file_bytes)
            return operation.handler
        body = binding.open_body(request)
        body_bytes = ByteReservation(self._services.capacity.body_bytes, context.organization_id)
        request.state.body_bytes = body_bytes
        if operation.body is str:
            context.body = await binding.read_body(body, settings.max_body_bytes, body_bytes)
            return operation.handler
        known = [binding.Media.JSON] + [binding.Media.NDJSON] * (
            operation.ndjson_handler is not None
        )
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
        is_large = len(text) >= _LARGE_BODY_BYTES
        if is_large:
            context.body = await self._services.computations.run(context.organization_id, bind)
        else:
            context.body = bind()
        return operation.handler

    async def _send(
        self, request: Request, response: Response, name: str, request_id: bytes, started: float
    ) -> None:
        state: RequestState = request.state
        if state.unsent is not None and response.rest is None:
            state.unsent.resize(response.size)
        status = response.status
        try:
            self._send_response(request, response, request_id, state.rate_limit_headers)
            if request.is_write_paused or response.rest is not None:
                with state.idle():
                    await request.drain()
                    await send_rest(request, response)
        except ClientDisconnected:
            status = CLIENT_DISCONNECTED
            raise
        except asyncio.CancelledError:  # the service stops, and waits no longer
            status = _STOPPED
            raise
        except Exception as error:
            # The connection is closed, so that the client notices the truncated response.
            status = _log_truncated(error, request_id)
            raise
        finally:
            self._services.telemetry.record(request, name, request_id, status, started)


def _response_at_once(answer: GleaneryError | Response) -> Response:
    if isinstance(answer, Response):
        return answer
    return _OVERLOADED_RESPONSE if answer is _OVERLOADED else for_error(answer)


def _log_truncated(error: Exception, request_id: bytes) -> int:
    """Log why a response has no end. Return the status for the request log."""
    status = 500
    if isinstance(error, GleaneryError):
        status = for_error(error).status
    is_known = isinstance(error, Overloaded) or (
        isinstance(error, Unavailable) and error.reason is not None
    )
    reason = error.reason if isinstance(error, Unavailable) and error.reason else str(error)
    _log.error(
        "response truncated",
        extra={"request_id": request_id.decode(), "reason": reason},
        exc_info=None if is_known else error,
    )
    return status


def _log_unavailable(error: Unavailable, request_id: bytes) -> None:
    """Log the reason in one line, and a traceback only if the cause is not a known one."""
    is_known = error.reason is not None or error.__cause__ is None
    _log.warning(
        "unavailable",
        extra={"request_id": request_id.decode(), "reason": error.reason or str(error)},
        exc_info=None if is_known else error,
    )
