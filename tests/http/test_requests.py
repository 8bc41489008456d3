"""Requests and responses on one connection."""

from __future__ import annotations

import threading

import pytest

from tests.http.server import PIECE, Client, Server, head, serving
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

CHUNKED = "Transfer-Encoding: chunked"
CLOSE = "Connection: close"


def test_a_request_reaches_the_application_as_sent(client: Client) -> None:
    response = client.exchange(head("GET", "/echo/%2F?a=1&b=%20", "X-A: 1", "x-a: 2", "X-B:  y"))
    assert response.status == 200
    described = response.description
    assert described["method"] == "GET"
    assert (described["path"], described["query"]) == ("/echo/%2F", "a=1&b=%20")
    assert described["headers"] == {"host": "x", "x-a": "1, 2", "x-b": "y"}
    assert response.headers.keys() == {"date", "content-length"}


def test_a_connection_serves_one_request_after_the_other(client: Client) -> None:
    for number in range(5):
        assert client.exchange(head("GET", f"/echo?{number}")).description["query"] == str(number)


def test_connection_close_is_honoured(client: Client) -> None:
    response = client.exchange(head("GET", "/echo", CLOSE))
    assert response.headers["connection"] == "close"
    assert client.receive_all() == b""


def test_http_1_0_is_answered_and_closed(client: Client) -> None:
    client.send(b"GET /echo HTTP/1.0\r\n\r\n")
    assert client.receive().headers["connection"] == "close"
    assert client.receive_all() == b""


def test_a_body_of_unknown_length_is_sent_in_chunks(client: Client) -> None:
    client.send(head("GET", "/chunks?one,,three"))
    response = client.receive(has_body=False)
    assert response.headers["transfer-encoding"] == "chunked"
    assert "content-length" not in response.headers
    client.send(head("GET", "/inline", CLOSE))  # the connection stays usable
    chunks, _, next_response = client.receive_all().partition(b"HTTP/1.1 200")
    assert chunks == b"3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"
    assert next_response.endswith(b"inline")


def test_a_truncated_body_in_chunks_has_no_last_chunk(server: Server, client: Client) -> None:
    client.send(head("GET", "/chunks?one,fail,three"))
    assert not client.receive_all().endswith(b"0\r\n\r\n")
    assert server.errors.pop()


def test_a_response_in_chunks_to_head_has_no_body(client: Client) -> None:
    client.send(head("HEAD", "/chunks?one") + head("GET", "/inline"))
    assert "content-length" not in client.receive(has_body=False).headers
    assert client.receive().body == b"inline"


def test_only_http_1_1_accepts_chunks(client: Client) -> None:
    assert client.exchange(head("GET", "/echo")).description["accepts_chunks"]
    client.send(b"GET /echo HTTP/1.0\r\n\r\n")
    assert not client.receive().description["accepts_chunks"]


def test_an_absolute_target_has_path_and_query(client: Client) -> None:
    described = client.exchange(head("GET", "http://host:1/echo?a=1")).description
    assert (described["path"], described["query"]) == ("/echo", "a=1")
    assert client.exchange(head("GET", "http://host")).description["path"] == "/"
    assert client.exchange(head("GET", "HTTP://host?a")).description["query"] == "a"


def test_a_response_to_head_has_no_body(client: Client) -> None:
    client.send(head("HEAD", "/echo") + head("GET", "/inline"))
    assert int(client.receive(has_body=False).headers["content-length"]) > 0
    assert client.receive().body == b"inline"


def test_the_application_may_answer_without_a_task(client: Client) -> None:
    for path in ("/inline", "/later", "/inline"):
        assert client.exchange(head("GET", path)).body == b"inline"


# --- pipelining -----------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(client: Client) -> None:
    paths = ["/echo?1", "/inline", "/later", "/echo?2", "/inline", "/inline", "/echo?3"]
    client.send(b"".join(head("GET", path) for path in paths))
    bodies = [client.receive() for _ in paths]
    found = [
        "/inline" if b.body == b"inline" else f"/echo?{b.description['query']}" for b in bodies
    ]
    assert found == [path.replace("/later", "/inline") for path in paths]


