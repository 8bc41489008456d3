"""Bytes on a connection of the whole service, at once and piece by piece: the answers are the same.

Two organizations go through the same: one sends all bytes at once, the other a few at a time.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import uvloop

from gleanery.api.app import App, build_app
from gleanery.http import Connection
from gleanery.security import tokens
from gleanery.serve import prepare
from gleanery.settings import Settings
from gleanery.storage import organizations
from gleanery.storage.engines import database_of
from gleanery.values import timestamps

TOKEN = b"TOKEN"
"""Stands for a valid token."""

_HEAD = re.compile(rb"HTTP/1\.1 (\d\d\d) [A-Za-z -]+\r\n((?:[a-z-]+: [ -~]*\r\n)*)\r\n")
_LENGTH = re.compile(rb"content-length: (\d+)\r\n")


class _Transport(asyncio.Transport):
    """A socket whose other end is us."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.written: list[bytes] = []
        self.is_cut = False
        self.is_closed = False
        self.has_heard_all = False
        self.waits_in_vain = False
        self.lost = asyncio.Event()
        self.open_to_read = asyncio.Event()
        self.open_to_read.set()

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.written.append(bytes(data))

    def writelines(self, data: Iterable[Any]) -> None:
        self.write(b"".join(data))

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.open_to_read.set()
            asyncio.get_running_loop().call_soon(self._lose)

    def abort(self) -> None:
        self.is_cut = True
        self.close()

    def _lose(self) -> None:
        self._connection.connection_lost(None)
        self.lost.set()

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.open_to_read.clear()

    def resume_reading(self) -> None:
        self.open_to_read.set()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Our side has said all, and waits for the other to do so too."""
        if self.has_heard_all:
            self.waits_in_vain = True
            self.close()

    def get_write_buffer_size(self) -> int:
        return 0


class _State:
    """What the server would keep of its connections."""

    def __init__(self) -> None:
        self.connections: set[Any] = set()
        self.tasks: set[asyncio.Task[None]] = set()


class Service:
    """The application without its sockets, and two organizations with a token each."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="gleanery-fuzz-"))
        self._settings = Settings(data=folder, log_level="critical", longest_wait=1)
        self._loop = uvloop.new_event_loop()
        self._app: App = self._loop.run_until_complete(self._start())

    async def _start(self) -> App:
        await prepare(self._settings)
        app = build_app(self._settings)
        await app.start()
        self.tokens = [await self._token(name) for name in ("at once", "piece by piece")]
        return app

    async def _token(self, organization: str) -> bytes:
        database = database_of(self._settings)
        await database.open()
        scopes = frozenset(tokens.SCOPES)
        made = await organizations.create_token(
            database, organization, scopes, timestamps.now(), None
        )
        await database.close()
        return made.encode()

    def stop(self) -> None:
        """Ends its threads, without which a program that used it does not end, and its files."""
        self._loop.run_until_complete(self._app.stop())
        self._loop.close()
        shutil.rmtree(self._settings.data)

    def exchange(self, pieces: Sequence[bytes]) -> list[int]:
        """The statuses of the answers to what a client sends before it says that this is all."""
        return self._loop.run_until_complete(asyncio.wait_for(self._exchange(pieces), 20))

    async def _exchange(self, pieces: Sequence[bytes]) -> list[int]:
        state = _State()
        connection = Connection(self._app.registry, state)
        transport = _Transport(connection)
        connection.connection_made(transport)
        for piece in pieces:
            await transport.open_to_read.wait()
            if transport.is_closed:
                break
            connection.data_received(piece)
            await asyncio.sleep(0)
        transport.has_heard_all = True
        if not transport.is_closed and not connection.eof_received():
            transport.close()
        await transport.lost.wait()
        if state.tasks:
            await asyncio.wait(state.tasks)
        assert not state.connections
        assert not transport.waits_in_vain
        return _statuses(b"".join(transport.written), transport.is_cut)


def _statuses(written: bytes, is_cut: bool) -> list[int]:
    """One answer behind the other, each as long as it says."""
    found = []
    while written:
        head = _HEAD.match(written)
        assert head is not None, written[:200]
        written = written[head.end() :]
        length = _LENGTH.search(head[2])
        if length is not None and written and not written.startswith(b"HTTP/1.1 "):
            assert is_cut or len(written) >= int(length[1])
            written = written[int(length[1]) :]
        found.append(int(head[1]))
    return [status for status in found if status != 100]


@cache
def service() -> Service:
    """Made when it is first needed."""
    return Service()


def run(data: bytes) -> None:
    at_once, slowly = (data.replace(TOKEN, token) for token in service().tokens)
    size = 1 + len(data) % 13
    pieces = [slowly[start : start + size] for start in range(0, len(slowly), size)]
    first, second = service().exchange([at_once]), service().exchange(pieces)
    assert 500 not in first + second, (first, second)
    # Rubbish behind a request that was answered before it came is told of in an answer of its own.
    assert _without_last_word(first) == _without_last_word(second), (first, second)


def _without_last_word(statuses: list[int]) -> list[int]:
    return statuses[:-1] if statuses[-1:] == [400] else statuses


def _request(start: str, *headers: str, body: bytes = b"") -> bytes:
    lines = (f"{start} HTTP/1.1", "Host: h", "Authorization: Bearer TOKEN", *headers, "", "")
    return "\r\n".join(lines).encode() + body


_JSON = "Content-Type: application/json"
_LINES = "Content-Type: application/x-ndjson"
_CHUNKED = "Transfer-Encoding: chunked"
SEEDS = (
    _request("GET /v1/outputs/g?limit=2&cursor=0") + _request("HEAD /healthz"),
    _request("POST /v1/cookies", _JSON, "Content-Length: 2", body=b"[]"),
    _request(
        *("POST /v1/cookies", _JSON, _CHUNKED),
        body=b'2b\r\n[{"domain":"a.com","name":"n","value":"v"}]\r\n0\r\nX: y\r\n\r\n',
    ),
    _request(
        *("POST /v1/outputs/g", _LINES, "Content-Length: 45", "Idempotency-Key: k"),
        body=b'{"job_id":"j","source_url":"u","data":{"a":1}}\n',
    ),
    _request("PUT /v1/groups/g", _JSON, "Content-Length: 20", body=b'{"key_fields":["a"]}'),
    _request("POST /v1/files?filename=a.txt", "Content-Length: 3", "Expect: 100-continue") + b"abc",
    _request("GET /v1/files/0", "Range: bytes=0-", 'If-None-Match: "a"', "Connection: close"),
    _request("GET /v1/blobs/0?organization=1&expires=9&signature=0", "Upgrade: h2c"),
    _request("DELETE /v1/cookies?domain=a.com") + _request("GET /v1/changes/g?wait=0"),
    b"GET http://host/readyz HTTP/1.0\r\n\r\n",
    _request("GET /nowhere") + b"rubbish",
    _request("POST /v1/nowhere", "Content-Length: 9", body=b"too short"[:4]),
)
