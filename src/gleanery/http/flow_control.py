"""Flow control of one connection: pauses reading, and waits for the write buffer."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios

_NUMBER = struct.Struct("i")  # answer of the system to TIOCOUTQ


def unconfirmed_bytes(transport: asyncio.Transport) -> int:
    """Return the bytes that the system has not sent, or whose receipt is not confirmed.

    A transport has no socket when TLS is closed, shortly before its protocol is told.
    """
    connected = transport.get_extra_info("socket")
    if connected is None:
        return 0
    try:
        answer = fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(_NUMBER.size))
    except OSError:  # only Linux knows this of a socket
        return 0
    return int(_NUMBER.unpack(answer)[0])


class FlowControl:
    """Pauses reading from the client, and knows when writing to it is paused."""

    __slots__ = ("_drained", "_transport", "is_read_paused", "is_write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._drained: asyncio.Future[None] | None = None
        self.is_read_paused = False
        """True if the client cannot send at the moment."""
        self.is_write_paused = False
        """True if the write buffer is full, because the client reads slowly."""

    def pause_reading(self) -> None:
        if not self.is_read_paused:
            self.is_read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_read_paused and not self._transport.is_closing():
            self.is_read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Note that the write buffer is full."""
        self.is_write_paused = True
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Note that the write buffer has space again, or that the connection is lost."""
        self.is_write_paused = False
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    async def drain(self) -> None:
        """Wait until the write buffer has space again."""
        if self._drained is not None:
            await self._drained
