"""Open-loop load: requests at a given rate, independent of the responses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import uvloop

_TICK = 0.001


@dataclass
class Tally:
    """Results of one crowd of clients."""

    seconds: float
    statuses: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    """Durations of the successful requests, in seconds."""
    unsent: int = 0
    """Requests for which no connection was free: all of them waited for answers."""
    broken: int = 0
    """Connections that ended in the middle."""

    @property
    def rate(self) -> float:
        """Successful responses per second."""
        return self.statuses[200] / self.seconds

    def quantile(self, part: float) -> float:
        """Percentile of the durations, in milliseconds."""
        return sorted(self.times)[int(len(self.times) * part)] * 1000


class Crowd(NamedTuple):
    """Connections of one token that request a path: at a rate, or as fast as possible."""

    token: str
    path: str
    connections: int
    rate: float | None = None


class _Caller(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, free: deque[_Caller], tally: Tally) -> None:
        self._free, self._tally = free, tally
        self._head = b""
        self._left = 0
        self._sent = 0.0
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._free.append(self)

    def ask(self, request: bytes, at: float) -> None:
        self._sent = at
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head += data
            head, end, body = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._status = int(head[9:12])
            length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
            self._left, self._head, data = int(length), b"", body
        self._left -= len(data)
        if not self._left:
            self._end()

    def _end(self) -> None:
        if self._is_over:
            return
        self._tally.statuses[self._status] += 1
        if self._status == 200:
            self._tally.times.append(time.perf_counter() - self._sent)
        self._sent = 0.0
        self._free.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._tally.broken += not self._is_over
        if self in self._free:
            self._free.remove(self)

    def close(self) -> None:
        self._is_over = True
        self.transport.close()


def run_load(url: str, crowds: Sequence[Crowd], seconds: float) -> list[Tally]:
    """Runs all crowds at the same time; returns the results of each."""

    async def run() -> list[Tally]:
        return await asyncio.gather(*(_ask(url, crowd, seconds) for crowd in crowds))

    return uvloop.run(run())


async def _ask(url: str, crowd: Crowd, seconds: float) -> Tally:
    tally, free = Tally(seconds), deque[_Caller]()
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    callers = [
        (await loop.create_connection(lambda: _Caller(free, tally), parts.hostname, parts.port))[1]
        for _ in range(crowd.connections)
    ]
    head = f"GET {crowd.path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {crowd.token}\r\n\r\n"
    await _send(crowd, head.encode(), free, tally)
    for caller in callers:
        caller.close()
    return tally


async def _send(crowd: Crowd, request: bytes, free: deque[_Caller], tally: Tally) -> None:
    began, sent = time.perf_counter(), 0
    while (now := time.perf_counter()) < began + tally.seconds:
        due = len(free) if crowd.rate is None else int((now - began) * crowd.rate) - sent
        sent += due
        for _ in range(due):
            if free:
                free.popleft().ask(request, time.perf_counter())
            else:
                tally.unsent += 1
        await asyncio.sleep(_TICK if crowd.rate is not None else 0)
