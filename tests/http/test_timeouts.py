"""Clients that keep the server waiting."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from gleanery.service.http import Limits
from gleanery.service.http.registry import Awaited, Timeouts
from tests.http.server import Client, Server, head, serving
from tests.support.waiting import wait_until

IMPATIENT = Limits(idle_seconds=0.2, stall_seconds=0.2, linger_seconds=0.2, check_seconds=0.02)
HEAD = head("GET", "/echo")


@pytest.fixture
def impatient() -> Iterator[Server]:
    with serving(IMPATIENT) as server:
        yield server


def trickle(client: Client, data: bytes) -> int:
    """Sends a byte at a time, until there is a response; returns its status."""
    client.socket.settimeout(0.05)
    for byte in data:
        client.send(bytes([byte]))
        try:
            received = client.socket.recv(65536)
        except TimeoutError:
            continue
        return int(received.split()[1])
    raise AssertionError("the server took all of it")


def test_a_slow_head_is_rejected(impatient: Server) -> None:
    with Client(impatient) as client:
        assert trickle(client, head("GET", "/echo", f"X: {'x' * 10_000}")) == 408
        assert impatient.saw("reject RequestTimeout")


def trickle_until_refused(client: Client, data: bytes) -> None:
    """Sends the data again and again, a byte at a time, until the server answers or closes."""
    client.socket.settimeout(0.02)
    for byte in itertools.islice(itertools.cycle(data), 500):
        try:
            client.send(bytes([byte]))
            client.socket.recv(65536)
        except TimeoutError:
            continue
        except ConnectionError:
            pass
        return
    raise AssertionError("the server took all of it")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\r\n", id="empty lines"),
        pytest.param(HEAD[:-2] + b"X: y\r\n" * 100, id="a head"),
        pytest.param(b"\0", id="rubbish"),
    ],
)
@pytest.mark.parametrize("has_request", [False, True])
def test_only_a_request_keeps_a_connection_open(
    impatient: Server, data: bytes, has_request: bool
) -> None:
    """The time counts from the beginning of the connection, or from the last response."""
    with Client(impatient) as client:
        if has_request:
            assert client.exchange(HEAD).status == 200
        trickle_until_refused(client, data)
        wait_until(lambda: not impatient.registry.connections)


@pytest.mark.parametrize("data", [b"GET / HTT", b"\r", HEAD + b"\r", HEAD + b"GET / HTT"])
def test_a_client_that_stops_inside_a_head_is_given_up(impatient: Server, data: bytes) -> None:
    with Client(impatient) as client:
        client.send(data)
        client.receive_all()
        wait_until(lambda: not impatient.registry.connections)


def test_a_half_closed_connection_without_a_whole_request_is_closed(impatient: Server) -> None:
    for data in (b"", b"\r", b"GET / HTT", HEAD + b"GET"):
        with Client(impatient) as client:
            client.send(data)
            client.half_close()
            client.receive_all()
    wait_until(lambda: not impatient.registry.connections)


def test_a_slow_body_is_rejected(impatient: Server) -> None:
    with Client(impatient) as client:
        client.send(head("POST", "/echo", "Content-Length: 10000"))
        assert trickle(client, b"x" * 10_000) == 408


def test_a_reader_that_stalls_is_given_up(impatient: Server) -> None:
    with Client(impatient) as client:
        client.send(head("GET", "/stream?100000"))
        wait_until(lambda: impatient.saw("disconnected /stream"))
        wait_until(lambda: not impatient.registry.connections)


@pytest.mark.thorough
def test_a_slow_reader_is_not_given_up() -> None:
    """The system's buffer takes megabytes, and the server may write again only much later."""
    with serving(Limits(stall_seconds=1, check_seconds=0.1)) as server, Client(server) as client:
        client.send(head("GET", "/stream?1000"))
        end = time.monotonic() + 3
        while time.monotonic() < end:
            assert client.socket.recv(25_000)
            time.sleep(0.05)
        assert not server.saw("disconnected /stream")


def test_an_idle_connection_is_closed(impatient: Server) -> None:
    with Client(impatient) as client:
        assert client.exchange(head("GET", "/echo")).status == 200
        assert client.receive_all() == b""


def test_a_connection_without_a_request_is_closed(impatient: Server) -> None:
    with Client(impatient) as client:
        assert client.receive_all() == b""


