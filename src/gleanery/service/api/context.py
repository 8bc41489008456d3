"""The input of a handler: a validated request, what the service offers, and pages of lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from gleanery.service.api.request_state import RequestState
from gleanery.service.api.response import Response
from gleanery.service.api.services import Services
from gleanery.service.foundation.scheduling.byte_limits import UnsentResponse, no_memory
from gleanery.service.foundation.scheduling.fair_shares import Slot
from gleanery.service.foundation.security.tokens import Actor, Grant
from gleanery.service.http import ClientDisconnected, Header, Request, unless_disconnected
from gleanery.service.storage.database import Database
from gleanery.service.storage.paging import ListPage, PageLimits

Query = TypeVar("Query")
Body = TypeVar("Body")
_NONE: Any = None


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
        if self.request.is_closed:
            raise ClientDisconnected
        if not self._unsent_response.try_grow(size):
            raise no_memory(size)

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
