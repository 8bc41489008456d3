"""What a receiver may do with a connection: forms of responses, and when a connection is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.webhooks.deliveries import Answer
from gleanery.service.resources.webhooks.endpoints import Target
from gleanery.service.resources.webhooks.sender import Sender
from gleanery.service.resources.webhooks.targets import Targets

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
INVALID = "the response is not valid HTTP, or the connection was closed before its end"


def send(*connections: Sequence[bytes], requests: int = 1) -> tuple[list[Answer], int]:
    """Send requests one after another. Return the answers, and how many connections were used.

    Each connection has a response for each of its requests, and is closed after the last one.
    """
    used = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal used
        used += 1
        for response in connections[used - 1]:
            await reader.readuntil(b"{}")
            writer.write(response)
            await writer.drain()
        writer.close()

    async def run() -> list[Answer]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sender = Sender(Targets(["127.0.0.1"]), timestamps.now)
        target = Target(f"http://127.0.0.1:{port}/", "standard", [b"key"])
        try:
            return [await sender.send(target, "msg_1", b"{}") for _ in range(requests)]
        finally:
            sender.close()
            server.close()

    return asyncio.run(run()), used


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (OK, "ok"),
        (b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + OK, "ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + OK, "ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", "until the end"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\na: b\r\n\r\n",
            "ok",
        ),
        (OK + b"HTTP/1.1 500 Error\r\ncontent-length: 0\r\n\r\n", "ok"),
        (OK + b"more", "ok"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ""),
    ],
)
def test_forms_of_responses(response: bytes, body: str) -> None:
    status = 204 if b" 204 " in response else 200
    assert send([response]) == ([Answer(status, body)], 1)


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxx\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"{}",
    ],
)
def test_responses_that_are_not_complete_or_not_http(response: bytes) -> None:
    assert send([response]) == ([Answer(error=INVALID)], 1)


@pytest.mark.parametrize("path", ["/", "/a?b=c&d", "//a//b", "/a;b?c=/d?e", "/%2F%C3%A9"])
def test_the_path_is_sent_as_it_is(path: str) -> None:
    lines = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append((await reader.readuntil(b"{}")).split(b"\r\n")[0])
        writer.write(OK)

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sender = Sender(Targets(["127.0.0.1"]), timestamps.now)
        url = f"http://127.0.0.1:{port}{path}"
        await sender.send(Target(url, "standard", [b"key"]), "msg_1", b"{}")
        sender.close()
        server.close()

    asyncio.run(run())
    assert lines == [f"POST {path} HTTP/1.1".encode()]


def test_a_change_of_the_protocol_is_a_failure() -> None:
    [answer], _ = send([b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"])
    assert (answer.status_code, answer.error) == (
        101,
        "the response has the status 101, not one from 200 to 299",
    )


def test_a_connection_is_used_again() -> None:
    answers, used = send([OK, OK, OK], requests=3)
    assert [one.status_code for one in answers] == [200] * 3
    assert used == 1


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\n",
        OK + OK,
    ],
)
def test_a_connection_is_not_used_again(response: bytes) -> None:
    """The rest of such a response would be the beginning of the next one."""
    answers, used = send([response, b"HTTP/1.1 500 Error\r\n\r\n"], [OK], requests=2)
    assert [one.status_code for one in answers] == [200, 200]
    assert used == 2


def test_an_event_is_sent_again_only_if_no_response_has_begun() -> None:
    answers, used = send([OK], [OK], requests=2)  # the receiver closes the first one
    assert [one.error for one in answers] == [None, None]
    assert used == 2
    answers, used = send([OK, b"HTTP/1.1 2"], [OK], requests=2)
    assert [one.error for one in answers] == [None, INVALID]
    assert used == 1
