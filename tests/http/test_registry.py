"""Limits over all connections, and the orderly stop."""

from __future__ import annotations

from contextlib import ExitStack

from gleanery.http import Limits
from tests.http.server import Client, Server, head, serving
from tests.support.waiting import wait_until


def idle_connections(server: Server) -> int:
    return sum(connection.is_idle for connection in tuple(server.registry.connections))


def test_a_new_connection_replaces_the_oldest_idle_one() -> None:
    limits = Limits(max_connections=2, check_seconds=0.02)
    with serving(limits) as server, Client(server) as older, Client(server) as newer:
        for client in (older, newer):
            assert client.exchange(head("GET", "/inline")).status == 200
        wait_until(lambda: idle_connections(server) == 2)
        with Client(server) as third:
            assert third.exchange(head("GET", "/inline")).status == 200
            assert older.receive_all() == b""
            assert newer.exchange(head("GET", "/inline")).status == 200


def test_a_connection_too_many_is_rejected() -> None:
    with serving(Limits(max_connections=2)) as server, ExitStack() as stack:
        busy = [stack.enter_context(Client(server)) for _ in range(2)]
        for client in busy:
            client.send(head("GET", "/hold"))
        wait_until(lambda: len(server.application.held) == 2)
        with Client(server) as rejected:
            response = rejected.receive()
            assert (response.status, response.body) == (503, b"TooManyConnections")
            assert rejected.receive_all() == b""
        server.call(server.application.release.set)
        for client in busy:
            assert client.receive().status == 200


def test_further_connections_are_closed_without_a_response() -> None:
    limits = Limits(max_connections=1, max_rejected_connections=3)
    with serving(limits) as server, Client(server) as busy, ExitStack() as stack:
        busy.send(head("GET", "/hold"))
        wait_until(lambda: server.application.held)
        rejected = [stack.enter_context(Client(server)) for _ in range(6)]
        received = [client.receive_all() for client in rejected]
        assert [bool(answer) for answer in received] == [True] * 3 + [False] * 3


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
