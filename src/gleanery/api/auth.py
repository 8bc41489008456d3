"""Who is asking: from the Authorization header to a grant, remembered for a moment."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping

from gleanery import tokens
from gleanery.errors import Forbidden, Unauthenticated
from gleanery.store.database import Database
from gleanery.store.organizations import find_grant

_REMEMBERED = 10_000


class Doorkeeper:
    """Finds the grant of a token.

    A grant is remembered for ``seconds``, which is how long a revocation may take to hold here.
    What it is remembered by is a digest of the header, never the token.
    """

    def __init__(self, database: Database, seconds: float, clock: Callable[[], int]) -> None:
        self._database = database
        self._seconds = seconds
        self._clock = clock
        self._grants: dict[bytes, tuple[float, tokens.Grant]] = {}

    def whose(self, headers: Mapping[bytes, bytes]) -> int | None:
        """The organization that the token was last known for; that proves nothing."""
        known_by = hashlib.sha256(headers.get(b"authorization", b"")).digest()
        known = self._grants.get(known_by)
        return None if known is None else known[1].organization_id

    async def admit(self, headers: Mapping[bytes, bytes], scope: str) -> tokens.Grant:
        """The grant of the request's token, if it has the scope."""
        grant = await self._grant(headers.get(b"authorization", b""))
        if grant.expires is not None and grant.expires <= self._clock():
            raise Unauthenticated
        if scope not in grant.scopes:
            raise Forbidden(scope)
        return grant

    async def _grant(self, header: bytes) -> tokens.Grant:
        known_by = hashlib.sha256(header).digest()
        now = time.monotonic()
        until, grant = self._grants.get(known_by, (0.0, None))
        if grant is not None and now < until:
            return grant
        grant = await find_grant(self._database, tokens.digest(_bearer_token(header)))
        if grant is None:
            self._grants.pop(known_by, None)
            raise Unauthenticated
        if len(self._grants) >= _REMEMBERED:
            self._grants.clear()
        self._grants[known_by] = (now + self._seconds, grant)
        return grant


def _bearer_token(header: bytes) -> str:
    scheme, _, token = header.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer" or not tokens.is_well_formed(token):
        raise Unauthenticated
    return token
