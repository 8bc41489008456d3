"""Read batching: reads small pages of outputs in batches, without tasks, on SQLite only.

The server, the kernel and the database displace each other's code and data from the processor's
caches. Therefore the pages of all requests of one scheduler round are read together, and then all
responses are sent. See ``docs/decisions/0032-read-batching.md``.

Everything here is a plain function, so nothing can wait. A request that would have to wait, or that
is not a simple repetition, is handled in a task as usual: ``request.start()``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gleanery.api import content_coding
from gleanery.api.authentication import Authenticator
from gleanery.api.context import Services
from gleanery.api.handlers import outputs
from gleanery.api.repeats import BoundRequest
from gleanery.api.request_state import RequestState
from gleanery.api.sending import Respond
from gleanery.http import ClientDisconnected, Header, Request
from gleanery.observability.telemetry import CLIENT_DISCONNECTED, request_id_of
from gleanery.scheduling.byte_limits import UNCOUNTED_BYTES
from gleanery.security.tokens import Grant
from gleanery.storage import group_lock
from gleanery.storage.database import Page, PageRead, PageReader
from gleanery.storage.outputs import pages

if TYPE_CHECKING:
    from gleanery.api.rate_limits import RateLimiter

_log = logging.getLogger("gleanery")

_MAX_ITEMS = 100  # for larger pages a batch saves nothing


class PageBatches:
    """Collects the requests of one scheduler round, then responds to all of them."""

    def __init__(
        self,
        services: Services,
        reader: PageReader,
        authenticator: Authenticator,
        rate_limiter: RateLimiter | None,
        respond: Respond,
    ) -> None:
        self._services = services
        self._reader = reader
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter
        self._send = respond
        self._waiting: list[Request] = []

    def accepts(self, bound: BoundRequest) -> bool:
        """Return True if a request that repeats an earlier one can be part of a batch."""
        return bound.operation.allows_read_batching and bound.query.query.limit <= _MAX_ITEMS

    def add(self, request: Request) -> None:
        """Add a request to the batch of this round."""
        self._waiting.append(request)

    def flush(self) -> None:
        """Responds to the collected requests. The scheduler calls it in each round."""
        if not self._waiting:
            return
        started = time.perf_counter()
        waiting, self._waiting = self._waiting, []
        batch: list[tuple[Request, Grant]] = []
        for request in waiting:
            grant = self._grant(request.state)
            if grant is None:
                request.start()
            else:
                batch.append((request, grant))
        read = self._read([request.state for request, _ in batch])
        for (request, grant), page in zip(batch, read, strict=True):
            self._finish(request, grant, page, started)

    def _read(self, states: Sequence[RequestState]) -> Sequence[Page | Exception]:
        """Read the pages. If the batch as a whole fails, each request takes the usual path."""
        try:
            return self._reader.read_pages([self._page_read(state) for state in states])
        except Exception as error:
            _log.exception("a batch of pages could not be read")
            return [error] * len(states)

    def _grant(self, state: RequestState) -> Grant | None:
        """Return the grant of the request's token if it is cached."""
        assert state.bound is not None
        scopes = state.bound.operation.scopes
        grant = self._authenticator.cached_grant(state.caller, scopes)
        if grant is None or grant.organization_id != state.organization_id:
            return None
        return grant

    def _finish(
        self, request: Request, grant: Grant, page: Page | Exception, started: float
    ) -> None:
        state: RequestState = request.state
        try:
            if isinstance(page, Page) and self._is_final(page, grant, state):
                self._respond(request, grant, page, started)
        except ClientDisconnected:
            state.is_response_sent = True
        except Exception:
            _log.exception("a batch could not respond to a request")
        if state.is_response_sent and not request.is_write_paused:
            state.release()
            request.finish()
        else:
            request.start()

    def _is_final(self, page: Page, grant: Grant, state: RequestState) -> bool:
        """Return True unless the page is empty because its group does not exist."""
        if page.parts or page.next_cursor is not None:
            return True
        assert state.bound is not None
        name = state.bound.path["group_id"]
        return group_lock.has_group(self._reader, grant.organization_id, name)

    def _respond(self, request: Request, grant: Grant, page: Page, started: float) -> None:
        """Send the page, unless the store must sign its links or the rate limit is reached.

        A page that must be compressed in a thread is not sent either.
        """
        services, state = self._services, request.state
        operation, path, query = state.bound
        [part] = page.parts or (b"",)  # a batch reads no large page
        items = services.insert_local_links(part, grant.organization_id)
        if items is None:
            return
        if len(items) > UNCOUNTED_BYTES:
            unsent = state.unsent_response(services.unsent_bytes)
            if not unsent.try_grow(len(items)):
                return
        response = outputs.page_response(
            services.address,
            path["group_id"],
            query.next_page_parameters,
            (items,),
            page.next_cursor,
        )
        codec = content_coding.requested_codec(request.header_block, operation)
        if codec is not None:
            if content_coding.is_large(response):
                return
            response = content_coding.compress_small(response, codec)
        if (rate_limit_headers := self._count(grant)) is None:
            return
        request_id = request_id_of(request.headers)
        state.organization, state.token = grant.organization_id, grant.token_id
        status = response.status
        try:
            self._send(request, response, request_id, rate_limit_headers)
            state.is_response_sent = True
        except ClientDisconnected:
            status = CLIENT_DISCONNECTED
            raise
        finally:
            if state.is_response_sent and request.is_write_paused:
                state.unrecorded = operation.name, request_id, status, started
            else:
                services.telemetry.record(request, operation.name, request_id, status, started)

    def _count(self, grant: Grant) -> Sequence[Header] | None:
        """Count the request; return None if that exceeds the limit of its token."""
        if self._rate_limiter is None:
            return ()
        counted = self._rate_limiter.count_in_process(grant.token_id)
        return None if counted.is_exceeded else counted.headers

    def _page_read(self, state: RequestState) -> PageRead:
        assert state.bound is not None
        assert state.slot is not None
        _, path, query = state.bound
        return pages.page_read(
            state.slot.organization_id,
            path["group_id"],
            query.query,
            state.cursor,
            self._services.settings.max_page_bytes,
        )
