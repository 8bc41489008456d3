"""The ASGI application: wires everything once, then takes each request through its stages.

The stages read as a sentence: find the operation, admit the caller, bind the arguments, call the
handler, send the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

import structlog
from pydantic import TypeAdapter

from gleanery import instants, logs
from gleanery.api import binding, openapi, problems, reference, telemetry
from gleanery.api.auth import Doorkeeper
from gleanery.api.calls import Answer, AnyCall, Call, Receive, Services
from gleanery.api.file_links import FileLinks
from gleanery.api.operations import OPERATIONS, Handler, Operation
from gleanery.api.routing import Router
from gleanery.blobs import open_blobs
from gleanery.errors import GleaneryError
from gleanery.settings import Settings
from gleanery.store import facts, retention
from gleanery.store.engines import database_of
from gleanery.store.schemas import Schemas
from gleanery.vault import Vault, key_from_file, key_from_text

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = structlog.get_logger("gleanery")

_NOBODY = 0
_LARGE_BODY = 256 * 1024  # is read in a thread, so that other requests get their turns
_UNMATCHED = "unmatched"
_NOT_MODIFIED = 304
_ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


def build_app(settings: Settings, clock: Callable[[], int] = instants.now) -> App:
    """The whole service on these settings. ``clock`` is the time in microseconds."""
    contract = openapi.document(OPERATIONS, settings)
    vault, blobs = vault_of(settings), open_blobs(settings.blobs_place)
    services = Services(
        settings=settings,
        database=database_of(settings),
        schemas=Schemas(),
        blobs=blobs,
        vault=vault,
        file_links=FileLinks(
            settings.address, vault.derived("file links"), blobs, settings.blob_url_seconds
        ),
        clock=clock,
        telemetry=telemetry.Telemetry(logs.request_log(settings)),
        contract=openapi.encoded(contract),
        reference=reference.html_page(contract),
    )
    return App(services)


def has_key(settings: Settings) -> bool:
    return settings.secret_key is not None or settings.key_file.exists()


def vault_of(settings: Settings) -> Vault:
    if settings.secret_key is not None:
        return Vault(key_from_text(settings.secret_key))
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Vault(key_from_file(settings.key_file))


class App:
    """An ASGI application; ``start`` and ``stop`` are also what its lifespan does."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._router = Router(OPERATIONS)
        self._doorkeeper = Doorkeeper(
            services.database, services.settings.token_cache_seconds, services.clock
        )
        self._sweeper: asyncio.Task[None] | None = None
        self._bodies = {
            operation.name: TypeAdapter(operation.body)
            for operation in OPERATIONS
            if operation.body not in (None, bytes)
        }

    async def start(self) -> None:
        await self._services.database.open()
        try:
            await facts.claim_key(self._services.database, self._services.vault.fingerprint)
        except BaseException:
            await self.stop()
            raise
        self._sweeper = asyncio.create_task(self._sweep())

    def stop_waiting(self) -> None:
        """Lets the requests that only wait for something to happen come to their end."""
        self._services.database.stop_watching()

    async def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self._services.schemas.close()
        await self._services.database.close()

    async def _sweep(self) -> None:
        s = self._services
        while True:
            try:
                await retention.sweep(
                    s.database,
                    s.blobs,
                    s.clock,
                    tombstone_days=s.settings.tombstone_days,
                    unnamed_file_days=s.settings.unnamed_file_days,
                )
            except Exception:
                _log.exception("sweep failed")
            await asyncio.sleep(s.settings.sweep_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            raise RuntimeError("only HTTP is served")

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        id_ = telemetry.request_id(scope["headers"])
        name = _UNMATCHED
        try:
            operation, path = self._router.find(scope["method"], scope["raw_path"])
            name = operation.name
            answer = await self._answer(operation, path, scope, receive)
        except GleaneryError as error:
            answer = problems.answer_to(error)
            if answer.status >= 500:
                _log.warning("unavailable", request_id=id_.decode(), exc_info=error)
        except binding.ClientGone:
            return
        except Exception:
            _log.exception("internal error", request_id=id_.decode())
            answer = problems.internal_error()
        try:
            await _send(send, answer, id_, receive, with_body=scope["method"] != "HEAD")
        except Exception:  # the client sees that it is cut short
            _log.exception("an answer is broken off", request_id=id_.decode())
            raise
        finally:
            self._services.telemetry.record(name, scope, id_, answer.status, started)

    async def _answer(
        self, operation: Operation, path: dict[str, str], scope: Scope, receive: Receive
    ) -> Answer:
        organization_id, headers = _NOBODY, scope["headers"]
        if operation.scope is not None:
            grant = await self._doorkeeper.admit(headers, operation.scope)
            organization_id = grant.organization_id
        binding.bind_path(path, operation.creates)
        call: AnyCall = Call(
            self._services,
            organization_id,
            scope["method"],
            dict(headers),
            path,
            {},
            None,
            None,
            receive,
        )
        if operation.query is not None:
            call.asked = binding.parse_query(scope["query_string"])
            call.query = binding.bind_query(operation.query, call.asked)
        handler = operation.handler
        if operation.body is not None:
            handler = await self._bind_body(operation, call)
        return await handler(call)

    async def _bind_body(self, operation: Operation, call: AnyCall) -> Handler:
        """Binds the body and chooses the handler for the way it is written."""
        settings, headers = self._services.settings, call.headers
        if operation.body is bytes:
            binding.refuse_coding(headers)
            call.body = binding.read_chunks(call.receive, headers, settings.max_file_bytes)
            return operation.handler
        known = [binding.Media.JSON] + [binding.Media.LINES] * (operation.lines is not None)
        media = binding.media_of(headers, *known)
        if operation.lines is not None:
            call.idempotency_key = binding.idempotency_key(headers)
        if media is binding.Media.LINES and operation.lines is not None:
            call.body = binding.read_lines(call.receive, settings.max_body_bytes)
            return operation.lines
        text = await binding.read_body(call.receive, headers, settings.max_body_bytes)
        bind = partial(binding.bind_body, self._bodies[operation.name], text, settings.max_records)
        call.body = bind() if len(text) < _LARGE_BODY else await asyncio.to_thread(bind)
        return operation.handler


async def _send(send: Send, answer: Answer, id_: bytes, receive: Receive, with_body: bool) -> None:
    headers = [(b"x-request-id", id_), *_ALWAYS, *answer.headers]
    if answer.status != _NOT_MODIFIED:  # of which only what has changed is told
        length = len(answer.body) if answer.length is None else answer.length
        headers += [(b"content-type", answer.content_type), (b"content-length", b"%d" % length)]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if answer.rest is None or not with_body:
        await send({"type": "http.response.body", "body": answer.body if with_body else b""})
    else:
        await _send_long(send, answer.body, answer.rest, receive)


async def _send_long(
    send: Send, first: bytes, rest: AsyncGenerator[bytes], receive: Receive
) -> None:
    """Sends what may be more than memory holds, as fast as the client takes it."""
    gone = asyncio.ensure_future(binding.until_gone(receive))
    try:
        await send({"type": "http.response.body", "body": first, "more_body": True})
        async for piece in rest:
            if gone.done():
                return
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        await rest.aclose()
