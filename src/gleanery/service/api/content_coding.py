"""Content coding of responses (RFC 9110, section 8.4): which one a client accepts, and its use.

Only successful responses come here. Session values are never compressed: the length of the
compressed text would tell about them. See ``docs/explanation/compression.md``.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator
from functools import lru_cache

from gleanery.service.api.context import memo_of
from gleanery.service.api.operation import Operation
from gleanery.service.api.response import Response
from gleanery.service.foundation.errors import Overloaded
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values.compression import GZIP, ZSTD, Codec, StreamCompressor
from gleanery.service.http import HeaderBlock
from gleanery.service.http.parser import TOKEN

_MIN_BYTES = 1024  # a shorter text saves no packet
_LARGE_BYTES = 128 * 1024  # compressed in a thread: it takes 0.5 ms or more
_SLOW_SECONDS = 0.1
_SESSION_VALUES = "session:read"

_SPACE = rb"[\t ]*+"
_WEIGHT = rb"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?"
_ELEMENT = re.compile(
    rb"%s(%s)%s(?:;%s[qQ]=(%s)%s)?" % (_SPACE, TOKEN, *[_SPACE] * 2, _WEIGHT, _SPACE)
)
_NONE = -1.0


def accepted_codec(header: bytes | None) -> Codec | None:
    """Return the codec that a client prefers; None if the response is to be sent as it is.

    The highest weight decides. Of equal weights zstd is chosen first, then gzip, then none.
    """
    if header is None:
        return None
    weights = _parse(header)
    others = weights.get(b"*", _NONE)
    gzip = max(weights.get(b"gzip", _NONE), weights.get(b"x-gzip", _NONE))
    candidates = {
        ZSTD: weights.get(b"zstd", others),
        GZIP: others if gzip == _NONE else gzip,
    }
    best = max(candidates, key=lambda codec: candidates[codec])  # the first of equal ones
    minimum = max(weights.get(b"identity", 0.0), 0.001)  # 0 means: not acceptable
    return best if candidates[best] >= minimum else None


def _parse(header: bytes) -> dict[bytes, float]:
    """Return the weight of each coding; none at all if the header is malformed."""
    weights: dict[bytes, float] = {}
    for element in header.split(b","):
        if not element.strip(b"\t "):
            continue
        found = _ELEMENT.fullmatch(element)
        if found is None:
            return {}
        weights[found[1].lower()] = float(found[2] or 1)
    return weights


def requested_codec(block: HeaderBlock, operation: Operation) -> Codec | None:
    """Return the codec for a response of the operation. Equal header blocks are parsed once."""
    if b"accept-encoding" not in block.headers or _SESSION_VALUES in operation.scopes:
        return None
    memo = memo_of(block)
    if not memo.is_codec_known:
        memo.codec = accepted_codec(block.headers[b"accept-encoding"])
        memo.is_codec_known = True
    return memo.codec


def is_large(response: Response) -> bool:
    """Return True if compression of the response would delay other requests."""
    return _size(response) >= _LARGE_BYTES


def _size(response: Response) -> int:
    return sum(map(len, response.pieces))


def compress_small(response: Response, codec: Codec) -> Response:
    """Compresses a response that is not large."""
    if not _is_compressible(response) or _size(response) < _MIN_BYTES:
        return response
    return _with_body(response, codec, codec.compress(b"".join(response.pieces)))


async def compress(
    response: Response,
    operation: Operation,
    codec: Codec,
    organization_id: int,
    thread: FairThread,
) -> Response:
    """Compresses a response of any size; a large one in the thread.

    If the thread is overloaded, a large response stays as it is: what it reports may be stored.
    """
    if not _is_compressible(response):
        return response
    if response.rest is not None:
        stream = _Stream(codec.new_compressor(), organization_id, thread)
        return response._replace(codec=codec, rest=stream.compressed(response.rest))
    if operation.is_static:
        return _with_body(response, codec, _compress_once(codec, response.pieces))
    if not is_large(response):
        return compress_small(response, codec)
    pieces = response.pieces
    try:
        return _with_body(response, codec, await thread.run(organization_id, _join, codec, pieces))
    except Overloaded:
        return response


def _join(codec: Codec, pieces: tuple[bytes | memoryview, ...]) -> bytes:
    """Compresses the pieces. Those that wait for the thread are not copied yet."""
    return codec.compress(b"".join(pieces))


def _is_compressible(response: Response) -> bool:
    """Return False for a stored file, which has a length, and for a response without a body."""
    return response.length is None and response.status == 200


def _with_body(response: Response, codec: Codec, body: bytes) -> Response:
    return response._replace(body=body, more=(), codec=codec)


@lru_cache(maxsize=8)  # two texts in two codings
def _compress_once(codec: Codec, pieces: tuple[bytes, ...]) -> bytes:
    return codec.compress(b"".join(pieces))


class _Stream:
    """Compresses a stream piece by piece, as fast as the client reads it."""

    def __init__(
        self, compressor: StreamCompressor, organization_id: int, thread: FairThread
    ) -> None:
        self._compressor = compressor
        self._organization_id = organization_id
        self._thread = thread

    async def compressed(
        self, pieces: AsyncGenerator[bytes | memoryview]
    ) -> AsyncGenerator[bytes | memoryview]:
        """Yield the compressed stream. After an error its end is missing.

        Flushes when the producer was slow, so that no client waits for a full block.
        """
        was_slow = True  # the first piece is sent at once
        try:
            started = time.monotonic()
            async for piece in pieces:
                was_slow = was_slow or time.monotonic() - started >= _SLOW_SECONDS
                compressed = await self._compress(piece)
                if was_slow:
                    compressed += self._compressor.flush()
                if compressed:
                    yield compressed
                was_slow, started = False, time.monotonic()
        finally:
            await pieces.aclose()
        yield self._compressor.finish()

    async def _compress(self, piece: bytes | memoryview) -> bytes:
        if len(piece) < _LARGE_BYTES:
            return self._compressor.compress(piece)
        try:
            return await self._thread.run(self._organization_id, self._compressor.compress, piece)
        except Overloaded:  # a stream that has begun cannot change its coding
            return self._compressor.compress(piece)
