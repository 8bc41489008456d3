"""How often a token may ask: counted over a window of time, in each worker or in Redis for all."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any, NamedTuple

from limits import RateLimitItem, parse
from limits.aio.storage import RedisStorage
from limits.errors import StorageError

from gleanery.errors import SettingsError
from gleanery.http import Header

_log = logging.getLogger("gleanery")

_CONNECTIONS = 16
_PATIENCE = 0.5  # seconds that a request waits for Redis
_PAUSE = 5.0  # seconds for which Redis is left alone after it was not there
_TOKENS = 10_000  # of which the windows are kept before those that have ended are looked for


class RateLimitState(NamedTuple):
    """Where a token stands in its window."""

    is_over: bool
    until: float
    """When the window ends, and the next request begins another."""
    seconds: int
    """Until then; at least one."""
    headers: tuple[Header, ...]


class _Windows:
    """The windows of this worker. (The library's own looks through all of them at each request.)"""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._of_token: dict[int, tuple[int, float]] = {}
        self._room = _TOKENS

    def count(self, token_id: int) -> tuple[int, float]:
        """How many requests the window has with this one, and when it ends."""
        now = time.time()
        count, until = self._of_token.get(token_id, (0, 0.0))
        if until <= now:
            self._make_room(now)
            count, until = 0, now + self._seconds
        self._of_token[token_id] = count + 1, until
        return count + 1, until

    def _make_room(self, now: float) -> None:
        if len(self._of_token) >= self._room:
            self._of_token = {id_: one for id_, one in self._of_token.items() if one[1] > now}
            self._room = max(_TOKENS, 2 * len(self._of_token))


class RateLimiter:
    """Counts the requests of each token. A window begins with the first request in it."""

    def __init__(self, rate: str, redis_url: str | None) -> None:
        self._item: RateLimitItem = parse(rate)
        quota = (self._item.amount, self._item.get_expiry())
        self._policy = (b"ratelimit-policy", b'"token";q=%d;w=%d' % quota)
        self._own = _Windows(self._item.get_expiry())
        self._pool = None if redis_url is None else _pool(redis_url)
        self._shared = None if redis_url is None else _storage(redis_url, self._pool)
        self._left_alone_until = 0.0
        self._spent: dict[int, float] = {}  # when the windows end in which nothing is left

    @property
    def is_shared(self) -> bool:
        """Tells if requests are counted in Redis, which takes time."""
        return self._shared is not None

    async def count(self, token_id: int) -> RateLimitState:
        """Counts one request; returns the state of the token with it."""
        state = self.spent(token_id)
        if state is not None:
            return state
        return self._counted(token_id, await self._in_redis(token_id))

    def count_in_process(self, token_id: int) -> RateLimitState:
        """Does the same in a plain call, without Redis."""
        return self.spent(token_id) or self._counted(token_id, None)

    def spent(self, token_id: int) -> RateLimitState | None:
        """Where a token stands that has used up its window: there it stays until that ends."""
        until = self._spent.get(token_id, 0.0)
        return self._state(-1, until) if until > time.time() else None

    def _counted(self, token_id: int, shared: tuple[int, float] | None) -> RateLimitState:
        """Uses the count of Redis, or the worker's own if there is none."""
        count, until = shared or self._own.count(token_id)
        state = self._state(self._item.amount - count, until)
        if state.is_over:
            self._spent[token_id] = until
        else:
            self._spent.pop(token_id, None)
        return state

    async def _in_redis(self, token_id: int) -> tuple[int, float] | None:
        """The same as a worker's own windows tell; nothing while Redis is not there."""
        now = time.monotonic()
        if self._shared is None or now < self._left_alone_until:
            return None
        if self._left_alone_until:
            self._left_alone_until = now + _PAUSE  # one finds out, and nobody waits with it
        try:
            async with asyncio.timeout(_PATIENCE):
                found = await self._count(self._shared, token_id)
        except (StorageError, TimeoutError) as error:
            self._leave_alone(error)
            return None
        self._left_alone_until = 0.0
        return found

    async def _count(self, storage: RedisStorage, token_id: int) -> tuple[int, float]:
        key = self._item.key_for(str(token_id))
        count = await storage.incr(key, self._item.get_expiry())
        return count, await storage.get_expiry(key)

    def _leave_alone(self, error: Exception) -> None:
        if not self._left_alone_until:  # else it has been said
            _log.warning("each worker counts requests by itself", extra={"because": repr(error)})
        self._left_alone_until = time.monotonic() + _PAUSE

    def _state(self, left: int, until: float) -> RateLimitState:
        seconds = max(math.ceil(until - time.time()), 1)
        told = (b"ratelimit", b'"token";r=%d;t=%d' % (max(left, 0), seconds))
        return RateLimitState(left < 0, until, seconds, (told, self._policy))

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()


def _pool(url: str) -> Any:
    try:
        from redis.asyncio import BlockingConnectionPool
    except ImportError:
        raise SettingsError(
            "--rate-limit-storage needs the Redis client: pip install 'gleanery[redis]'"
        ) from None
    return BlockingConnectionPool.from_url(
        url,
        max_connections=_CONNECTIONS,
        timeout=_PATIENCE,
        socket_timeout=_PATIENCE,
        socket_connect_timeout=_PATIENCE,
    )


def _storage(url: str, pool: Any) -> RedisStorage:
    return RedisStorage(
        f"async+{url}",
        wrap_exceptions=True,
        implementation="redispy",
        key_prefix="gleanery",
        connection_pool=pool,
    )
