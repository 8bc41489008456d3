"""Authentication: finds the grant of a token or a console session, and caches it briefly.

``TokenUse`` notes the last use of each token in memory. The sweep stores it.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from gleanery.service.foundation.errors import (
    Unauthenticated,
    empty_token,
    expired_token,
    incomplete_token,
    invalid_token,
    no_session,
    no_token,
    wrong_scheme,
)
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access import console_sessions, organizations
from gleanery.service.storage.database import Database, Engine

_MAX_CACHED = 10_000
_USE_INTERVAL = 30 * timestamps.SECOND  # less than a sweep, so that each sweep stores newer uses
_MAX_NOTED = 10_000
_SESSION_HEADERS = (b"cookie", console_sessions.KEY_HEADER, console_sessions.SITE_HEADER)


class TokenUse:
    """Notes when tokens are used, without a write per request."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._noted: dict[int, int] = {}
        self._stored: dict[int, int] = {}

    def note(self, token_id: int) -> None:
        """Note a use, unless a recent one is stored."""
        now = self._clock()
        if now - self._stored.get(token_id, 0) >= _USE_INTERVAL and len(self._noted) < _MAX_NOTED:
            self._noted[token_id] = now

    async def store(self) -> None:
        """Store what was noted. After a failure, the next call tries again."""
        if not self._noted:
            return
        noted = dict(self._noted)
        await organizations.record_token_use(self._database, noted, _USE_INTERVAL)
        if len(self._stored) >= _MAX_NOTED:
            self._stored.clear()
        self._stored |= noted
        self._noted = {id_: at for id_, at in self._noted.items() if noted.get(id_) != at}


class TokenAuthenticator:
    """Finds the grant of a token, or of a session of the console.

    The grant of a token is cached for ``seconds``, so a revocation takes effect after that time at
    the latest. The grant of a session is not reused: a session ends at once in every process. The
    key of the cache is a digest of the headers, never the token.

    A request with both a token and a session has the rights of the token.
    """

    def __init__(
        self,
        database: Engine,
        seconds: float,
        clock: Callable[[], int],
        token_use: TokenUse,
        cookie_name: str,
    ) -> None:
        self._database = database
        self._seconds = seconds
        self._clock = clock
        self._token_use = token_use
        self._cookie_name = cookie_name
        self._secret = secrets.token_bytes(32)  # keyed, so digests cannot be brute-forced
        self._grants: dict[bytes, tuple[float, tokens.Grant]] = {}

    def caller(self, headers: Mapping[bytes, bytes]) -> bytes:
        """Return the digest that identifies a caller. The token or session may be invalid."""
        header = headers.get(b"authorization", b"")
        if not header and console_sessions.has_session(headers):
            header = b"\0".join(headers.get(name, b"") for name in _SESSION_HEADERS)
        return hashlib.blake2b(header, digest_size=16, key=self._secret).digest()

    def cached_organization(self, caller: bytes) -> int | None:
        """Return the cached organization of the token. The token may be invalid by now."""
        cached = self._grants.get(caller)
        return None if cached is None else cached[1].organization_id

    def cached_token(self, caller: bytes) -> int | None:
        """Return the id of the token if its grant is cached and still fresh."""
        grant = self._fresh_grant(caller)
        return None if grant is None else grant.token_id

    def cached_grant(self, caller: bytes, scopes: Sequence[str]) -> tokens.Grant | None:
        """Return a grant that is cached, fresh, valid and has the scopes."""
        grant = self._fresh_grant(caller)
        if grant is None or self._has_expired(grant) or not grant.scopes.issuperset(scopes):
            return None
        return grant

    def last_grant(self, caller: bytes) -> tokens.Grant | None:
        """Return the last grant of the caller, for the log. The token may be invalid by now."""
        cached = self._grants.get(caller)
        return None if cached is None else cached[1]

    async def authenticate(self, caller: bytes, headers: Mapping[bytes, bytes]) -> tokens.Grant:
        """Return the grant of the token. Raises ``Unauthenticated``."""
        grant = self._fresh_grant(caller) or await self._find(caller, headers)
        if self._has_expired(grant):
            raise expired_token()
        return grant

    def _fresh_grant(self, caller: bytes) -> tokens.Grant | None:
        fresh_until, grant = self._grants.get(caller, (0.0, None))
        return grant if time.monotonic() < fresh_until else None

    def _has_expired(self, grant: tokens.Grant) -> bool:
        return grant.expires is not None and grant.expires <= self._clock()

    async def _find(self, caller: bytes, headers: Mapping[bytes, bytes]) -> tokens.Grant:
        now = time.monotonic()
        try:
            grant = await self._read_grant(headers)
        except Unauthenticated:
            self._grants.pop(caller, None)
            raise
        self._token_use.note(grant.token_id)
        if len(self._grants) >= _MAX_CACHED:
            self._grants.clear()
        # The organization of a session stays known, so that its requests are queued fairly.
        seconds = self._seconds if grant.session is None else 0
        self._grants[caller] = (now + seconds, grant)
        return grant

    async def _read_grant(self, headers: Mapping[bytes, bytes]) -> tokens.Grant:
        header = headers.get(b"authorization", b"")
        if not header and console_sessions.has_session(headers):
            credentials = console_sessions.find_credentials(self._cookie_name, headers)
            if credentials is None:
                raise no_session()
            is_background = console_sessions.is_background(headers)
            now = self._clock()
            grant = await console_sessions.find(self._database, credentials, now, is_background)
            if grant is None:
                raise no_session()
            return grant
        return await self.find_token(_bearer_token(header))

    async def find_token(self, token: str) -> tokens.Grant:
        """Return the grant of a token. Raises ``Unauthenticated`` if it is not valid."""
        if not tokens.is_well_formed(token):
            raise incomplete_token()
        grant = await organizations.find_grant(self._database, tokens.digest(token))
        if grant is None:
            raise invalid_token()
        return grant

    def forget_token(self, token_id: int) -> None:
        """Remove the cached grants of a token that was revoked in this process."""
        self._grants = {
            caller: cached
            for caller, cached in self._grants.items()
            if cached[1].token_id != token_id
        }


def _bearer_token(header: bytes) -> str:
    scheme, _, token = header.decode("latin-1").partition(" ")
    if not header.strip():
        raise no_token()
    if scheme.lower() != "bearer":
        raise wrong_scheme()
    token = token.strip(" ")  # a scheme may be followed by several spaces (RFC 9110)
    if not token:
        raise empty_token()
    return token
