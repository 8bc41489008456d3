"""TLS connections: their number, their handshake and their end."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gleanery.http import Limits
from gleanery.http.tls import TlsContext
from gleanery.server.certificates import Certificates
from tests.http.server import PIECE, Server, head, serving
from tests.support.certificates import connect_tls, write_certificate
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

LIMIT = 5
SHORT_SECONDS = 15  # a stop that waits for an idle TLS client takes 30 seconds


@pytest.fixture
def tls(tmp_path: Path) -> TlsContext:
    return Certificates(*write_certificate(tmp_path)).context


@pytest.fixture
def limited(tls: TlsContext) -> Iterator[Server]:
    limits = Limits(max_connections=LIMIT, max_rejected_connections=LIMIT, check_seconds=0.05)
    with serving(limits, tls) as server:
        yield server
        assert not server.errors


def get(connection: ssl.SSLSocket, path: str) -> bytes:
    connection.sendall(head("GET", path))
    return connection.recv(65536)


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_SECONDS)


def get_when_possible(server: Server) -> bool:
    """Asks once on a new connection, which may be rejected."""
    try:
        with connect_tls(server.port) as connection:
            return b" 200 " in get(connection, "/inline")
    except OSError:
        return False


def has_space(server: Server) -> bool:
    return server.registry.open_connections < LIMIT


def test_sockets_without_a_handshake_count_as_connections(limited: Server) -> None:
    with ExitStack() as stack:
        for _ in range(10 * LIMIT):
            stack.enter_context(connect(limited))
        wait_until(lambda: limited.registry.open_connections)
        assert limited.registry.open_connections <= LIMIT
        wait_until(lambda: get_when_possible(limited))  # it replaces one that sends nothing


def test_idle_connections_after_a_handshake_are_replaced(limited: Server) -> None:
    with ExitStack() as stack:
        for _ in range(6 * LIMIT):
            wait_until(
                lambda: limited.registry.open_connections < LIMIT or get_when_possible(limited)
            )
            try:
                idle = stack.enter_context(connect_tls(limited.port))
            except OSError:  # none was idle yet
                continue
            assert b" 200 " in get(idle, "/inline")
            assert limited.registry.open_connections <= 3 * LIMIT
        wait_until(lambda: limited.registry.open_connections <= LIMIT)


def test_a_handshake_that_does_not_end_is_closed(tls: TlsContext) -> None:
    with serving(Limits(stall_seconds=0.2), tls) as server, connect(server) as silent:
        assert silent.recv(1) == b""
        wait_until(lambda: not server.registry.connections)


def test_an_idle_client_does_not_delay_a_stop(tls: TlsContext) -> None:
    with serving(tls_context=tls) as server, connect_tls(server.port) as idle:
        assert b" 200 " in get(idle, "/inline")
        server.begin_stop()
        server.join(SHORT_SECONDS)


def test_a_handshake_does_not_delay_a_stop(tls: TlsContext) -> None:
    with serving(tls_context=tls) as server, connect(server):
        wait_until(lambda: server.registry.open_connections)
        server.begin_stop()
        server.join(SHORT_SECONDS)


@pytest.mark.thorough
def test_the_last_response_is_sent_whole(tls: TlsContext) -> None:
    """A TLS transport that is closed drops its data after ``linger_seconds``."""
    with serving(Limits(linger_seconds=2), tls) as server, connect_tls(server.port) as slow:
        slow.sendall(head("GET", "/inline-large", "Connection: close"))
        received = slow.recv(len(PIECE))
        time.sleep(4)
        while piece := slow.recv(len(PIECE)):
            received += piece
        assert received.endswith(PIECE * 200)


def test_a_client_without_tls_gets_no_response(limited: Server) -> None:
    with connect(limited) as plain:
        plain.sendall(head("GET", "/inline"))
        assert b"HTTP" not in plain.recv(65536)