@pytest.mark.parametrize("path", ["/inline", "/later", "/echo"])
def test_any_number_of_requests_may_be_pipelined(client: Client, path: str) -> None:
    count = 3000  # more than is read at once
    thread = threading.Thread(target=client.send, args=(head("GET", path) * count,))
    thread.start()
    assert [client.receive().status for _ in range(count)] == [200] * count
    thread.join()


def test_requests_wait_in_the_socket_while_another_is_handled(server: Server) -> None:
    """The server buffers a limited number of bytes."""
    with Client(server) as client:
        client.send(head("GET", "/hold"))
        wait_until(lambda: server.application.held)
        client.socket.settimeout(0.5)
        client.send_until_refused(head("GET", "/inline") * 1000)
        assert not server.saw("admit /inline")
        server.call(server.application.release.set)
        client.socket.settimeout(TIMEOUT_SECONDS)
        assert client.receive().description["path"] == "/hold"
        assert client.receive().body == b"inline"


def test_the_next_request_is_admitted_after_the_response(server: Server, client: Client) -> None:
    client.send(head("GET", "/hold") + head("GET", "/inline"))
    wait_until(lambda: server.application.held)
    assert not server.saw("admit /inline")
    server.call(server.application.release.set)
    assert client.receive().description["path"] == "/hold"
    assert client.receive().body == b"inline"


def is_write_paused(server: Server) -> bool:
    return any(connection.is_write_paused for connection in tuple(server.registry.connections))


def test_a_client_that_reads_slowly_gets_no_further_response(server: Server) -> None:
    with Client(server, receive_buffer=65536) as client:
        client.send(head("GET", "/stream?200") + head("GET", "/inline"))
        wait_until(lambda: is_write_paused(server))
        assert not server.saw("admit /inline")
        assert len(client.receive().body) == 200 * len(PIECE)
        assert client.receive().body == b"inline"


def test_a_request_waits_while_the_client_reads_slowly(server: Server) -> None:
    """Also if the response that the client does not read was sent without a task."""
    with Client(server, receive_buffer=65536) as client:
        client.send(head("GET", "/inline-large"))
        wait_until(lambda: is_write_paused(server))
        client.send(head("GET", "/later"))
        client.send(head("GET", "/echo"))
        assert len(client.receive().body) == 200 * len(PIECE)
        assert client.receive().body == b"inline"
        assert client.receive().description["path"] == "/echo"


def test_bytes_after_the_last_request_are_ignored(client: Client) -> None:
    client.send(head("GET", "/echo", CLOSE) + head("GET", "/echo"))
    assert client.statuses() == [200]


# --- bodies ---------------------------------------------------------------------------------------


def test_a_body_with_a_length(client: Client) -> None:
    body = b"0123456789" * 30_000
    length = f"Content-Length: {len(body)}"
    described = client.exchange(head("POST", "/echo", length) + body).description
    assert described["body"].encode() == body
    assert client.exchange(head("GET", "/inline")).body == b"inline"


def test_a_chunked_body(client: Client) -> None:
    body = b"5\r\nhello\r\n7;extension=1\r\n, world\r\n0\r\nTrailer: ignored\r\n\r\n"
    described = client.exchange(head("POST", "/echo", CHUNKED) + body).description
    assert described["body"] == "hello, world"
    assert "trailer" not in described["headers"]
    assert client.exchange(head("GET", "/inline")).body == b"inline"


def test_a_body_may_come_byte_by_byte(client: Client) -> None:
    request = head("POST", "/echo", CHUNKED) + b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"
    for byte in request:
        client.send(bytes([byte]))
    assert client.receive().description["body"] == "abcde"


