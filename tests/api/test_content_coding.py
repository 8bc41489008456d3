"""Compression of a streamed response: what the client can read, and when."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from gleanery.service.api import content_coding
from gleanery.service.api.response import Response
from gleanery.service.application import OPERATIONS
from gleanery.service.foundation.errors import Overloaded
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values.compression import GZIP, ZSTD, Codec
from tests.support.compression import DECOMPRESS, zstd

LINE = b'{"name":"a product","price":12}\n'
PIECES = [LINE * 10, LINE * 20_000, b"", LINE]  # of which one is compressed in a thread
DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(31),
    "zstd": zstd.ZstdDecompressor,
}
both_codecs = pytest.mark.parametrize("codec", [ZSTD, GZIP], ids=lambda codec: codec.name)


class OverloadedThread(FairThread):
    """A thread in which no turn comes."""

    async def run(self, *_: Any, **__: Any) -> Any:
        raise Overloaded


async def compressed(
    rest: AsyncGenerator[bytes], codec: Codec, thread: FairThread | None = None
) -> AsyncGenerator[bytes]:
    """Returns the pieces of a response that is sent as a stream."""
    response = Response(b"", rest=rest)
    thread = thread or FairThread()
    sent = await content_coding.compress(response, OPERATIONS[0], codec, 1, thread)
    assert sent.codec is codec
    assert sent.is_chunked
    assert sent.rest is not None
    return sent.rest


async def produce(*pieces: bytes | Exception) -> AsyncGenerator[bytes]:
    for piece in pieces:
        if isinstance(piece, Exception):
            raise piece
        yield piece


@both_codecs
def test_a_stream_is_compressed_as_one(codec: Codec) -> None:
    async def collect() -> list[bytes]:
        return [piece async for piece in await compressed(produce(*PIECES), codec)]

    pieces = asyncio.run(collect())
    assert b"" not in pieces
    assert DECOMPRESS[codec.name](b"".join(pieces)) == b"".join(PIECES)
    assert sum(map(len, pieces)) < sum(map(len, PIECES)) / 10


@both_codecs
def test_a_slow_stream_is_not_held_back(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece can be read before the next one is produced."""
    monkeypatch.setattr(content_coding, "_SLOW_SECONDS", 0.0)
    read = bytearray()

    async def produce_when_read() -> AsyncGenerator[bytes]:
        for number in range(3):
            assert read == LINE * number
            yield LINE

    async def consume() -> None:
        decompressor = DECOMPRESSORS[codec.name]()
        async for piece in await compressed(produce_when_read(), codec):
            read.extend(decompressor.decompress(piece))
        assert decompressor.eof

    asyncio.run(consume())
    assert read == LINE * 3


@both_codecs
def test_a_truncated_stream_has_no_end(codec: Codec) -> None:
    received: list[bytes] = []

    async def collect() -> None:
        async for piece in await compressed(produce(LINE, RuntimeError("lost")), codec):
            received.append(piece)

    with pytest.raises(RuntimeError, match="lost"):
        asyncio.run(collect())
    decompressor = DECOMPRESSORS[codec.name]()
    assert decompressor.decompress(b"".join(received)) == LINE
    assert not decompressor.eof


@both_codecs
def test_a_client_that_leaves_ends_the_producer(codec: Codec) -> None:
    ended: list[bool] = []

    async def produce_for_ever() -> AsyncGenerator[bytes]:
        try:
            while True:
                yield LINE * 5000
        finally:
            ended.append(True)

    async def leave() -> None:
        stream = await compressed(produce_for_ever(), codec)
        await anext(stream)
        await stream.aclose()

    asyncio.run(leave())
    assert ended == [True]


@both_codecs
def test_an_overloaded_thread_fails_no_response(codec: Codec) -> None:
    async def collect() -> bytes:
        stream = await compressed(produce(*PIECES), codec, OverloadedThread())
        return b"".join([piece async for piece in stream])

    assert DECOMPRESS[codec.name](asyncio.run(collect())) == b"".join(PIECES)
    large = Response(LINE * 20_000)
    sent = content_coding.compress(large, OPERATIONS[0], codec, 1, OverloadedThread())
    assert asyncio.run(sent) == large
