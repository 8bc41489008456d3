"""Fuzz target for a whole connection: the split of the input must not change the responses.

Two organizations send the same bytes: one sends all at once, the other a few at a time.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from gleanery.common.settings import Settings
from gleanery.service.application import App, build_app
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.values import timestamps
from gleanery.service.http import Connection
from gleanery.service.processes.start import prepare
from gleanery.service.resources.access import organizations
from gleanery.service.storage.engines import create_engine

TOKEN = b"TOKEN"
"""Placeholder for a valid token."""

_HEAD = re.compile(rb"HTTP/1\.1 (\d\d\d) [A-Za-z -]+\r\n((?:[a-z-]+: [ -~]*\r\n)*)\r\n")
_LENGTH = re.compile(rb"content-length: (\d+)\r\n")


class Response(NamedTuple):
    """Status of a response, and whether it closes the connection."""

    status: int
    is_last: bool


class _Transport(asyncio.Transport):
    """In-memory transport that records what the server writes."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.written: list[bytes] = []
        self.is_aborted = False
        self.is_closed = False
        self.has_client_finished = False
        self.waits_for_finished_client = False
        self.disconnected = asyncio.Event()
        self.can_read = asyncio.Event()
        self.can_read.set()

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.written.append(bytes(data))

    def writelines(self, data: Iterable[Any]) -> None:
        self.write(b"".join(data))

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.can_read.set()
            asyncio.get_running_loop().call_soon(self._disconnect)

    def abort(self) -> None:
        self.is_aborted = True
        self.close()

    def _disconnect(self) -> None:
        self._connection.connection_lost(None)
        self.disconnected.set()

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.can_read.clear()

    def resume_reading(self) -> None:
        self.can_read.set()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """End the server's side. The server must not wait for a client that has finished."""
        if self.has_client_finished:
            self.waits_for_finished_client = True
            self.close()

    def get_write_buffer_size(self) -> int:
        return 0


