"""Receiver of webhooks in a separate process, and what it has received.

The path of an endpoint says how it responds: ``/ok/1``, ``/slow/1``, ``/failing/1`` or ``/gone/1``.
More segments may follow.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from faults.processes import is_alive, wait_until

OK, SLOW, FAILING, GONE = "ok", "slow", "failing", "gone"
_STATUSES = {OK: 200, SLOW: 200, FAILING: 500, GONE: 410}
_ESTABLISHED = "01"


class Delivery(NamedTuple):
    """A request that an endpoint has received, at a time of the monotonic clock."""

    time: float
    endpoint: str
    delivery_id: str
    event: str
    data: dict[str, Any]


class Receiver:
    """The process, and the deliveries that it has received."""

    def __init__(self, file: Path, prefix: Sequence[str] = ()) -> None:
        """Start the process. ``prefix`` stands before its command, to choose a core."""
        file.touch()
        self._file = file.open("rb")
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "faults.webhook_receiver", str(file)],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.deliveries: list[Delivery] = []

    def url(self, endpoint: str) -> str:
        return f"http://127.0.0.1:{self.port}{endpoint}"

    def update(self) -> None:
        """Add what was received since the last call. The last line may not be complete yet."""
        while (line := self._file.readline()).endswith(b"\n"):
            time_, endpoint, delivery_id, body = line.split(b" ", 3)
            event = json.loads(body)
            self.deliveries.append(
                Delivery(
                    float(time_),
                    endpoint.decode(),
                    delivery_id.decode(),
                    event["type"],
                    event["data"],
                )
            )
        self._file.seek(-len(line), os.SEEK_CUR)

    def sender(self, pids: Sequence[int]) -> int | None:
        """Return which of these processes has a connection to an endpoint; None if none has."""
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        port = f":{self.port:04X}"
        found = {f"socket:[{line[9]}]" for line in lines if line[2].endswith(port)}
        for pid in filter(is_alive, pids):
            with suppress(OSError):  # the process or its connection has ended in the meantime
                if any(os.readlink(link) in found for link in Path(f"/proc/{pid}/fd").iterdir()):
                    return pid
        return None

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._file.close()


def start_receiver(file: Path, prefix: Sequence[str] = ()) -> Receiver:
    receiver = Receiver(file, prefix)
    wait_until(lambda: receiver.port)
    return receiver


# --- the process ---------------------------------------------------------------------------------


async def _receive(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: BinaryIO
) -> None:
    """Respond to the requests of a connection."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            endpoint = head[0].split()[1]
            headers = dict(line.lower().split(b": ", 1) for line in head[1:] if line)
            body = await reader.readexactly(int(headers[b"content-length"]))
            start = b"%.6f %s %s " % (time.monotonic(), endpoint, headers[b"webhook-id"])
            received.write(start + body + b"\n")
            if not await _respond(endpoint.decode(), reader, writer):
                break
    writer.close()


async def _respond(
    endpoint: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Respond as the endpoint does. Return False if the connection ends."""
    _, kind, number, *_ = endpoint.split("/")
    if kind == SLOW:
        await asyncio.sleep(1 + int(number) % 3)
    if kind == FAILING and int(number) % 3 == 1:
        return False
    if kind == FAILING and int(number) % 3 == 2:
        await reader.read()  # no response: the client ends the connection
        return False
    writer.write(b"HTTP/1.1 %d x\r\ncontent-length: 2\r\n\r\nok" % _STATUSES[kind])
    return True


async def _serve(received: BinaryIO) -> None:
    server = await asyncio.start_server(
        lambda reader, writer: _receive(reader, writer, received), "127.0.0.1", 0, backlog=1000
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _main(path: str) -> None:
    with Path(path).open("ab", buffering=0) as received:
        asyncio.run(_serve(received))


if __name__ == "__main__":
    _main(sys.argv[1])
