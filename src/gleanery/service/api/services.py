"""The objects that all handlers share, and what the pipeline needs to know who sends a request.

The application creates them once per process. The resource ``access`` implements the authenticator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gleanery.common.settings import Settings
from gleanery.service.api.readiness import Readiness
from gleanery.service.foundation.blobs import Blobs
from gleanery.service.foundation.errors import Forbidden
from gleanery.service.foundation.observability.telemetry import Telemetry
from gleanery.service.foundation.scheduling.byte_limits import ByteLimit, UnsentBytes
from gleanery.service.foundation.scheduling.fair_shares import (
    ConcurrencyLimit,
    FairThread,
    RequestScheduler,
)
from gleanery.service.foundation.security.tokens import Grant
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.storage.database import Engine

if TYPE_CHECKING:
    from gleanery.service.api.rate_limits import RateLimiter


Service = TypeVar("Service")


@dataclass(frozen=True, slots=True)
class Capacity:
    """What limits the requests of a process, and decides their order."""

    requests: ConcurrencyLimit
    """Limits the requests in progress."""
    long_polls: ConcurrencyLimit
    transfers: ConcurrencyLimit
    """Limits the transfers of files and exports."""
    body_bytes: ByteLimit
    """Limits the bytes of request bodies in memory."""
    unsent_bytes: UnsentBytes
    """Limits the bytes of responses in memory."""
    scheduler: RequestScheduler
    """Decides the order in which requests start."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Capacity:
        requests = ConcurrencyLimit(settings.max_requests)
        return cls(
            requests=requests,
            long_polls=ConcurrencyLimit(settings.max_connections),
            transfers=ConcurrencyLimit(settings.max_transfers),
            body_bytes=ByteLimit(settings.max_buffered_bytes),
            unsent_bytes=UnsentBytes(settings.max_unsent_bytes),
            scheduler=RequestScheduler(requests),
        )


@dataclass(frozen=True, slots=True)
class Services:
    """What every resource can use, and the objects of single resources by their type."""

    settings: Settings
    clock: Callable[[], int]
    """Returns the time in microseconds."""
    database: Engine
    blobs: Blobs
    vault: Vault
    capacity: Capacity
    computations: FairThread
    """Parses and prepares what would delay other requests in the event loop."""
    compressions: FairThread
    """Compresses large responses."""
    telemetry: Telemetry
    readiness: Readiness
    authenticator: Authenticator
    rate_limiter: RateLimiter | None
    resources: Mapping[type[Any], Any]

    def __getitem__(self, type_: type[Service]) -> Service:
        """Return the object of this type, which a resource has in this process."""
        service: Service = self.resources[type_]
        return service


class Authenticator(Protocol):
    """Finds the grant of a request, and keeps it for a short time."""

    def caller(self, headers: Mapping[bytes, bytes]) -> bytes:
        """Return the digest that identifies a caller. The token or session may be invalid."""

    def cached_organization(self, caller: bytes) -> int | None:
        """Return the cached organization of the token. The token may be invalid by now."""

    def cached_token(self, caller: bytes) -> int | None:
        """Return the id of the token if its grant is cached and still fresh."""

    def cached_grant(self, caller: bytes, scopes: Sequence[str]) -> Grant | None:
        """Return a grant that is cached, fresh, valid and has the scopes."""

    def last_grant(self, caller: bytes) -> Grant | None:
        """Return the last grant of the caller, for the log. The token may be invalid by now."""

    async def authenticate(self, caller: bytes, headers: Mapping[bytes, bytes]) -> Grant:
        """Return the grant of the caller. Raises ``Unauthenticated``."""


def require_scopes(grant: Grant, scopes: Sequence[str]) -> None:
    """Raise ``Forbidden`` unless the grant has all scopes."""
    for scope in scopes:
        if scope not in grant.scopes:
            raise Forbidden(scope)
