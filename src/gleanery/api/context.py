"""What a handler gets and gives: one request already checked, one answer ready to send."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from gleanery.api.file_links import FileLinks, needs_links
from gleanery.blobs import Blobs
from gleanery.http import Header, Request
from gleanery.json_schema.validator import SchemaValidator
from gleanery.observability.telemetry import Telemetry
from gleanery.scheduling.limits import ConcurrencyLimit, Slot
from gleanery.scheduling.scheduler import RequestScheduler
from gleanery.security.vault import Vault
from gleanery.settings import Settings
from gleanery.storage.audit import Actor, ReadAuditor
from gleanery.storage.database import Database, Engine
from gleanery.values import timestamps

Query = TypeVar("Query")
Body = TypeVar("Body")
_NONE: Any = None


@dataclass(frozen=True, slots=True)
class Services:
    """What the handlers work with; made once per process, in ``build_app``."""

    settings: Settings
    address: str
    database: Engine
    schemas: SchemaValidator
    blobs: Blobs
    vault: Vault
    read_auditor: ReadAuditor
    """Of session values, on their way into the audit log."""
    file_links: FileLinks
    clock: Callable[[], int]
    work: ConcurrencyLimit
    """For requests that are worked on."""
    scheduler: RequestScheduler
    """In which order they are begun."""
    waits: ConcurrencyLimit
    """For those that only wait for news."""
    transfers: ConcurrencyLimit
    """For files on their way in or out."""
    telemetry: Telemetry
    contract: Callable[[], bytes]
    reference: Callable[[], bytes]

    def insert_own_links(
        self, text: bytes | memoryview, organization_id: int
    ) -> bytes | memoryview | None:
        """Inserts the links of files into the text of outputs; None if the store must sign them."""
        if not needs_links(text):
            return text
        now = self.clock() // timestamps.SECOND
        return self.file_links.insert_own(text, organization_id, now)


@dataclass(slots=True)
class RequestContext(Generic[Query, Body]):
    """One request: whose it is, what it names, what it asks, what it brings."""

    services: Services
    organization_id: int
    token_id: int | None
    request_id: bytes
    """Who asks, for the audit log."""
    request: Request
    path: dict[str, str]
    query: Query = _NONE
    """But for the cursor: the same object may serve many requests."""
    cursor: int = 0
    repeated: tuple[tuple[str, str], ...] = ()
    """The query as it was written, without the cursor, for links that repeat it."""
    body: Body = _NONE
    idempotency_key: str | None = None

    @property
    def actor(self) -> Actor:
        """Who acts, for the audit log."""
        return Actor(self.token_id, self.request_id.decode("ascii"))

    @property
    def database(self) -> Database:
        """With the rows of the caller's organization, and no others."""
        return self.services.database.for_tenant(self.organization_id)

    @property
    def slot(self) -> Slot:
        """The request's place among the others."""
        slot: Slot | None = self.request.state.slot
        assert slot is not None
        return slot

    async def with_links(self, text: bytes | memoryview) -> bytes | memoryview:
        """The text of outputs with links to their files that work for the caller."""
        if not needs_links(text):
            return text
        now = self.services.clock() // timestamps.SECOND
        return await self.services.file_links.insert(text, self.organization_id, now)


class Response(NamedTuple):
    """The bytes of an answer; of a long one the first, and the rest as it comes."""

    body: bytes
    status: int = 200
    content_type: bytes = b"application/json"
    headers: tuple[Header, ...] = ()
    more: tuple[bytes | memoryview, ...] = ()
    """Further bytes that are at hand: to join a megabyte would be to copy it."""
    length: int | None = None
    """Of all bytes, where they are not just these."""
    rest: AsyncGenerator[bytes] | None = None

    @property
    def total_length(self) -> int:
        if self.length is not None:
            return self.length
        return len(self.body) + sum(map(len, self.more))


AnyContext = RequestContext[Any, Any]