def test_a_client_that_does_not_close_after_a_rejection_is_given_up(impatient: Server) -> None:
    with Client(impatient) as client:
        assert client.exchange(b"rubbish\r\n\r\n").status == 400
        wait_until(lambda: not impatient.registry.connections)


def test_a_request_that_takes_its_time_is_not_given_up(impatient: Server) -> None:
    with Client(impatient) as client, Client(impatient) as idle:
        client.send(head("GET", "/hold"))
        assert idle.receive_all() == b""  # its time is over
        impatient.call(impatient.application.release.set)
        assert client.receive().status == 200


# --- the measurement alone ------------------------------------------------------------------------

LIMITS = Limits(idle_seconds=5, stall_seconds=3, linger_seconds=2, min_bytes_per_second=100)


def checks_until_overdue(awaited: Awaited, received: int = 0, written: int = 0) -> int:
    """Counts the checks before one fails, with this many bytes transferred between them."""
    timeouts = Timeouts(LIMITS)
    for count in range(100):
        if timeouts.is_overdue(awaited, 1, unread=1000):
            return count
        timeouts.received += received
        timeouts.written += written
    return 100


@pytest.mark.parametrize(
    ("awaited", "checks"),
    [
        (Awaited.NOTHING, 100),
        (Awaited.REQUEST, 5),
        (Awaited.HEAD, 3),
        (Awaited.BODY, 3),
        (Awaited.READER, 3),
        (Awaited.CLOSE, 2),
    ],
)
def test_each_wait_has_its_time(awaited: Awaited, checks: int) -> None:
    assert checks_until_overdue(awaited) == checks


def test_a_steady_client_is_not_given_up() -> None:
    assert checks_until_overdue(Awaited.BODY, received=100) == 100
    assert checks_until_overdue(Awaited.BODY, received=99) == 3
    assert checks_until_overdue(Awaited.READER, written=100) == 100  # as many are sent as written
    assert checks_until_overdue(Awaited.READER, written=99) == 3


def test_a_head_has_its_time_however_fast_it_grows() -> None:
    assert checks_until_overdue(Awaited.HEAD, received=1_000_000) == 3


def test_a_new_request_begins_a_new_wait() -> None:
    timeouts = Timeouts(LIMITS)
    for number in range(100):
        assert not timeouts.is_overdue(Awaited.HEAD, number // 3, unread=0)


def test_a_connection_has_waited_once_a_check_has_found_nothing() -> None:
    timeouts = Timeouts(LIMITS)
    timeouts.is_overdue(Awaited.REQUEST, 1, unread=0)
    assert not timeouts.waited(Awaited.REQUEST, 1)
    timeouts.is_overdue(Awaited.HEAD, 1, unread=0)
    assert timeouts.waited(Awaited.REQUEST, 1) == timeouts.waited(Awaited.HEAD, 1) == 1
    assert not timeouts.waited(Awaited.REQUEST, 2)
    timeouts.is_overdue(Awaited.NOTHING, 1, unread=0)
    timeouts.is_overdue(Awaited.NOTHING, 1, unread=0)
    assert not timeouts.waited(Awaited.REQUEST, 1)


@pytest.mark.parametrize("pattern", ["RH", "RHH", "HHR", "RRRH", "HRR", "H"])
def test_bytes_without_a_head_do_not_prolong_the_wait_for_a_request(pattern: str) -> None:
    """R is a check between heads, and H is one in a head, or in half an empty line."""
    timeouts = Timeouts(LIMITS)
    awaited = itertools.cycle([Awaited.HEAD if one == "H" else Awaited.REQUEST for one in pattern])
    overdue = (timeouts.is_overdue(next(awaited), 1, unread=0) for _ in range(100))
    checks = next(count for count, is_overdue in enumerate(overdue) if is_overdue)
    assert checks <= LIMITS.idle_seconds + LIMITS.stall_seconds


def test_a_head_has_its_time_after_a_long_wait() -> None:
    timeouts = Timeouts(LIMITS)
    for _ in range(5):
        assert not timeouts.is_overdue(Awaited.REQUEST, 1, unread=0)
    for _ in range(3):
        assert not timeouts.is_overdue(Awaited.HEAD, 1, unread=0)
    assert timeouts.is_overdue(Awaited.HEAD, 1, unread=0)
