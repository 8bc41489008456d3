"""Input and output of a handler: the validated request, and the response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from gleanery.api.authentication import Authenticator
from gleanery.api.file_links import FileLinks, needs_links
from gleanery.api.readiness import Readiness
from gleanery.api.table_exports import TableExports
from gleanery.background.token_use import TokenUse
from gleanery.blobs import Blobs
from gleanery.http import ClientDisconnected, Header, Request, unless_disconnected
from gleanery.json_schema.validator import SchemaValidator
from gleanery.observability.telemetry import Telemetry
from gleanery.scheduling.byte_limits import ByteLimit, UnsentBytes, UnsentResponse, no_memory
from gleanery.scheduling.fair_shares import ConcurrencyLimit, FairThread, RequestScheduler, Slot
from gleanery.security.tokens import Grant
from gleanery.security.vault import Vault
from gleanery.settings import Settings
from gleanery.storage.audit import Actor, ReadAuditor
from gleanery.storage.database import Database, Engine
from gleanery.storage.outputs.large_batches import LargeBatches
from gleanery.values import timestamps
from gleanery.values.compression import Codec

if TYPE_CHECKING:
    from gleanery.api.rate_limits import RateLimiter
    from gleanery.api.reference import ReferencePage
    from gleanery.api.request_state import RequestState

Query = TypeVar("Query")
Body = TypeVar("Body")
_NONE: Any = None
_LARGE_TEXT_BYTES = 256 * 1024
_JSON = b"application/json"


@dataclass(frozen=True, slots=True)
class Services:
    """Objects that the handlers share; created once per process, in ``build_app``."""

    settings: Settings
    address: str
    database: Engine
    schema_validator: SchemaValidator
    computations: FairThread
    """Parses and prepares what would delay other requests in the event loop."""
    compressions: FairThread
    """Compresses large responses."""
    large_batches: LargeBatches
    """Prepares large batches in another process."""
    table_exports: TableExports
    """Converts exports to CSV and Parquet in other processes."""
    blobs: Blobs
    vault: Vault
    read_auditor: ReadAuditor
    """Records reads of session values in the audit log."""
    file_links: FileLinks
    clock: Callable[[], int]
    request_limit: ConcurrencyLimit
    """Limits the requests in progress."""
    body_limit: ByteLimit
    """Limits the bytes of request bodies in memory."""
    unsent_bytes: UnsentBytes
    """Limits the bytes of responses in memory."""
    scheduler: RequestScheduler
    """Decides the order in which requests start."""
    long_poll_limit: ConcurrencyLimit
    """Limits the long polls."""
    transfer_limit: ConcurrencyLimit
    """Limits the transfers of files and exports."""
    telemetry: Telemetry
    readiness: Readiness
    token_use: TokenUse
    """Notes the last use of tokens."""
    authenticator: Authenticator
    rate_limiter: RateLimiter | None
    openapi_json: Callable[[], bytes]
    reference_page: Callable[[], ReferencePage]

    def insert_local_links(
        self, text: bytes | memoryview, organization_id: int
    ) -> bytes | memoryview | None:
        """Insert links to files into the text of outputs; None if the store must sign them."""
        if not needs_links(text):
            return text
        now = self.clock() // timestamps.SECOND
        return self.file_links.insert_local(text, organization_id, now)


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
        return state.unsent_response(self.services.unsent_bytes)

    async def with_links(self, text: bytes | memoryview) -> bytes | memoryview:
        """Insert signed links to files into the text of outputs."""
        if not needs_links(text):
            return text
        if len(text) > _LARGE_TEXT_BYTES:
            await asyncio.sleep(0)  # other requests run between the parts of a large page
        now = self.services.clock() // timestamps.SECOND
        return await self.services.file_links.insert(text, self.organization_id, now)


class Response(NamedTuple):
    """Response: its first bytes, and for a long response a generator of the rest."""

    body: bytes
    status: int = 200
    content_type: bytes = b"application/json"
    headers: tuple[Header, ...] = ()
    more: tuple[bytes | memoryview, ...] = ()
    """Further bytes, kept separate because joining would copy them."""
    length: int | None = None
    """Content-Length, if it differs from the length of body and more."""
    rest: AsyncGenerator[bytes | memoryview] | None = None
    """The rest of a long body. Without a length it is the whole body, and is sent in chunks."""

    codec: Codec | None = None
    """Codec with which the body is compressed."""
    cache_control: bytes = b"no-store"

    @property
    def is_chunked(self) -> bool:
        return self.rest is not None and self.length is None

    @property
    def pieces(self) -> tuple[bytes | memoryview, ...]:
        """Body, without its rest. A JSON text of the service ends with a newline for terminals.

        A stored file may have the same media type. It has a length and is sent as it is.
        """
        is_text = self.content_type == _JSON and self.length is None and self.codec is None
        if is_text and self.body:
            return (self.body, *self.more, b"\n")
        return (self.body, *self.more)

    @property
    def size(self) -> int:
        """Bytes in memory, without the rest."""
        return len(self.body) + sum(map(len, self.more))


AnyContext = RequestContext[Any, Any]
