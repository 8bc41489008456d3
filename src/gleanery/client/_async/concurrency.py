"""Waiting, threads, work next to that of the caller, and owners of connections, with asyncio.

The twin in ``_sync`` is written by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from gleanery.client.configuration import is_loopback
from gleanery.client.errors import ClientError
from gleanery.client.requests import Request

if TYPE_CHECKING:
    import ssl

    import httpx2

P = ParamSpec("P")
T = TypeVar("T")

Items = Iterable[Any] | AsyncIterable[Any]
"""What a method takes items from."""


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that computes or writes files, without blocking other tasks."""
    return await asyncio.to_thread(function, *args, **kwargs)


def connection_owner() -> asyncio.AbstractEventLoop:
    """Return the event loop: no other one can use its connections."""
    return asyncio.get_running_loop()


def is_ended(owner: asyncio.AbstractEventLoop) -> bool:
    return owner.is_closed()


def new_http_transport(url: str, context: ssl.SSLContext) -> httpx2.AsyncBaseTransport | None:
    """Return connections to this machine, which no proxy reaches; else None for those of httpx2."""
    import httpx2

    return httpx2.AsyncHTTPTransport(verify=context) if is_loopback(url) else None


_LARGE_BYTES = 64 * 1024  # a smaller body is sent before a response can come
_REJECTION_SECONDS = 5.0


def head_of(request: Request) -> Request | None:
    """Return a request that sends only the head of another one; None if that has no large body.

    asyncio loses a response that comes before the end of a request, if the service then closes
    the connection. The service rejects the head alone in the same way.
    """
    headers = dict(request.headers)
    if isinstance(request.body, bytes):
        headers["content-length"] = str(len(request.body))
    if int(headers.get("content-length", 0)) < _LARGE_BYTES:
        return None
    return Request(
        request.method,
        request.path,
        request.parameters,
        headers,
        _NoBody(),
        max_timeout=_REJECTION_SECONDS,
    )


class _NoBody:
    """Body that is not sent: after this error, httpcore2 reads the response."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        import httpcore2

        class NotSent(httpcore2.WriteError, ClientError):
            """Error that another transport, which reads the body itself, passes on."""

        raise NotSent("The body is not sent")


async def iterate(items: Items) -> AsyncIterator[Any]:
    """Iterate over items of either kind."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


class AsyncRepetition:
    """Calls a function again and again, until it returns None instead of the seconds to wait."""

    def __init__(self, step: Callable[[], Awaitable[float | None]]) -> None:
        self._step = step
        self._task: asyncio.Task[None] | None = None

    def start(self, delay: float) -> None:
        """Make the first call after this delay."""
        self._task = asyncio.create_task(self._run(delay))

    async def stop(self) -> None:
        """End the calls, including one that runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, delay: float | None) -> None:
        while delay is not None:
            await asyncio.sleep(delay)
            delay = await self._step()
