"""Flow control of one connection: pauses the client, and waits for it."""

from __future__ import annotations

import asyncio


class FlowControl:
    """Pauses reading while the server is behind, and tells if the client is behind."""

    __slots__ = ("_drained", "_is_reading_paused", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_reading_paused = False
        self._drained: asyncio.Future[None] | None = None

    def pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_reading_paused and not self._transport.is_closing():
            self._is_reading_paused = False
            self._transport.resume_reading()

    @property
    def is_behind(self) -> bool:
        """Tells if much of what was written is still to be read by the client."""
        return self._drained is not None

    def pause_writing(self) -> None:
        """Notes that the write buffer is full."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Notes that the write buffer has room again, or that nobody reads it any more."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    async def drain(self) -> None:
        """Returns when the client is no longer behind."""
        if self._drained is not None:
            await self._drained