def test_a_body_that_nobody_reads_ends_the_connection(server: Server, client: Client) -> None:
    """The rest of the body could be malformed, and no second response may follow."""
    body = head("GET", "/echo?hidden") * 10_000
    client.send(head("POST", "/unread", f"Content-Length: {len(body)}") + body)
    client.send(head("GET", "/echo?next", CLOSE))
    response = client.receive()
    assert (response.body, response.headers["connection"]) == (b"unread", "close")
    assert client.receive_all() == b""
    assert server.application.events == ["admit /unread"]


def test_a_body_that_is_complete_keeps_the_connection(client: Client) -> None:
    """Also if nobody reads it."""
    for body in (("Content-Length: 5", b"hello"), (CHUNKED, b"5\r\nhello\r\n0\r\n\r\n")):
        response = client.exchange(head("POST", "/unread", body[0]) + body[1])
        assert (response.body, response.headers.get("connection")) == (b"unread", None)


def test_a_short_body_is_kept_when_it_is_declined(client: Client) -> None:
    client.send(head("POST", "/inline", "Content-Length: 5") + b"hello" + head("GET", "/echo"))
    assert client.receive().body == b"inline"
    assert client.receive().description["path"] == "/echo"


def test_a_long_body_that_is_declined_ends_the_connection(server: Server) -> None:
    for header in ("Content-Length: 30000000", CHUNKED):
        with Client(server) as client:
            response = client.exchange(head("POST", "/inline", header))
            assert response.headers["connection"] == "close"
            client.close()


def test_a_body_is_invited_if_the_client_expects_it(client: Client) -> None:
    expects = ("Content-Length: 5", "Expect: 100-continue")
    client.send(head("POST", "/echo", *expects))
    assert client.receive().status == 100
    assert client.exchange(b"hello").description["body"] == "hello"


def test_a_body_that_is_not_wanted_is_not_invited(client: Client) -> None:
    expects = ("Content-Length: 5", "Expect: 100-continue")
    response = client.exchange(head("POST", "/unread", *expects))
    assert (response.status, response.headers["connection"]) == (200, "close")
    assert client.receive_all() == b""


# --- upgrades -------------------------------------------------------------------------------------


