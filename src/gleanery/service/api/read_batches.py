"""Read batching: reads small pages in batches, without tasks, on SQLite only.

The server, the kernel and the database displace each other's code and data from the processor's
caches. Therefore the pages of all requests of one scheduler round are read together, and then all
responses are sent. See ``docs/explanation/sqlite.md``.

Everything here is a plain function, so nothing can wait. A request that would have to wait, or that
is not a simple repetition, is handled in a task as usual: ``request.start()``. The operation says
how its pages are read and rendered (``BatchedPage``), and the pipeline sends the responses.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from gleanery.service.api.context import BoundRequest, RequestState
from gleanery.service.api.response import Response
from gleanery.service.api.services import Services
from gleanery.service.foundation.security.tokens import Grant
from gleanery.service.http import ClientDisconnected, Request
from gleanery.service.storage.database import Page, PageRead, PageReader

Respond = Callable[[Request, Grant, Response, float], None]
"""Sends a response, or leaves the request as it is. Gets the time at which the batch started."""
_log = logging.getLogger("gleanery")


class ReadBatches:
    """Collects the requests of one scheduler round, then responds to all of them."""

    def __init__(self, services: Services, reader: PageReader, respond: Respond) -> None:
        self._services = services
        self._reader = reader
        self._respond = respond
        self._waiting: list[Request] = []

    def accepts(self, bound: BoundRequest) -> bool:
        """Return True if a request that repeats an earlier one can be part of a batch."""
        batched = bound.operation.batched_page
        return batched is not None and bound.query.query.limit <= batched.max_items

    def add(self, request: Request) -> None:
        """Add a request to the batch of this round."""
        self._waiting.append(request)

    def flush(self) -> None:
        """Respond to the collected requests. The scheduler calls it in each round."""
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

    def _grant(self, state: RequestState) -> Grant | None:
        """Return the grant of the request's token if it is cached."""
        assert state.bound is not None
        scopes = state.bound.operation.scopes
        grant = self._services.authenticator.cached_grant(state.caller, scopes)
        if grant is None or grant.organization_id != state.organization_id:
            return None
        return grant

    def _read(self, states: Sequence[RequestState]) -> Sequence[Page | Exception]:
        """Read the pages. If the batch as a whole fails, each request takes the usual path."""
        try:
            return self._reader.read_pages([self._page_read(state) for state in states])
        except Exception as error:
            _log.exception("a batch of pages could not be read")
            return [error] * len(states)

    def _page_read(self, state: RequestState) -> PageRead:
        assert state.bound is not None
        assert state.slot is not None
        operation, path, query = state.bound
        assert operation.batched_page is not None
        organization_id = state.slot.organization_id
        return operation.batched_page.read(
            self._services, organization_id, path, query.query, state.cursor
        )

    def _finish(
        self, request: Request, grant: Grant, page: Page | Exception, started: float
    ) -> None:
        state: RequestState = request.state
        try:
            response = self._response(state, grant, page)
            if response is not None:
                self._respond(request, grant, response, started)
        except ClientDisconnected:
            state.is_response_sent = True
        except Exception:
            _log.exception("a batch could not respond to a request")
        if state.is_response_sent and not request.is_write_paused:
            state.release()
            request.finish()
        else:
            request.start()

    def _response(
        self, state: RequestState, grant: Grant, page: Page | Exception
    ) -> Response | None:
        """Return the response of a page; None if a task has to make it."""
        if not isinstance(page, Page):
            return None
        assert state.bound is not None
        operation, path, query = state.bound
        assert operation.batched_page is not None
        organization_id = grant.organization_id
        return operation.batched_page.respond(self._services, organization_id, path, query, page)
