"""Compression in zstd and gzip: complete texts, streams, and decompression in bounded pieces.

The levels are chosen by measurement: see ``docs/decisions/0098-compression.md`` and
``docs/explanation/compression.md``.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import NamedTuple, Protocol

import deflate

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_ZSTD_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    # Small tables stay in the processor's cache. A page takes 3.5 ms instead of 5.4 ms.
    zstd.CompressionParameter.min_match: 6,
    zstd.CompressionParameter.hash_log: 13,
    zstd.CompressionParameter.chain_log: 11,
    zstd.CompressionParameter.window_log: 19,  # a stream needs about 1 MiB of memory
}
_GZIP_LEVEL = 1
_GZIP_FORMAT = 31  # of zlib: gzip, with the largest window

_MAX_WINDOW_LOG = 23
MAX_WINDOW_BYTES = 1 << _MAX_WINDOW_LOG
"""Largest window of a zstd frame: 8 MiB, which RFC 9659 allows in HTTP."""
_MAX_INPUT_BYTES = 4096  # of one step, so that a part with a huge output is noticed early
_MAX_FIRST_PARTS = 100
_MIN_PART_BYTES = 64  # on average, because each part costs a new decompressor
_MAX_EMPTY_BYTES = 1024 * 1024  # of a body beyond its content, such as names in headers


class InvalidData(Exception):
    """The compressed data is malformed. The message says what is wrong."""


class StreamCompressor(Protocol):
    """Compresses one stream."""

    def compress(self, piece: bytes | memoryview) -> bytes:
        """Add a piece. Return what is compressed so far; it can be empty."""

    def flush(self) -> bytes:
        """Return the rest of what was added, so that the receiver can read all of it."""

    def finish(self) -> bytes:
        """Return the end of the stream."""


class Codec(NamedTuple):
    """One content coding."""

    name: str
    compress: Callable[[bytes], bytes]
    """Compresses a complete text. Other threads run meanwhile."""
    new_compressor: Callable[[], StreamCompressor]
    new_part: Callable[[], _Part]
    malformed: str
    """Message about data that cannot be decompressed."""
    window_bytes: int
    """Most bytes that decompression keeps in memory."""


class _Part(Protocol):
    """Decompressor of one gzip member or of one zstd frame."""

    @property
    def eof(self) -> bool:
        """True after the end of the part."""

    @property
    def needs_input(self) -> bool:
        """True if there is no more output without input."""

    @property
    def unused_data(self) -> bytes:
        """Bytes after the end of the part."""

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipStream:
    def __init__(self) -> None:
        self._stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_FORMAT)
        self.compress = self._stream.compress

    def flush(self) -> bytes:
        return self._stream.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._stream.flush(zlib.Z_FINISH)


class _ZstdStream:
    def __init__(self) -> None:
        self._stream = zstd.ZstdCompressor(options=_ZSTD_OPTIONS)
        self.compress = self._stream.compress

    def flush(self) -> bytes:
        return self._stream.flush(self._stream.FLUSH_BLOCK)

    def finish(self) -> bytes:
        return self._stream.flush(self._stream.FLUSH_FRAME)


class _GzipMember:
    """Gives a decompressor of zlib the interface of the one of zstd."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_FORMAT)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        member = self._member
        piece = member.decompress(member.unconsumed_tail + data, max_length)
        # A full piece may leave output behind although all input is consumed.
        self.needs_input = not member.unconsumed_tail and len(piece) < max_length
        return piece


def _new_frame() -> zstd.ZstdDecompressor:
    limit: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
    return zstd.ZstdDecompressor(options=limit)


ZSTD = Codec(
    "zstd",
    lambda text: zstd.compress(text, options=_ZSTD_OPTIONS),
    _ZstdStream,
    _new_frame,
    "The body is not valid zstd, or it needs a window of more than 8 MiB: compress it without "
    "--ultra and without --long",
    MAX_WINDOW_BYTES,
)
GZIP = Codec(
    "gzip",
    lambda text: bytes(deflate.gzip_compress(text, _GZIP_LEVEL)),
    _GzipStream,
    _GzipMember,
    "The body is not valid gzip",
    0,  # 32 KiB, which is less than the buffer of a connection
)


class Decompressor:
    """Decompresses a stream of gzip members or zstd frames in pieces of limited size."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._part: _Part | None = None
        self._parts = 0
        self._input = b""
        self.consumed = 0
        """Bytes before decompression."""
        self.produced = 0
        """Bytes after decompression."""

    @property
    def held_bytes(self) -> int:
        """Bytes that the decompression may keep in memory."""
        return min(self.produced, self._codec.window_bytes)

    @property
    def needs_input(self) -> bool:
        return not self._input and (self._part is None or self._part.needs_input)

    def add(self, data: bytes) -> None:
        """Add input, when it is needed."""
        self._input += data

    def read(self, max_bytes: int) -> bytes:
        """Do one step. Return its output, which can be empty. Raise ``InvalidData``."""
        if self.needs_input:
            return b""
        part = self._part = self._part or self._next_part()
        try:
            piece = part.decompress(self._take() if part.needs_input else b"", max_bytes)
        except (zlib.error, zstd.ZstdError):
            raise InvalidData(self._codec.malformed) from None
        if part.eof:
            self.consumed -= len(part.unused_data)
            self._input, self._part = part.unused_data + self._input, None
        self.produced += len(piece)
        if self.consumed > self.produced + _MAX_EMPTY_BYTES:
            raise InvalidData(f"The {self._codec.name} data has too many bytes without content")
        return piece

    def _take(self) -> bytes:
        """Return the input for one step."""
        data, self._input = self._input[:_MAX_INPUT_BYTES], self._input[_MAX_INPUT_BYTES:]
        self.consumed += len(data)
        return data

    def _next_part(self) -> _Part:
        self._parts += 1
        if self._parts > _MAX_FIRST_PARTS + self.consumed // _MIN_PART_BYTES:
            raise InvalidData(f"The body has too many small {self._codec.name} parts: join them")
        return self._codec.new_part()

    def check_end(self) -> None:
        """Raise ``InvalidData`` unless the data ends where a part ends."""
        if self._part is not None:
            raise InvalidData(f"The body is truncated: its {self._codec.name} data has no end")
