"""Batches of small pages of outputs that clients repeat: answered without tasks, on SQLite only.

A request passes through the interpreter, the server, the system and the database, and each of
them displaces the others from the processor's caches. Therefore the pages of the requests of one
turn are read together, and then all are answered: see ``docs/decisions/0032-read-batching.md``.

Everything here is a plain function, so nothing can wait. A request that would have to wait, or
that is irregular in any way, takes the usual path: ``request.start()``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gleanery.api.authentication import Authenticator
from gleanery.api.context import Services
from gleanery.api.handlers import outputs
from gleanery.api.repeats import BoundRequest
from gleanery.api.request_state import RequestState
from gleanery.api.sending import respond
from gleanery.http import ClientDisconnected, Header, Request
from gleanery.observability import telemetry
from gleanery.security.tokens import Grant
from gleanery.storage.database import Page, PageRead, PageReader
from gleanery.storage.outputs import pages

if TYPE_CHECKING:
    from gleanery.api.rate_limits import RateLimiter

_log = logging.getLogger("gleanery")

_MAX_ITEMS = 100  # reading a larger page takes so long that a batch gains nothing


class _Entry(NamedTuple):
    request: Request
    bound: BoundRequest
    grant: Grant
    read: PageRead


class PageBatches:
    """Collects the requests of one turn of the scheduler, then answers them together."""

    def __init__(
        self,
        services: Services,
        reader: PageReader,
        authenticator: Authenticator,
        rate_limiter: RateLimiter | None,
    ) -> None:
        self._services = services
        self._reader = reader
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter
        self._waiting: list[Request] = []

    def takes(self, bound: BoundRequest) -> bool:
        """Tells if a request that repeats an earlier one can be part of a batch."""
        return bound.operation.batches_pages and bound.query.query.limit <= _MAX_ITEMS

    def add(self, request: Request) -> None:
        """Adds a request whose turn it is."""
        self._waiting.append(request)

    def answer(self) -> None:
        """Answers the requests of this turn. The scheduler calls it at the end of each turn."""
        if not self._waiting:
            return
        started = time.perf_counter()
        waiting, self._waiting = self._waiting, []
        entries = [entry for entry in map(self._prepare, waiting) if entry is not None]
        read = self._reader.read_pages([entry.read for entry in entries])
        for entry, page in zip(entries, read, strict=True):
            self._answer(entry, page, started)

    def _prepare(self, request: Request) -> _Entry | None:
        """Finds what the request may read; starts it on the usual path if that is not certain."""
        state: RequestState = request.state
        bound = state.bound
        if bound is not None:
            grant = self._authenticator.cached_grant(state.caller, bound.operation.scope)
            if grant is not None and grant.organization_id == state.organization_id:
                group, query = bound.path["group_id"], bound.query.query
                read = pages.page_read(grant.organization_id, group, query, state.cursor)
                return _Entry(request, bound, grant, read)
        request.start()
        return None

    def _answer(self, entry: _Entry, page: Page | Exception, started: float) -> None:
        request = entry.request
        state: RequestState = request.state
        try:
            if isinstance(page, Page) and page.items:  # an empty page may be of an unknown group
                self._respond(entry, page, started)
        except ClientDisconnected:
            state.is_answered = True
        except Exception:
            _log.exception("a batch could not answer a request")
        if state.is_answered and not request.is_behind:
            state.release_slot()
            request.finish()
        else:
            request.start()

    def _respond(self, entry: _Entry, page: Page, started: float) -> None:
        """Sends the page, unless its links must be signed elsewhere or the rate limit is reached."""
        request, bound, grant, _ = entry
        services = self._services
        items = services.insert_own_links(page.items, grant.organization_id)
        if items is None or (rate_limit_headers := self._count(grant)) is None:
            return
        request_id = telemetry.request_id(request.headers)
        page = Page(items, page.next_cursor)
        group, repeated = bound.path["group_id"], bound.query.repeated
        response = outputs.page_response(services.address, group, repeated, page)
        try:
            respond(request, response, request_id, rate_limit_headers)
            request.state.is_answered = True
        finally:
            services.telemetry.record(
                bound.operation.name, request, request_id, response.status, started
            )

    def _count(self, grant: Grant) -> Sequence[Header] | None:
        """Counts the request; returns None if that exceeds the limit of its token."""
        if self._rate_limiter is None:
            return ()
        counted = self._rate_limiter.count_in_process(grant.token_id)
        return None if counted.is_over else counted.headers
