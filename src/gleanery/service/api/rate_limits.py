"""Rate limits per token over fixed time windows, counted per worker or in Redis."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any, NamedTuple

from limits import RateLimitItem, parse
from limits.aio.storage import RedisStorage
from limits.errors import StorageError

from gleanery.common.errors import SettingsError
from gleanery.service.http import Header

_log = logging.getLogger("gleanery")

_MAX_CONNECTIONS = 16
_REDIS_TIMEOUT = 0.5  # seconds that a request waits for Redis
_RETRY_SECONDS = 5.0  # time without Redis after it has failed
_MAX_WINDOWS = 10_000  # above this number, ended windows are removed


class RateLimitState(NamedTuple):
    """State of a token in its current window."""

    is_exceeded: bool
    until: float
    """End of the window. The next request after it starts another."""
    seconds: int
    """Seconds until the end, at least one."""
    headers: tuple[Header, ...]


class _Windows:
    """Windows of this worker. The library's own storage scans all windows at each request."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._by_token: dict[int, tuple[int, float]] = {}
        self._max_windows = _MAX_WINDOWS

    def count(self, token_id: int) -> tuple[int, float]:
        """Count a request; return the count of the window and its end."""
        now = time.time()
        count, until = self._by_token.get(token_id, (0, 0.0))
        if until <= now:
            self._remove_ended(now)
            count, until = 0, now + self._seconds
        self._by_token[token_id] = count + 1, until
        return count + 1, until

    def _remove_ended(self, now: float) -> None:
        if len(self._by_token) >= self._max_windows:
            self._by_token = {
                token_id: (count, until)
                for token_id, (count, until) in self._by_token.items()
                if until > now
            }
            self._max_windows = max(_MAX_WINDOWS, 2 * len(self._by_token))


class RateLimiter:
    """Counts the requests of each token. A window starts with the first request in it."""

    def __init__(self, rate: str, redis_url: str | None) -> None:
        self._item: RateLimitItem = parse(rate)
        quota = (self._item.amount, self._item.get_expiry())
        self._policy = (b"ratelimit-policy", b'"token";q=%d;w=%d' % quota)
        self._local = _Windows(self._item.get_expiry())
        self._pool = None if redis_url is None else _pool(redis_url)
        self._shared = None if redis_url is None else _storage(redis_url, self._pool)
        self._redis_retry_at = 0.0  # 0 while Redis is available
        self.fallbacks = 0
        """Times that Redis became unavailable."""
        self._exhausted: dict[int, float] = {}  # ends of the windows that have reached the limit

    @property
    def is_shared(self) -> bool:
        """True if requests are counted in Redis, which takes time."""
        return self._shared is not None

    @property
    def is_fallback_active(self) -> bool:
        """True while requests are counted without Redis, although they should be there."""
        return self._redis_retry_at != 0.0

    async def count(self, token_id: int) -> RateLimitState:
        """Count one request, and return the state of its token."""
        state = self.exhausted(token_id)
        if state is not None:
            return state
        return self._counted(token_id, await self._count_in_redis(token_id))

    async def check(self) -> None:
        """Log a warning if Redis is not available, perhaps because of a wrong password."""
        if self._shared is None:
            return
        try:
            async with asyncio.timeout(_REDIS_TIMEOUT):
                await self._shared.get("check")
        except (StorageError, TimeoutError) as error:
            self._pause_redis(error)

    def count_in_process(self, token_id: int) -> RateLimitState:
        """Do the same without waiting, and without Redis."""
        return self.exhausted(token_id) or self._counted(token_id, None)

    def exhausted(self, token_id: int) -> RateLimitState | None:
        """Return the state of a token that has reached its limit in the current window."""
        until = self._exhausted.get(token_id, 0.0)
        return self._state(-1, until) if until > time.time() else None

    def _counted(self, token_id: int, shared: tuple[int, float] | None) -> RateLimitState:
        """Use the count of Redis, or the worker's own if there is none."""
        count, until = shared or self._local.count(token_id)
        state = self._state(self._item.amount - count, until)
        if state.is_exceeded:
            self._exhausted[token_id] = until
        else:
            self._exhausted.pop(token_id, None)
        return state

    async def _count_in_redis(self, token_id: int) -> tuple[int, float] | None:
        """Count a request in Redis; return None while Redis is not available."""
        now = time.monotonic()
        if self._shared is None or now < self._redis_retry_at:
            return None
        is_retry = self.is_fallback_active
        if is_retry:
            self._redis_retry_at = now + _RETRY_SECONDS  # only this request tries again
        try:
            async with asyncio.timeout(_REDIS_TIMEOUT):
                counted = await self._increment(self._shared, token_id)
        except (StorageError, TimeoutError) as error:
            self._pause_redis(error)
            return None
        if is_retry:
            self._redis_retry_at = 0.0
            _log.warning("Redis is available again: all workers count requests together")
        return counted

    async def _increment(self, storage: RedisStorage, token_id: int) -> tuple[int, float]:
        key = self._item.key_for(str(token_id))
        count = await storage.incr(key, self._item.get_expiry())
        return count, await storage.get_expiry(key)

    def _pause_redis(self, error: Exception) -> None:
        if not self.is_fallback_active:  # log only the first failure
            self.fallbacks += 1
            _log.warning(
                "Redis is not available: each worker counts requests on its own",
                extra={"reason": repr(error)},
            )
        self._redis_retry_at = time.monotonic() + _RETRY_SECONDS

    def _state(self, left: int, until: float) -> RateLimitState:
        seconds = max(math.ceil(until - time.time()), 1)
        header = (b"ratelimit", b'"token";r=%d;t=%d' % (max(left, 0), seconds))
        return RateLimitState(left < 0, until, seconds, (header, self._policy))

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
        max_connections=_MAX_CONNECTIONS,
        timeout=_REDIS_TIMEOUT,
        socket_timeout=_REDIS_TIMEOUT,
        socket_connect_timeout=_REDIS_TIMEOUT,
    )


def _storage(url: str, pool: Any) -> RedisStorage:
    return RedisStorage(
        f"async+{url}",
        wrap_exceptions=True,
        implementation="redispy",
        key_prefix="gleanery",
        connection_pool=pool,
    )
