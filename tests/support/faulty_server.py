"""An HTTP server that fails as its script says: for tests of retries and of damaged responses."""

from __future__ import annotations

import gzip
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tests.support.waiting import TIMEOUT_SECONDS

EMPTY_PAGE = {"metadata": {"next_url": None, "next_cursor": None}, "items": []}


_LENGTH = re.compile(rb"(?i)\ncontent-length: *(\d+)")


class Step(NamedTuple):
    """Bytes that the server sends for one request, and what it does then."""

    sent: bytes = b""
    then: Literal["keep", "close", "stall"] = "close"


def respond(status: int, body: Any = EMPTY_PAGE, **headers: str) -> Step:
    """A complete response. A body that is not bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Step(_head(status, {"content-length": str(len(content)), **headers}) + content, "keep")


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} x", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).replace("_", "-").encode()


PAGE = respond(200)
CLOSE = Step()
STALL = Step(then="stall")
CLOSE_IN_HEAD = Step(PAGE.sent[:20])
CLOSE_IN_BODY = Step(PAGE.sent[:-10])
STALL_IN_BODY = Step(PAGE.sent[:-10], "stall")
CHUNKS_WITHOUT_END = Step(_head(200, {"transfer-encoding": "chunked"}) + b'5\r\n{"met\r\n')
DAMAGED_GZIP = respond(200, gzip.compress(b"{}")[:-9] + b"123456789", content_encoding="gzip")
NOT_HTTP = Step(b"SSH-2.0-OpenSSH_9.9\r\n")


class FaultyServer:
    """Follows the script, one step per request. The last step is repeated."""

    def __init__(self, *script: Step) -> None:
        self._script = list(script)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.heads: list[str] = []
        """Head of each request that was received."""
        self.closed = 0
        """Connections that the server has closed."""
        self._tls: ssl.SSLContext | None = None
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        return len(self._connections)

    def use_tls(self, certificate: Path, key: Path) -> None:
        """Encrypt all connections from now on."""
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate, key)
        self.url = self.url.replace("http:", "https:")

    def close(self) -> None:
        for opened in (self._socket, *self._connections):
            opened.close()

    def _accept(self) -> None:
        try:
            while True:
                connection, _ = self._socket.accept()
                connection.settimeout(TIMEOUT_SECONDS)
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except OSError:  # the test has ended
            pass

    def _serve(self, connection: socket.socket) -> None:
        try:
            with self._tls.wrap_socket(connection, True) if self._tls else connection as opened:
                while self._handle(opened):
                    pass
        except OSError:
            pass
        self.closed += 1

    def _handle(self, connection: socket.socket) -> bool:
        """Handle one request. Return True if the connection stays open."""
        received = connection.recv(65536)
        while received and b"\r\n\r\n" not in received:
            received += connection.recv(65536)
        if not received:
            return False
        head, _, body = received.partition(b"\r\n\r\n")
        self.heads.append(head.decode())
        length = _LENGTH.search(head)
        while length is not None and len(body) < int(length[1]):
            body += connection.recv(65536)
        step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        connection.sendall(step.sent)
        if step.then == "stall":
            connection.recv(1)  # until the client closes
        return step.then == "keep"


@contextmanager
def faulty_server(*script: Step) -> Iterator[FaultyServer]:
    server = FaultyServer(*script)
    try:
        yield server
    finally:
        server.close()
