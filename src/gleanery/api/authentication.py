"""Authentication: from the Authorization header to a grant, cached for a short time."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable

from gleanery.errors import Forbidden, Unauthenticated
from gleanery.http.request import Request
from gleanery.security import tokens
from gleanery.storage.database import Database
from gleanery.storage.organizations import find_grant

_MAX_CACHED = 10_000


class Authenticator:
    """Finds the grant of a token.

    A grant is cached for ``seconds``, so a revocation takes effect after that time at the latest.
    The key of the cache is a digest of the header, never the token.
    """

    def __init__(self, database: Database, seconds: float, clock: Callable[[], int]) -> None:
        self._database = database
        self._seconds = seconds
        self._clock = clock
        self._secret = secrets.token_bytes(32)  # keyed, so digests cannot be brute-forced
        self._grants: dict[bytes, tuple[float, tokens.Grant]] = {}

    def cached_organization(self, request: Request) -> int | None:
        """Return the organization of a cached token, without a check that it is still valid."""
        head = request.head
        if not head.caller:
            header = head.headers.get(b"authorization", b"")
            head.caller = hashlib.blake2b(header, digest_size=16, key=self._secret).digest()
        cached = self._grants.get(head.caller)
        return None if cached is None else cached[1].organization_id

    def cached_token(self, request: Request) -> int | None:
        """Return the id of a token whose grant is cached and not outdated."""
        until, grant = self._grants.get(request.head.caller, (0.0, None))
        return grant.token_id if grant is not None and time.monotonic() < until else None

    async def admit(self, request: Request, scope: str) -> tokens.Grant:
        """Return the grant of the request's token, or raise if it lacks the scope."""
        until, grant = self._grants.get(request.head.caller, (0.0, None))
        if grant is None or time.monotonic() >= until:
            grant = await self._find(request)
        if grant.expires is not None and grant.expires <= self._clock():
            raise Unauthenticated
        if scope not in grant.scopes:
            raise Forbidden(scope)
        return grant

    async def _find(self, request: Request) -> tokens.Grant:
        now = time.monotonic()
        token = _bearer_token(request.headers.get(b"authorization", b""))
        grant = await find_grant(self._database, tokens.digest(token))
        if grant is None:
            self._grants.pop(request.head.caller, None)
            raise Unauthenticated
        if len(self._grants) >= _MAX_CACHED:
            self._grants.clear()
        self._grants[request.head.caller] = (now + self._seconds, grant)
        return grant


def _bearer_token(header: bytes) -> str:
    scheme, _, token = header.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer" or not tokens.is_well_formed(token):
        raise Unauthenticated
    return token
