"""The request pipeline: runs the stages of each request.

Theory of operation
    A request passes these stages. The first two run in a plain function. The others run in a
    task, or in a read batch.

    ::

        admit       a slot in the limits of the process, or a rejection without a task; health
                    checks and metrics need no slot
        schedule    a task, or a read batch for a small page that repeats an earlier request
        route       the operation of the method and path
        authenticate    the grant of the caller, its scopes, and one more request of its token
        bind        path, query and body as the operation declares them
        handle      the handler, and memory for its response
        respond     content coding, sending, and the record in logs and metrics

    A read batch skips the stages whose result is known from the earlier request. It reads the pages
    of one scheduler round together. Then ``_respond_in_batch`` does the rest without waiting. If
    that would require waiting, the batch leaves the request untouched, and a task handles it.

    Invariants:

    - What a request holds (slot, body, unsent bytes) is in its state, and is released once: by
      ``handle``, by the batch, or by ``abandon``.
    - A request is counted for the rate limit at most once, and recorded once, on every path. A
      rejected request is not counted.
    - Nothing waits before a slot is assigned. A rejection costs no task and no statement.
    - An error before the first byte becomes a response. After it, the connection closes.

    ::

        admit                              handle
          ├─ _send_at_once (rejection)       ├─ _handle
          └─ _schedule                       │   ├─ _route
              ├─ request.start ─► handle     │   ├─ _call: _authenticate, bind_target, bind_body
              └─ ReadBatches.add             │   │   └─ _call_handler
                  └─ _respond_in_batch       │   ├─ _compress
                      └─ _begin              │   └─ _begin, _complete
                                             └─ _complete, after a batch has begun

See ``docs/overload.md`` and ``docs/explanation/sqlite.md``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gleanery.service.api import binding, content_coding
from gleanery.service.api.context import (
    AnyContext,
    RequestContext,
    RequestState,
    Sending,
    bind_body,
    bind_target,
    hold_made_response,
    memo_of,
    parse_if_match,
)
from gleanery.service.api.cross_origin import PREFLIGHT_RESPONSE, CrossOrigin
from gleanery.service.api.operation import Handler, Operation, Router
from gleanery.service.api.read_batches import ReadBatches
from gleanery.service.api.response import (
    Response,
    as_service_error,
    for_error,
    internal_error,
    log_truncated,
    log_unavailable,
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
    no_memory,
)
from gleanery.service.foundation.scheduling.fair_shares import Slot
from gleanery.service.foundation.security.tokens import Grant
from gleanery.service.foundation.values.compression import Codec
from gleanery.service.http import ClientDisconnected, HttpError, Request

if TYPE_CHECKING:
    from gleanery.service.api.rate_limits import RateLimiter, RateLimitState

_log = logging.getLogger("gleanery")

UNMATCHED = "unmatched"
"""Name of the operation, in metrics and logs, of a request that was not routed."""

_NO_TENANT = 0
_STOPPED = 503
_USES_DATABASE = (b"/v1/", b"/console/api/")
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
        self._record = services.telemetry.record
        self._unsent_bytes = services.capacity.unsent_bytes
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
        """Release what a request holds that will not be handled."""
        state: RequestState | None = request.state
        if state is not None:
            state.release()

    def _admit(self, request: Request) -> None:
        if self._cross_origin is not None and self._cross_origin.is_preflight(request):
            request.state = RequestState(b"")
            answer = partial(self._send_at_once, request, PREFLIGHT_RESPONSE)
            # It waits as rejections do, so that a flood of them slows down.
            self._services.capacity.scheduler.defer_rejection(answer)
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
            self._record(request, UNMATCHED, request_id, response.status, started)

    def shutdown(self) -> None:
        self._services.database.stop_subscriptions()

    # --- handling ---------------------------------------------------------------------------------

    async def handle(self, request: Request) -> None:
        state: RequestState = request.state
        try:
            if not state.is_response_sent:
                await self._handle(request, state)
            elif state.sending is not None:  # else the client left before a batch responded
                await self._complete(request, state.sending)
        finally:
            state.release()

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
            self._record(request, name, request_id, CLIENT_DISCONNECTED, started)
            raise
        except HttpError as error:
            response = for_error(as_service_error(error))
        except GleaneryError as error:
            response = self._response_to(error, request_id)
        except Exception as error:
            response = await self._response_to_unexpected(error, request_id)
        sending = Sending(response, name, request_id, started)
        if not self._begin(request, sending):
            await self._complete(request, sending)

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
            log_unavailable(error, request_id)
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
                _apply_rate_limit(state, await self._rate_limiter.count(token_id))
        query, cursor = bind_target(operation, path, request)
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
            context.if_match = parse_if_match(request.headers)
        if operation.body is not None:
            try:
                handler = await bind_body(operation, context)
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
            return hold_made_response(
                context.request, operation, self._unsent_bytes, await handler(context)
            )
        except Overloaded as error:
            needed_bytes = error.needed_bytes
            if not needed_bytes or operation.method != "GET":
                raise
        try:
            await context.wait_to_hold(needed_bytes)
        except ClientDisconnected:  # a client that has closed one direction can read the error
            raise no_memory() from None
        return await handler(context)

    async def _authenticate(self, request: Request, scopes: Sequence[str]) -> Grant:
        """Return the grant of the caller, who is known to the log even if a scope is missing."""
        state: RequestState = request.state
        grant = await self._authenticator.authenticate(state.caller, request.headers)
        state.identify(grant)
        require_scopes(grant, scopes)
        return grant

    # --- responding -------------------------------------------------------------------------------

    def _respond_in_batch(
        self, request: Request, grant: Grant, response: Response, started: float
    ) -> None:
        """Send a page that a batch has read, if that needs neither a thread nor more memory.

        Otherwise, or if the rate limit is reached, a task handles the request as usual. Only a
        request that is sent is counted, because the task would count it again.
        """
        state: RequestState = request.state
        assert state.bound is not None
        operation, request_id = state.bound.operation, request_id_of(request.headers)
        codec = content_coding.requested_codec(request.header_block, operation)
        if codec is not None and content_coding.is_large(response):
            return
        state.identify(grant)
        try:
            hold_made_response(request, operation, self._unsent_bytes, response)
            if codec is not None:
                response = content_coding.compress_small(response, codec)
            if self._rate_limiter is not None:
                _apply_rate_limit(state, self._rate_limiter.count_in_process(grant.token_id))
        except ClientDisconnected:  # nobody would read what a task makes
            self._record(request, operation.name, request_id, CLIENT_DISCONNECTED, started)
            raise
        except (Overloaded, RateLimited):
            return
        sending = Sending(response, operation.name, request_id, started)
        if not self._begin(request, sending):  # the write buffer has the body
            state.sending = sending._replace(response=response._replace(body=b"", more=()))

    def _begin(self, request: Request, sending: Sending) -> bool:
        """Send a response, except for the rest of a long body. Return True if that is all.

        A response that is complete is recorded, and so is one that fails.
        """
        state: RequestState = request.state
        response, name, request_id, started = sending
        if state.unsent is not None and response.rest is None:
            state.unsent.resize(response.size)
        status, is_all = response.status, True
        try:
            self._send_response(request, response, request_id, state.rate_limit_headers)
            state.is_response_sent = True
            is_all = response.rest is None and not request.is_write_paused
        except BaseException as error:
            status = _status_after(error, request_id)
            raise
        finally:
            if is_all:
                self._record(request, name, request_id, status, started)
        return is_all

    async def _complete(self, request: Request, sending: Sending) -> None:
        """Send the rest of a body as fast as the client reads it, and record the request."""
        response, name, request_id, started = sending
        status = response.status
        try:
            with request.state.idle():
                await request.drain()
                await send_rest(request, response)
        except BaseException as error:
            status = _status_after(error, request_id)
            raise
        finally:
            self._record(request, name, request_id, status, started)


def _response_at_once(answer: GleaneryError | Response) -> Response:
    if isinstance(answer, Response):
        return answer
    return _OVERLOADED_RESPONSE if answer is _OVERLOADED else for_error(answer)


def _apply_rate_limit(state: RequestState, counted: RateLimitState) -> None:
    """Note the headers for the response. Raise RateLimited if the limit is reached."""
    state.rate_limit_headers = counted.headers
    if counted.is_exceeded:
        raise RateLimited(counted.seconds)


def _status_after(error: BaseException, request_id: bytes) -> int:
    """Return the status for the request log after a response that has not been sent completely."""
    if isinstance(error, ClientDisconnected):
        return CLIENT_DISCONNECTED
    if not isinstance(error, Exception):
        return _STOPPED  # the service stops, and waits no longer
    # The connection is closed, so that the client notices the truncated response.
    return log_truncated(error, request_id)
