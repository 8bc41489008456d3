"""The application: wires everything once, then takes each request through its stages.

The stages read as a sentence: find the operation, admit the caller, bind the arguments, call the
handler, send the answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, MutableMapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gleanery.api import binding, error_responses, openapi, reference
from gleanery.api.authentication import Authenticator
from gleanery.api.context import AnyContext, RequestContext, Response, Services
from gleanery.api.file_links import FileLinks
from gleanery.api.operations import OPERATIONS, Handler, Operation
from gleanery.api.routing import Router
from gleanery.background.sweep import Sweep
from gleanery.blobs import open_blobs
from gleanery.errors import GleaneryError, Overloaded, RateLimited, Unavailable
from gleanery.http.head import Head
from gleanery.http.registry import ConnectionRegistry
from gleanery.http.request import ClientDisconnected, Header, Request
from gleanery.json_schema.validator import SchemaValidator
from gleanery.observability import logs, telemetry
from gleanery.scheduling.limits import ConcurrencyLimit, RequestScheduler, Slot
from gleanery.security.vault import open_vault
from gleanery.settings import Settings
from gleanery.storage import metadata
from gleanery.storage.audit import ReadAuditor
from gleanery.storage.engines import database_of
from gleanery.values import timestamps

if TYPE_CHECKING:
    from gleanery.api.rate_limits import RateLimiter

Message = MutableMapping[str, Any]

_log = logging.getLogger("gleanery")

_NO_TENANT = 0
_LARGE_BODY = 256 * 1024  # is read in a thread, so that other requests get their turns
_UNMATCHED = "unmatched"
_NOT_MODIFIED = 304
_FULL = Overloaded()
_FULL_ANSWER = error_responses.response_to(_FULL)
_ALWAYS = b"x-request-id: %s\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\n"


def build_app(
    settings: Settings,
    clock: Callable[[], int] = timestamps.now,
    metrics_folder: Path | None = None,
) -> App:
    """The whole service on these settings.

    ``clock`` is the time in microseconds; ``metrics_folder`` is shared by several workers.
    """
    contract = cache(partial(openapi.document, OPERATIONS, settings))  # made when first asked for
    vault = open_vault(settings.secret_key, settings.key_file)
    blobs = open_blobs(settings.blobs_location)
    database = database_of(settings)
    work = ConcurrencyLimit(settings.max_requests)
    services = Services(
        settings=settings,
        address=settings.address,
        database=database,
        schemas=SchemaValidator(),
        blobs=blobs,
        vault=vault,
        read_auditor=ReadAuditor(),
        file_links=FileLinks(settings.address, vault, blobs, settings.blob_url_seconds),
        clock=clock,
        work=work,
        scheduler=RequestScheduler(work, database.batch_reads),
        waits=ConcurrencyLimit(settings.max_connections),
        transfers=ConcurrencyLimit(settings.max_transfers),
        telemetry=telemetry.Telemetry(
            logs.request_log(settings),
            (_UNMATCHED, *(operation.name for operation in OPERATIONS)),
            metrics_folder,
        ),
        contract=cache(lambda: openapi.encoded(contract())),
        reference=cache(lambda: reference.html_page(contract())),
    )
    return App(services, _rate_limiter_of(settings))


def _rate_limiter_of(settings: Settings) -> RateLimiter | None:
    if settings.rate_limit is None:
        return None
    from gleanery.api.rate_limits import RateLimiter  # takes its time to load, and few need it

    return RateLimiter(settings.rate_limit, settings.rate_limit_storage)


class App:
    """All operations behind one registry, from ``start`` to ``stop``."""

    def __init__(self, services: Services, rate_limiter: RateLimiter | None) -> None:
        self._services = services
        self._rate_limiter = rate_limiter
        self._router = Router(OPERATIONS)
        self._always_admitted = {
            operation.path.encode() for operation in OPERATIONS if operation.always_admit
        }
        self._authenticator = Authenticator(
            services.database, services.settings.token_cache_seconds, services.clock
        )
        settings = services.settings
        self.registry = ConnectionRegistry(
            self, settings.idle_seconds, settings.stall_seconds, settings.max_connections
        )
        counts_elsewhere = rate_limiter is not None and settings.rate_limit_storage is not None
        self._reads_at_once = services.database.synchronous_reads and not counts_elsewhere
        self._sweep = Sweep(
            services.database, services.blobs, services.vault, settings, services.clock
        )
        self._chores: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self._services.database.open()
        try:
            await metadata.claim_key(self._services.database, self._services.vault)
            if security_warning := await self._services.database.security_warning():
                _log.warning("row-level security is not active", extra={"reason": security_warning})
        except BaseException:
            await self.stop()
            raise
        self._sweep.start()
        self._chores = [asyncio.create_task(self.registry.watch_timeouts())]

    def stop_waiting(self) -> None:
        """Lets the requests that only wait for something to happen come to their end."""
        self._services.database.stop_subscriptions()

    async def stop(self) -> None:
        for bulk_job in self._chores:
            bulk_job.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self._sweep.stop()
        if self._rate_limiter is not None:
            await self._rate_limiter.close()
        await self._services.schemas.close()
        await self._services.database.close()

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """What the server asks of an ASGI application beside requests: to start and to stop."""
        if scope["type"] != "lifespan":
            raise RuntimeError("requests come through the registry")
        await receive()
        try:
            await self.start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        finally:  # also when a second Ctrl-C ends the loop without another word
            await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    def enter(self, request: Request) -> GleaneryError | None:
        if request.path in self._always_admitted:
            return None
        work = self._services.work
        organization_id = self._authenticator.cached_organization(request) or _NO_TENANT
        if self._rate_limiter is not None and (
            fault := self._known_rate_limit(self._rate_limiter, request)
        ):
            return fault
        if not work.has_room_for(organization_id):
            return _FULL
        request.slot = Slot(work, organization_id)
        return None

    def begin(self, request: Request, start: Callable[[], None]) -> None:
        if request.slot is None:
            start()
        else:
            self._services.scheduler.add(request.slot, start, self.runs_inline(request))

    def runs_inline(self, request: Request) -> bool:
        match = request.head.match  # known of who has asked the same before
        return self._reads_at_once and match is not None and match.operation.single_read

    def defer_rejection(self, refusal: Callable[[], None]) -> None:
        self._services.scheduler.defer_rejection(refusal)

    def _known_rate_limit(self, rate_limiter: RateLimiter, request: Request) -> RateLimited | None:
        """What can be said against the request without asking anyone."""
        token_id = self._authenticator.cached_token(request)
        rate_limit_headers = None if token_id is None else rate_limiter.spent(token_id)
        if rate_limit_headers is None:
            return None
        request.rate_limit_headers = rate_limit_headers.headers
        return RateLimited(rate_limit_headers.seconds)

    def send_rejection(self, request: Request, fault: GleaneryError) -> None:
        started = time.perf_counter()
        id_ = telemetry.request_id(request.headers)
        answer = _FULL_ANSWER if fault is _FULL else error_responses.response_to(fault)
        request.respond(
            answer.status, _header_lines(answer, id_, request.rate_limit_headers), (answer.body,)
        )
        self._services.telemetry.record(
            _UNMATCHED, request.method, request.path, id_, answer.status, started
        )

    async def serve(self, request: Request) -> None:
        started = time.perf_counter()
        id_ = telemetry.request_id(request.headers)
        name = _UNMATCHED
        try:
            head = request.head
            if head.match is None:
                head.match = self._router.find(request.method, request.path)
            operation, path = head.match
            name = operation.name
            answer = await self._answer(operation, path, request, id_)
        except GleaneryError as error:
            answer = error_responses.response_to(error)
            if isinstance(error, Overloaded | RateLimited):
                request.decline()
            if isinstance(error, Unavailable):
                _log.warning("unavailable", extra={"request_id": id_.decode()}, exc_info=error)
        except ClientDisconnected:
            raise
        except Exception:
            _log.exception("internal error", extra={"request_id": id_.decode()})
            answer = error_responses.internal_error()
        await self._send(request, answer, name, id_, started)

    async def refuse(self, request: Request, fault: GleaneryError) -> None:
        id_ = telemetry.request_id(request.headers)
        await self._send(
            request, error_responses.response_to(fault), _UNMATCHED, id_, time.perf_counter()
        )

    async def _send(
        self, request: Request, answer: Response, name: str, id_: bytes, started: float
    ) -> None:
        try:
            headers = _header_lines(answer, id_, request.rate_limit_headers)
            request.respond(answer.status, headers, (answer.body, *answer.more))
            if request.is_behind:
                await request.taken()
            if answer.rest is not None and request.method != "HEAD":
                await _send_rest(request, answer.rest)
        except ClientDisconnected:
            raise
        except Exception:  # the client sees that it is cut short
            _log.exception("an answer is broken off", extra={"request_id": id_.decode()})
            raise
        finally:
            self._services.telemetry.record(
                name, request.method, request.path, id_, answer.status, started
            )

    async def _answer(
        self, operation: Operation, path: dict[str, str], request: Request, id_: bytes
    ) -> Response:
        organization_id, token_id = _NO_TENANT, None
        if operation.scope is not None:
            grant = await self._authenticator.admit(request, operation.scope)
            organization_id, token_id = grant.organization_id, grant.token_id
            if request.slot is not None:
                request.slot.assign_tenant(organization_id)
            if self._rate_limiter is not None:
                await self._count(self._rate_limiter, grant.token_id, request)
        asked = request.head.asked or _asked(operation, path, request.head)
        cursor = asked.cursor if request.cursor is None else request.cursor
        context: AnyContext = RequestContext(
            self._services,
            organization_id,
            token_id,
            id_,
            request,
            path,
            asked.query,
            cursor,
            asked.repeated,
        )
        handler = operation.handler
        if operation.body is not None:
            handler = await self._bind_body(operation, context)
        return await handler(context)

    async def _count(self, rate_limiter: RateLimiter, token_id: int, request: Request) -> None:
        rate_limit_headers = await rate_limiter.count(token_id)
        request.rate_limit_headers = rate_limit_headers.headers
        if rate_limit_headers.is_over:
            raise RateLimited(rate_limit_headers.seconds)

    async def _bind_body(self, operation: Operation, context: AnyContext) -> Handler:
        """Binds the body and chooses the handler for the way it is written."""
        settings, request = self._services.settings, context.request
        headers = request.headers
        if operation.body is bytes:
            binding.refuse_coding(headers)
            context.body = binding.read_chunks(request, settings.max_file_bytes)
            return operation.handler
        known = [binding.Media.JSON] + [binding.Media.LINES] * (
            operation.ndjson_handler is not None
        )
        media = binding.media_of(headers, *known)
        if operation.ndjson_handler is not None:
            context.idempotency_key = binding.idempotency_key(headers)
        if media is binding.Media.LINES and operation.ndjson_handler is not None:
            context.body = binding.read_lines(request, settings.max_body_bytes)
            return operation.ndjson_handler
        text = await binding.read_body(request, settings.max_body_bytes)
        bind = partial(binding.bind_body, operation.body, text, settings.max_records)
        context.body = bind() if len(text) < _LARGE_BODY else await asyncio.to_thread(bind)
        return operation.handler


def _asked(operation: Operation, path: dict[str, str], head: Head) -> binding.BoundQuery:
    binding.bind_path(path, operation.creates_resource)
    asked = binding.BoundQuery()
    if operation.query is not None:
        asked = binding.bind_query(operation.query, head.query)
    head.asked = asked
    return asked


def _header_lines(answer: Response, id_: bytes, rate_limit_headers: Iterable[Header]) -> bytes:
    lines = _ALWAYS % id_
    for header in (*rate_limit_headers, *answer.headers):
        lines += b"%s: %s\r\n" % header
    if answer.status != _NOT_MODIFIED:  # of which only what has changed is told
        length = answer.length
        if length is None:
            length = len(answer.body) + sum(map(len, answer.more))
        lines += b"content-type: %s\r\ncontent-length: %d\r\n" % (answer.content_type, length)
    return lines


async def _send_rest(request: Request, rest: AsyncGenerator[bytes]) -> None:
    """Sends what may be more than memory holds, as fast as the client takes it."""
    try:
        async for piece in rest:
            request.send(piece)
            await request.taken()
    finally:
        await rest.aclose()
