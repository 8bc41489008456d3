"""Limits over all connections, and the orderly stop."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import pytest

from gleanery.service.http import Limits
from tests.http.server import Client, Server, head, serving
from tests.support.waiting import wait_until

HEALTH = head("GET", "/health")


def evictable(server: Server) -> list[int]:
    """Ranks of the connections that a new one can replace, the first to be replaced first."""
    orders = [connection.eviction_order for connection in tuple(server.registry.connections)]
    return sorted(order[0] for order in orders if order is not None)


def keep_busy(server: Server, stack: ExitStack, count: int) -> list[Client]:
    """Opens connections with a request in progress."""
    busy = [stack.enter_context(Client(server)) for _ in range(count)]
    for client in busy:
        client.send(head("GET", "/hold"))
    wait_until(lambda: len(server.application.held) == count)
    return busy


def test_a_new_connection_replaces_the_oldest_idle_one() -> None:
    limits = Limits(max_connections=2, check_seconds=0.02)
    with serving(limits) as server, Client(server) as older, Client(server) as newer:
        for client in (older, newer):
            assert client.exchange(head("GET", "/inline")).status == 200
        wait_until(lambda: evictable(server) == [1, 1])
        with Client(server) as third:
            assert third.exchange(head("GET", "/inline")).status == 200
            assert older.receive_all() == b""
            assert newer.exchange(head("GET", "/inline")).status == 200


def unused(server: Server) -> int:
    """Number of connections whose clients have sent no whole head."""
    return sum(connection.is_unused for connection in tuple(server.registry.connections))


@pytest.mark.parametrize("data", [b"", b"\r", b"\r\n\r\n", b"GET / HTT"])
def test_a_connection_without_a_request_is_replaced_before_an_idle_one(data: bytes) -> None:
    limits = Limits(max_connections=3, unused_seconds=0, check_seconds=0.02)
    with serving(limits) as server, Client(server) as idle, ExitStack() as stack:
        assert idle.exchange(head("GET", "/inline")).status == 200
        silent = [stack.enter_context(Client(server)) for _ in range(2)]
        for client in silent:
            client.send(data)
        wait_until(lambda: unused(server) == 2 and evictable(server) == [1])
        for _ in range(2):
            other = stack.enter_context(Client(server))
            assert other.exchange(head("GET", "/inline")).status == 200
        for client in silent:
            client.receive_all()  # until the server has closed the connection
        assert idle.exchange(head("GET", "/inline")).status == 200
        assert server.registry.evicted_connections == 2


def test_a_new_connection_is_not_replaced_at_once() -> None:
    with serving(Limits(max_connections=1, unused_seconds=3600)) as server, Client(server) as first:
        wait_until(lambda: unused(server) == 1)
        with Client(server) as second:
            assert second.exchange(head("GET", "/inline")).status == 503
        assert first.exchange(head("GET", "/inline")).status == 200


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"rubbish\r\n\r\n", id="rubbish"),
        pytest.param(head("POST", "/unread", "Content-Length: 9"), id="a partial body"),
        pytest.param(head("GET", "/inline") + b"GET / HTT", id="a partial second head"),
    ],
)
def test_a_client_that_does_not_end_is_replaced_before_an_idle_one(data: bytes) -> None:
    limits = Limits(max_connections=3, check_seconds=0.02)
    with serving(limits) as server, Client(server) as idle, ExitStack() as stack:
        assert idle.exchange(head("GET", "/inline")).status == 200
        silent = [stack.enter_context(Client(server)) for _ in range(2)]
        for client in silent:
            client.send(data)
        wait_until(lambda: evictable(server) == [0, 0, 1])
        with Client(server) as other, Client(server) as another:
            for client in (other, another, idle):
                assert client.exchange(head("GET", "/inline")).status == 200
            for client in silent:
                client.receive_all()  # until the server has closed the connection
        assert server.registry.evicted_connections == 2


def test_a_connection_too_many_is_rejected() -> None:
    with serving(Limits(max_connections=2)) as server, ExitStack() as stack:
        busy = keep_busy(server, stack, 2)
        for method, body in (("GET", b""), ("POST", b"[]"), ("POST", b"[")):
            with Client(server) as rejected:
                length = f"Content-Length: {2 * bool(body)}"
                response = rejected.exchange(head(method, "/echo", length) + body)
                assert (response.status, response.body) == (503, b"TooManyConnections")
                assert response.headers["connection"] == "close"
        assert not server.saw("admit /echo")
        server.call(server.application.release.set)
        for client in busy:
            assert client.receive().status == 200


def test_a_health_check_is_answered_above_the_limit() -> None:
    with serving(Limits(max_connections=2)) as server, ExitStack() as stack:
        keep_busy(server, stack, 2)
        for _ in range(3):
            with Client(server) as client:
                response = client.exchange(HEALTH + head("GET", "/echo"))
                assert (response.status, response.headers["connection"]) == (200, "close")
                assert client.receive_all() == b""
        assert not server.saw("admit /echo")


def test_clients_that_send_nothing_do_not_hold_the_reserve() -> None:
    limits = Limits(max_connections=1, reserved_connections=3, reserve_seconds=3600)
    with serving(limits) as server, ExitStack() as stack:
        keep_busy(server, stack, 1)
        for data in (b"", b"\r", b"GET /health HTT", b"rubbish\r\n\r\n", head("GET", "/a") * 9):
            for _ in range(6):
                client = stack.enter_context(Client(server))
                with suppress(ConnectionError):  # replaced
                    client.send(data)
            with Client(server) as checking:
                assert checking.exchange(HEALTH).status == 200
            assert server.registry.open_connections <= 1 + 3 + 1


def test_a_client_that_sends_nothing_above_the_limit_is_rejected() -> None:
    limits = Limits(max_connections=1, reserve_seconds=0.1, check_seconds=0.02)
    with serving(limits) as server, ExitStack() as stack:
        keep_busy(server, stack, 1)
        for data in (b"", b"GET /hea"):
            with Client(server) as client:
                client.send(data)
                assert client.statuses() == [503]


def test_the_limit_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(max_connections=1, check_seconds=0.02)
    with serving(limits) as server, ExitStack() as stack:
        keep_busy(server, stack, 1)
        for _ in range(3):
            with Client(server) as client:
                assert client.exchange(head("GET", "/echo")).status == 503
            wait_until(lambda: caplog.records)
    [record] = caplog.records
    assert record.getMessage() == "the connection limit is reached"
    assert (vars(record)["max_connections"], vars(record)["evicted"]) == (1, 0)
    assert vars(record)["refused"] >= 1
    assert server.registry.refused_connections == 3


def test_a_stop_waits_for_the_request_in_flight() -> None:
    with serving() as server, Client(server) as busy, Client(server) as idle:
        busy.send(head("GET", "/hold") + head("GET", "/inline"))
        assert idle.exchange(head("GET", "/inline")).status == 200
        wait_until(lambda: server.application.held)
        server.begin_stop()
        assert idle.receive_all() == b""
        response = busy.receive()
        assert (response.status, response.headers["connection"]) == (200, "close")
        assert busy.receive_all() == b""
        assert server.application.events.count("shutdown") == 1
        assert server.application.events.count("admit /inline") == 1


def test_a_stop_lets_a_body_come_in() -> None:
    with serving() as server, Client(server) as client, Client(server) as idle:
        client.send(head("POST", "/echo", "Content-Length: 5") + b"he")
        wait_until(lambda: server.saw("admit /echo"))
        server.begin_stop()
        assert idle.receive_all() == b""
        client.send(b"llo")
        response = client.receive()
        assert (response.description["body"], response.headers["connection"]) == ("hello", "close")
