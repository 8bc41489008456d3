"""What the pipeline needs to know who sends a request. The resource ``access`` implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gleanery.errors import Forbidden
from gleanery.security.tokens import Grant


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
