"""HTTP written by hand, for what no client library would send."""

from __future__ import annotations

import socket
from typing import NamedTuple
from urllib.parse import urlsplit


class RawAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def exchange(url: str, request: bytes) -> RawAnswer:
    """Sends the bytes as they are and reads until the server closes the connection."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=30) as connection:
        connection.sendall(request)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return RawAnswer(int(first.split()[1]), headers, body)


def get(url: str, target: str, *headers: str) -> RawAnswer:
    lines = [f"GET {target} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
    return exchange(url, "\r\n".join(lines).encode())


def post(url: str, target: str, body: bytes, *headers: str) -> RawAnswer:
    lines = [f"POST {target} HTTP/1.1", "Host: x", "Connection: close", *headers]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
    return exchange(url, "\r\n".join(lines).encode() + body)