class Service:
    """The application without sockets, and two organizations with one token each."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="gleanery-fuzz-"))
        self._settings = Settings(data=folder, log_level="critical", max_wait_seconds=1)
        self._loop = uvloop.new_event_loop()
        self._app: App = self._loop.run_until_complete(self._start())

    async def _start(self) -> App:
        await prepare(self._settings)
        app = build_app(self._settings)
        await app.start()
        self.tokens = [await self._create_token(name) for name in ("whole", "in pieces")]
        return app

    async def _create_token(self, organization: str) -> bytes:
        database = create_engine(self._settings)
        await database.open()
        scopes = frozenset(tokens.SCOPES)
        token = await organizations.create_token(
            database, organization, scopes, timestamps.now(), None
        )
        await database.close()
        return token.encode()

    def stop(self) -> None:
        """Stop the threads, which would keep the program alive, and remove the files."""
        self._loop.run_until_complete(self._app.stop())
        self._loop.close()
        shutil.rmtree(self._settings.data)

    def exchange(self, pieces: Sequence[bytes]) -> list[Response]:
        """Send the pieces and then EOF, and return the responses."""
        return self._loop.run_until_complete(asyncio.wait_for(self._exchange(pieces), 20))

    async def _exchange(self, pieces: Sequence[bytes]) -> list[Response]:
        connections = self._app.registry.connections
        connection = Connection(self._app.registry)
        transport = _Transport(connection)
        connection.connection_made(transport)
        for piece in pieces:
            await transport.can_read.wait()
            if transport.is_closed:
                break
            connection.data_received(piece)
            await asyncio.sleep(0)
        transport.has_client_finished = True
        if not transport.is_closed and not connection.eof_received():
            transport.close()
        await transport.disconnected.wait()
        while connections:  # noqa: ASYNC110  (the caller limits the time)
            await asyncio.sleep(0)
        assert not transport.waits_for_finished_client
        return _responses(b"".join(transport.written), transport.is_aborted)


def _responses(written: bytes, is_aborted: bool) -> list[Response]:
    """Split the output into responses and check their lengths."""
    responses = []
    while written:
        head = _HEAD.match(written)
        assert head is not None, written[:200]
        written = written[head.end() :]
        length = _LENGTH.search(head[2])
        if length is not None and written and not written.startswith(b"HTTP/1.1 "):
            assert is_aborted or len(written) >= int(length[1])
            written = written[int(length[1]) :]
        responses.append(Response(int(head[1]), b"connection: close\r\n" in head[2]))
    return [response for response in responses if response.status != 100]


@cache
def service() -> Service:
    """Return the service. The first call starts it."""
    return Service()


def run(data: bytes) -> None:
    """Send the data whole and in pieces, and compare the statuses of the responses."""
    whole, split = (data.replace(TOKEN, token) for token in service().tokens)
    size = 1 + len(data) % 13
    pieces = [split[start : start + size] for start in range(0, len(split), size)]
    first, second = service().exchange([whole]), service().exchange(pieces)
    assert all(one.status != 500 for one in first + second), (first, second)
    assert not any(one.is_last for one in first[:-1] + second[:-1]), (first, second)
    _compare(first, second)


def _compare(first: list[Response], second: list[Response]) -> None:
    """Check that both have the same statuses, up to a response that closes one connection.

    A response before the end of a body closes the connection, and depends on the split.
    """
    for one, other in zip(first, second, strict=False):
        assert one.status == other.status, (first, second)
    shorter = min(first, second, key=len)
    is_closed = bool(shorter) and shorter[-1].is_last
    assert len(first) == len(second) or is_closed, (first, second)


def _request(start: str, *headers: str, body: bytes = b"") -> bytes:
    lines = (f"{start} HTTP/1.1", "Host: h", "Authorization: Bearer TOKEN", *headers, "", "")
    return "\r\n".join(lines).encode() + body


_JSON = "Content-Type: application/json"
_NDJSON = "Content-Type: application/x-ndjson"
_CHUNKED = "Transfer-Encoding: chunked"
SEEDS = (
    _request("GET /v1/outputs/g?limit=2&cursor=0") + _request("HEAD /healthz"),
    _request("POST /v1/cookies", _JSON, "Content-Length: 2", body=b"[]"),
    _request(
        *("POST /v1/cookies", _JSON, _CHUNKED),
        body=b'2b\r\n[{"domain":"a.com","name":"n","value":"v"}]\r\n0\r\nX: y\r\n\r\n',
    ),
    _request(
        *("POST /v1/outputs/g", _NDJSON, "Content-Length: 45", "Idempotency-Key: k"),
        body=b'{"job_id":"j","source_url":"u","data":{"a":1}}\n',
    ),
    _request("PUT /v1/groups/g", _JSON, "Content-Length: 20", body=b'{"key_fields":["a"]}'),
    _request("POST /v1/files?filename=a.txt", "Content-Length: 3", "Expect: 100-continue") + b"abc",
    _request("GET /v1/files/0", "Range: bytes=0-", 'If-None-Match: "a"', "Connection: close"),
    _request("GET /v1/blobs/0?organization=1&expires=9&signature=0", "Upgrade: h2c"),
    _request(
        *("POST /v1/cookies", _JSON, "Connection: Upgrade", "Upgrade: h2c", "Content-Length: 2"),
        body=b"[]",
    ),
    _request("POST /v1/nowhere", _CHUNKED, body=b"2;a=b\r\n[]\r\n0\r\nConnection: close\r\n\r\n")
    + _request("GET /healthz"),
    _request("DELETE /v1/cookies?domain=a.com") + _request("GET /v1/changes/g?wait=0"),
    b"GET http://host/readyz HTTP/1.0\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"
    + b"\r\n" * 10
    + _request("GET /metrics")
    + b"\r\n" * 11,
    _request("GET /nowhere") + b"rubbish",
    _request("POST /v1/nowhere", "Content-Length: 9", body=b"too short"[:4]),
)
