"""TLS connections: their number, their handshake and their end."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from gleanery.service.http import Limits
from gleanery.service.http.server import TlsContext
from gleanery.service.processes.certificates import Certificates
from tests.http.server import PIECE, Server, head, serving
from tests.support.certificates import connect_tls, unverified_context, write_certificate
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

LIMIT = 5
SHORT_SECONDS = 15  # a stop that waits for an idle TLS client takes 30 seconds


@pytest.fixture
def tls(tmp_path: Path) -> TlsContext:
    return Certificates(*write_certificate(tmp_path)).context


@pytest.fixture
def limited(tls: TlsContext) -> Iterator[Server]:
    limits = Limits(max_connections=LIMIT, reserved_connections=LIMIT, check_seconds=0.05)
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
        counts: list[int] = []  # between two callbacks: one adds a connection and then rejects it
        limited.call(lambda: counts.append(limited.registry.open_connections))
        wait_until(lambda: counts)
        assert counts[0] <= 2 * LIMIT  # with the reserve
        wait_until(lambda: get_when_possible(limited))  # it replaces one that sends nothing


def test_a_health_check_is_answered_above_the_limit(limited: Server) -> None:
    with ExitStack() as stack:
        for _ in range(LIMIT):
            busy = stack.enter_context(connect_tls(limited.port))
            busy.sendall(head("GET", "/hold"))
        wait_until(lambda: len(limited.application.held) == LIMIT)
        for _ in range(3 * LIMIT):  # more than the reserve has
            stack.enter_context(connect(limited))
        for path, status in (("/health", b" 200 "), ("/inline", b" 503 ")):
            with connect_tls(limited.port) as client:
                assert status in get(client, path)
        assert not limited.saw("admit /inline")


@pytest.mark.thorough
def test_idle_connections_after_a_handshake_are_replaced(limited: Server) -> None:
    with ExitStack() as stack:
        for _ in range(6 * LIMIT):
            wait_until(
                lambda: limited.registry.open_connections < LIMIT or get_when_possible(limited)
            )
            idle = stack.enter_context(connect_tls(limited.port))
            get(idle, "/inline")  # 503 if none was idle yet
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


def test_a_client_that_keeps_its_connection_does_not_delay_a_stop(tls: TlsContext) -> None:
    """The client reads the last response, and never answers the end of TLS."""
    with serving(tls_context=tls) as server, connect_tls(server.port) as client:
        client.sendall(head("GET", "/hold"))
        wait_until(lambda: server.application.held)
        server.begin_stop()
        assert b" 200 " in client.recv(65536)
        server.join(SHORT_SECONDS)


@pytest.mark.thorough
def test_handshakes_that_end_during_a_stop_do_not_delay_it(tls: TlsContext) -> None:
    with serving(tls_context=tls) as server, ExitStack() as stack:

        def connect_again_and_again() -> None:
            with suppress(OSError):  # the server has stopped
                while True:
                    stack.enter_context(connect_tls(server.port))

        threads = [threading.Thread(target=connect_again_and_again) for _ in range(8)]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.registry.open_connections > 100)
        server.begin_stop()
        for thread in threads:
            thread.join()
        server.join(SHORT_SECONDS)


@pytest.mark.thorough
def test_a_stop_sends_the_last_response_whole(tls: TlsContext) -> None:
    """One of the sizes is such that only the transport below TLS has unsent data."""
    sizes = range(2_400_000, 3_400_000, 25_000)
    with serving(tls_context=tls) as server, ExitStack() as stack:
        clients = [stack.enter_context(slow_client(server)) for _ in sizes]
        for client, size in zip(clients, sizes, strict=True):
            client.sendall(head("GET", f"/inline-bytes?{size}"))
            assert client.recv(1)
        server.begin_stop()
        time.sleep(3)  # longer than an idle client has for the end of TLS
        for client, size in zip(clients, sizes, strict=True):
            received = b"".join(iter(partial(client.recv, len(PIECE)), b""))
            assert len(received.partition(b"\r\n\r\n")[2]) == size


def slow_client(server: Server) -> ssl.SSLSocket:
    """A client whose system takes only a few bytes that it does not read."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(TIMEOUT_SECONDS)
    plain.connect(("127.0.0.1", server.port))
    return unverified_context().wrap_socket(plain)


def test_a_client_that_leaves_during_its_request_is_not_logged(
    limited: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with connect_tls(limited.port) as client:
        client.sendall(head("GET", "/wait"))
        wait_until(lambda: limited.saw("admit /wait"))
        client.unwrap()
    wait_until(lambda: limited.saw("noticed"))
    assert not caplog.records


def test_the_address_of_a_client_that_has_left_is_known(limited: Server) -> None:
    """A truncated transfer is logged only then."""
    with connect_tls(limited.port) as client:
        client.sendall(head("GET", "/hold"))
        wait_until(lambda: limited.application.held)
    wait_until(lambda: not limited.registry.open_connections)
    assert limited.application.held[0].client_address == b"127.0.0.1"


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
