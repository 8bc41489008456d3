"""Responses with which a hostile receiver could keep the process busy that sends the events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.webhooks import sender
from gleanery.service.resources.webhooks.deliveries import Answer
from gleanery.service.resources.webhooks.endpoints import Target
from gleanery.service.resources.webhooks.sender import Sender
from gleanery.service.resources.webhooks.targets import Targets

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
MANY = 4096
SECRET = b"0123456789abcdef" * 20
TOO_LONG = "the response has more than 16 KB before its body"


def send(
    pieces: Sequence[bytes], pause: float = 0.0, headers: Sequence[tuple[str, str]] = ()
) -> Answer:
    """Return what comes of a response that has these pieces, and then never ends."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        await reader.read()

    async def run() -> Answer:
        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sending = Sender(Targets(["127.0.0.1"]), timestamps.now)
        try:
            target = Target(f"http://127.0.0.1:{port}/", "standard", [b"key"], headers)
            return await sending.send(target, "msg_1", b"{}")
        finally:
            sending.close()
            server.close()

    return asyncio.run(run())


@contextmanager
def soon() -> Iterator[None]:
    """Check that nothing has waited for the end of the response."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < sender.TIMEOUT_SECONDS / 2


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 100 \r\n\r\n" * MANY,
        b"HTTP/1.1 200 OK\r\n" + b"a:b\r\n" * MANY,
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 5 * MANY,
    ],
    ids=["responses before the response", "many headers", "a long header"],
)
def test_a_response_with_a_long_head_is_a_failure(response: bytes) -> None:
    with soon():
        assert send([response]) == Answer(error=TOO_LONG)


def test_no_more_is_read_than_is_needed() -> None:
    with soon():
        answer = send([HEAD, *[b"1000\r\n" + b"x" * 4096 + b"\r\n"] * 5])
    assert (answer.status_code, answer.response, answer.error) == (200, "x" * 1024, None)


@pytest.mark.parametrize("pause", [0.0, 0.001], ids=["together", "one by one"])
def test_many_small_chunks_are_not_read_to_their_end(pause: float) -> None:
    """Each costs as much as a large one. A header that is repeated there is hidden nevertheless."""
    chunks = [b"1\r\n%c\r\n" % byte for byte in b"no: " + SECRET * 30]
    with soon():
        answer = send([HEAD, *chunks], pause, [("X-Api-Key", SECRET.decode())])
    assert (answer.status_code, answer.response, answer.error) == (200, "no: ", None)
