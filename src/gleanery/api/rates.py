"""How often a token may ask: counted over a window of time, in each worker or in Redis for all."""

from __future__ import annotations

import logging
import math
import time
from typing import Any, NamedTuple

from limits import RateLimitItem, parse
from limits.aio.storage import MemoryStorage, RedisStorage, Storage
from limits.errors import StorageError

from gleanery.api.request import Header
from gleanery.errors import SettingsError

_log = logging.getLogger("gleanery")

_CONNECTIONS = 16
_PATIENCE = 0.5  # seconds that a request waits for Redis
_PAUSE = 5.0  # seconds for which Redis is left alone after it was not there


class Standing(NamedTuple):
    """Where a token stands in its window."""

    is_over: bool
    until: float
    """When the window ends, and the next request begins another."""
    seconds: int
    """Until then; at least one."""
    headers: tuple[Header, ...]


class Rates:
    """Counts the requests of each token. A window begins with the first request in it."""

    def __init__(self, rate: str, redis_url: str | None) -> None:
        self._item: RateLimitItem = parse(rate)
        quota = (self._item.amount, self._item.get_expiry())
        self._policy = (b"ratelimit-policy", b'"token";q=%d;w=%d' % quota)
        self._own = MemoryStorage()
        self._pool = None if redis_url is None else _pool(redis_url)
        self._shared = None if redis_url is None else _storage(redis_url, self._pool)
        self._left_alone_until = 0.0
        self._spent: dict[int, float] = {}  # when the windows end in which nothing is left

    async def count(self, token_id: int) -> Standing:
        """Counts one request, and tells where the token stands with it."""
        standing = self.spent(token_id) or await self._counted(token_id)
        if standing.is_over:
            self._spent[token_id] = standing.until
        else:
            self._spent.pop(token_id, None)
        return standing

    def spent(self, token_id: int) -> Standing | None:
        """Where a token stands that has used up its window: there it stays until that ends."""
        until = self._spent.get(token_id, 0.0)
        return self._standing(-1, until) if until > time.time() else None

    async def _counted(self, token_id: int) -> Standing:
        if self._shared is not None and time.monotonic() >= self._left_alone_until:
            try:
                return await self._count(self._shared, token_id)
            except StorageError as error:
                self._left_alone_until = time.monotonic() + _PAUSE
                _log.warning("each worker counts requests by itself", extra={"because": str(error)})
        return await self._count(self._own, token_id)

    async def _count(self, storage: Storage, token_id: int) -> Standing:
        item = self._item
        key = item.key_for(str(token_id))
        left = item.amount - await storage.incr(key, item.get_expiry())
        return self._standing(left, await storage.get_expiry(key))

    def _standing(self, left: int, until: float) -> Standing:
        seconds = max(math.ceil(until - time.time()), 1)
        told = (b"ratelimit", b'"token";r=%d;t=%d' % (max(left, 0), seconds))
        return Standing(left < 0, until, seconds, (told, self._policy))

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
