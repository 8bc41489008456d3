"""The tables of requests, sent to one server: whole, and byte by byte."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.cases import CASES, CHUNKED, TABLES, TRAILER_BODIES, Case, request
from tests.http.server import Client, Response, Server, head, serving
from tests.support.batches import batches

PROBE = head("GET", "/probe", "Connection: close")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running
        assert not running.errors


@pytest.fixture(autouse=True)
def no_events(server: Server) -> None:
    server.application.events.clear()


def admitted(server: Server) -> list[str]:
    """Paths of the requests that the application has seen."""
    events = server.application.events
    return [event.removeprefix("admit ") for event in events if event.startswith("admit ")]


def received(client: Client) -> list[Response]:
    """All final responses until the server closes the connection."""
    responses = []
    while not client.is_at_end():
        response = client.receive()
        if response.status != 100:
            responses.append(response)
    return responses


def summary(responses: list[Response]) -> list[str | int]:
    """The body of each request that was accepted, and the status of each rejection."""
    return [one.description["body"] if one.status == 200 else one.status for one in responses]


def expected(case: Case) -> tuple[str | int, ...]:
    """The answers of the server to the case and a last request after it."""
    is_open = not case.closes and not isinstance(case.answers[-1], int)
    return (*case.answers, "") if is_open else case.answers


@pytest.mark.parametrize(
    "is_whole",
    [
        pytest.param(True, id="whole"),
        pytest.param(False, id="by byte", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("names", batches(CASES))
def test_the_cases_of_the_tables(server: Server, names: list[str], is_whole: bool) -> None:
    for name in names:
        server.application.events.clear()
        assert_answers(server, CASES[name], is_whole)


def assert_answers(server: Server, case: Case, is_whole: bool) -> None:
    data = case.data if case.closes else case.data + PROBE
    with Client(server) as client:
        client.send_in_pieces(data, len(data) if is_whole else 1)
        responses = received(client)
    assert summary(responses) == list(expected(case))
    assert "connection" not in {name for one in responses[:-1] for name in one.headers}
    assert responses[-1].headers["connection"] == "close"
    assert_boundaries(server, case)


def assert_boundaries(server: Server, case: Case) -> None:
    """The server has seen each request of the case once, and nothing else."""
    paths = admitted(server)
    count = sum(isinstance(answer, str) for answer in expected(case))
    assert "/hidden" not in paths
    # A request whose chunks are malformed is seen, and answered with an error.
    assert len(paths) - count in ({0, 1} if isinstance(case.answers[-1], int) else {0})
    assert paths.count("/probe") == (len(expected(case)) > len(case.answers))


@pytest.mark.parametrize("path", ["/unread", "/inline", "/later"])
@pytest.mark.parametrize("trailer", TRAILER_BODIES)
def test_a_trailer_after_an_early_response(server: Server, trailer: str, path: str) -> None:
    """The response closes the connection, so nothing after it is a request."""
    body = TRAILER_BODIES[trailer]
    with Client(server) as client:
        client.send(request(CHUNKED, start=f"POST {path} HTTP/1.1") + body[:5])
        response = client.receive()
        client.send(body[5:] + PROBE)
        assert client.receive_all() == b""
    assert (response.status, response.headers["connection"]) == (200, "close")
    assert admitted(server) == [path]


@pytest.mark.parametrize("end", [b"zz\r\n", b"5\r\nhello", b"0\r\nX\r\n\r\n", b"0\r\n\r\n\0", b""])
@pytest.mark.parametrize("path", ["/unread", "/inline", "/later"])
def test_an_early_response_is_the_only_one(server: Server, path: str, end: bytes) -> None:
    with Client(server) as client:
        client.send(request(CHUNKED, start=f"POST {path} HTTP/1.1") + b"2\r\nab")
        assert client.receive().headers["connection"] == "close"
        client.send(b"\r\n" + end + PROBE)
        assert client.receive_all() == b""
    assert admitted(server) == [path]


def test_the_tables_have_enough_cases() -> None:
    assert len(CASES) == sum(map(len, TABLES.values()))  # no name occurs twice
    assert len(CASES) > 1000
