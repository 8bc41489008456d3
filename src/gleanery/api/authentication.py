"""Who is asking: from the Authorization header to a grant, remembered for a moment."""

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

_REMEMBERED = 10_000


class Authenticator:
    """Finds the grant of a token.

    A grant is believed for ``seconds``, which is how long a revocation may take to hold here.
    What it is remembered by is a digest of the header, never the token.
    """

    def __init__(self, database: Database, seconds: float, clock: Callable[[], int]) -> None:
        self._database = database
        self._seconds = seconds
        self._clock = clock
        self._secret = secrets.token_bytes(32)  # so that what is remembered can't be tried out
        self._grants: dict[bytes, tuple[float, tokens.Grant]] = {}

    def cached_organization(self, request: Request) -> int | None:
        """The organization that the token was last known for; that proves nothing."""
        head = request.head
        if not head.caller:
            header = head.headers.get(b"authorization", b"")
            head.caller = hashlib.blake2b(header, digest_size=16, key=self._secret).digest()
        known = self._grants.get(head.caller)
        return None if known is None else known[1].organization_id

    def cached_token(self, request: Request) -> int | None:
        """The token's number, if its grant is remembered and still believed."""
        known = self._grants.get(request.head.caller)
        return known[1].token_id if known is not None and time.monotonic() < known[0] else None

    async def admit(self, request: Request, scope: str) -> tokens.Grant:
        """The grant of the request's token, if it has the scope."""
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
        if len(self._grants) >= _REMEMBERED:
            self._grants.clear()
        self._grants[request.head.caller] = (now + self._seconds, grant)
        return grant


def _bearer_token(header: bytes) -> str:
    scheme, _, token = header.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer" or not tokens.is_well_formed(token):
        raise Unauthenticated
    return token
