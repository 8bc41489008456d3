"""HTTP messages as bytes, for requests that no client library sends."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.support.service import Client
from tests.support.waiting import TIMEOUT_SECONDS


class RawResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port or 80), timeout=TIMEOUT_SECONDS)


@contextmanager
def open_connections(url: str, count: int) -> Iterator[Sequence[socket.socket]]:
    """Opens connections; the service has accepted all of them."""
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(connect(url))
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            connections.append(connection)
        yield connections


def request_head(client: Client, method: str, path: str, *headers: str) -> bytes:
    """Request line and headers, with the token of the client."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {client.token}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode()


def read_until_close(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def count_received_bytes(connection: socket.socket) -> int:
    """Reads until the service closes or resets the connection."""
    size = 0
    try:
        while piece := connection.recv(1024 * 1024):
            size += len(piece)
    except ConnectionError:
        pass
    return size


def statuses(received: bytes) -> list[bytes]:
    """Status codes of all responses in these bytes."""
    return re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", received)


def exchange(url: str, request: bytes) -> RawResponse:
    """Sends the bytes as they are and reads until the server closes the connection."""
    with connect(url) as connection:
        connection.sendall(request)
        received = read_until_close(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return RawResponse(int(first.split()[1]), headers, body)


def get(url: str, target: str, *headers: str) -> RawResponse:
    lines = [f"GET {target} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
    return exchange(url, "\r\n".join(lines).encode())


def post(url: str, target: str, body: bytes, *headers: str) -> RawResponse:
    lines = [f"POST {target} HTTP/1.1", "Host: x", "Connection: close", *headers]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
    return exchange(url, "\r\n".join(lines).encode() + body)
