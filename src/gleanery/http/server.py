"""The server: accepts connections on a listening socket, and stops in order."""

from __future__ import annotations

import asyncio
import socket

from gleanery.http.connection import Connection
from gleanery.http.registry import ConnectionRegistry
from gleanery.http.tls import TlsContext, TlsListener

_CANCEL_SECONDS = 1.0


class HttpServer:
    """Serves an application between ``start`` and ``stop``."""

    _listener: asyncio.Server | TlsListener
    _timeouts: asyncio.Task[None]

    def __init__(self, registry: ConnectionRegistry, tls_context: TlsContext | None = None) -> None:
        self._registry = registry
        self._tls_context = tls_context

    async def start(self, listener: socket.socket, backlog: int = 100) -> None:
        """Accept connections on a bound socket."""
        loop = asyncio.get_running_loop()
        if self._tls_context is None:
            self._listener = await loop.create_server(
                lambda: Connection(self._registry), sock=listener, backlog=backlog
            )
        else:
            self._listener = TlsListener(self._registry, self._tls_context)
            self._listener.start(listener, backlog)
        self._timeouts = loop.create_task(self._registry.watch_timeouts())

    async def stop(self, seconds: float) -> int:
        """Accept nothing more, and wait so long for the requests in progress.

        Return the number of requests that were cut off.
        """
        self._listener.close()
        self._registry.shutdown()
        cut_off = 0
        if not await self._has_ended(seconds):
            cut_off = self._registry.abort()
            await self._has_ended(_CANCEL_SECONDS)
        self._timeouts.cancel()
        await asyncio.gather(self._timeouts, return_exceptions=True)
        return cut_off

    async def _has_ended(self, seconds: float) -> bool:
        """Wait so long for the end of all requests."""
        try:
            async with asyncio.timeout(seconds):
                await self._registry.wait_ended()
        except TimeoutError:
            return False
        return True