H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
WEBSOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
BODIES = {
    "no body": ((), b"", ""),
    "length": (("Content-Length: 5",), b"hello", "hello"),
    "chunks": ((CHUNKED,), b"5\r\nhello\r\n0\r\n\r\n", "hello"),
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("offer", [H2C, WEBSOCKET], ids=["h2c", "websocket"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_offer_of_another_protocol_is_ignored(
    client: Client, method: str, offer: tuple[str, ...], kind: str
) -> None:
    """Such a request keeps its body, and the connection serves the next request."""
    headers, body, text = BODIES[kind]
    request = head(method, "/echo", *offer, *headers) + body
    client.send(request + request + head("GET", "/inline"))
    assert [client.receive().description["body"] for _ in range(2)] == [text, text]
    assert client.receive().body == b"inline"
    client.send(request)
    assert client.receive().description["body"] == text


def test_http_2_is_not_spoken(client: Client) -> None:
    client.send(head("GET", "/inline", *H2C) + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert client.statuses() == [200, 505]


# --- clients that close ---------------------------------------------------------------------------


def test_a_half_closed_client_gets_its_responses(client: Client) -> None:
    client.send(head("GET", "/echo") + head("GET", "/inline") + head("GET", "/later"))
    client.half_close()
    assert client.statuses() == [200, 200, 200]


def test_a_half_closed_client_without_a_request_is_closed(server: Server, client: Client) -> None:
    client.exchange(head("GET", "/inline"))
    client.half_close()
    assert client.receive_all() == b""
    wait_until(lambda: not server.registry.connections)


def test_a_client_that_breaks_off_its_body_gets_no_response(server: Server, client: Client) -> None:
    client.send(head("POST", "/echo", "Content-Length: 5") + b"he")
    client.half_close()
    assert client.receive_all() == b""
    assert server.saw("disconnected /echo")


def test_the_application_can_wait_for_the_client_to_leave(server: Server) -> None:
    with Client(server) as client:
        client.send(head("GET", "/wait"))
        wait_until(lambda: server.saw("admit /wait"))
    wait_until(lambda: server.saw("noticed"))
    wait_until(lambda: not server.registry.connections)


def test_a_client_that_leaves_while_its_request_waits(server: Server) -> None:
    with Client(server) as client:
        client.send(head("GET", "/hold") + head("GET", "/echo"))
        wait_until(lambda: server.application.held)
    server.call(server.application.release.set)
    wait_until(lambda: not server.registry.connections)


def test_a_client_that_leaves_a_stream(server: Server) -> None:
    with Client(server) as client:
        client.send(head("GET", "/stream?100000"))
        client.socket.recv(1000)
    wait_until(lambda: server.saw("disconnected /stream"))


def test_a_client_that_has_left_is_noticed_when_writing(server: Server) -> None:
    """A handler that only writes would never give the event loop the time to report it."""
    with Client(server) as client:
        client.send(head("GET", "/hold-stream?100"))
        wait_until(lambda: server.application.held)

        def leave() -> None:
            client.reset()
            server.application.release.set()

        server.call(leave)
        wait_until(lambda: server.saw("disconnected /hold-stream") or server.saw("streamed"))
    assert not server.saw("streamed")


def test_the_address_of_a_client_that_has_left_is_known(server: Server) -> None:
    with Client(server) as client:
        client.send(head("GET", "/hold"))
        wait_until(lambda: server.application.held)
        client.reset()
    wait_until(lambda: not server.registry.open_connections)
    assert server.application.held[0].client_address == b"127.0.0.1"


def test_the_address_of_a_client_that_leaves_before_it_is_accepted_is_known(server: Server) -> None:
    has_left = threading.Event()
    server.call(lambda: has_left.wait(TIMEOUT_SECONDS))
    with Client(server) as client:
        client.send(head("GET", "/hold"))
        client.reset()
    has_left.set()
    wait_until(lambda: server.application.held)
    wait_until(lambda: not server.registry.open_connections)
    assert server.application.held[0].client_address == b"127.0.0.1"


@pytest.mark.parametrize(
    "data",
    [
        head("GET", "/echo") * 20,
        head("GET", "/inline") * 20,
        head("GET", "/later") * 20,
        head("GET", "/stream?100") * 2,
        head("GET", "/inline-large") * 2,
        head("GET", "/chunks?a,b,c", "Connection: close"),
        head("POST", "/unread", "Content-Length: 5"),
        b"rubbish\r\n\r\n",
    ],
)
def test_a_reset_at_any_time_is_no_error(server: Server, data: bytes) -> None:
    """The fixture checks that nothing was reported to the event loop."""
    for sent, received in ((9, 0), (40, 0), (None, 0), (None, 0), (None, 1), (None, 100_000)):
        with Client(server) as client:
            client.send(data[:sent])
            if received:
                client.socket.recv(received)
            client.reset()
    wait_until(lambda: not server.registry.connections)


# --- errors of the application --------------------------------------------------------------------


def test_an_error_of_the_application_closes_the_connection() -> None:
    with serving() as server:
        for path in ("/fail", "/admit-fails", "/no-response"):
            with Client(server) as client:
                client.send(head("GET", path) + head("GET", "/echo"))
                assert client.receive_all() == b""
        wait_until(lambda: not server.registry.connections)
        assert not server.saw("admit /echo")
        assert "admit fails" in str([context.get("exception") for context in server.errors])


def test_a_truncated_response_is_noticed() -> None:
    with serving() as server, Client(server) as client:
        client.send(head("GET", "/truncate") + head("GET", "/echo"))
        received = client.receive_all()
        assert received == b"" or received.endswith(b"too short")
