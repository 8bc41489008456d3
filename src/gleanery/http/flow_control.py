"""Flow control of one connection: pauses reading, and waits for the write buffer."""

from __future__ import annotations

import asyncio


class FlowControl:
    """Pauses reading from the client, and knows when writing to it is paused."""

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
    def is_write_paused(self) -> bool:
        """True if the write buffer is full, because the client reads slowly."""
        return self._drained is not None

    def pause_writing(self) -> None:
        """Notes that the write buffer is full."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Notes that the write buffer has space again, or that the connection is lost."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    async def drain(self) -> None:
        """Waits until the write buffer has space again."""
        if self._drained is not None:
            await self._drained
