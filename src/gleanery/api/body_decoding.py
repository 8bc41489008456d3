"""Bodies of requests as the client wrote them: without Content-Encoding, in bounded pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gleanery.api.error_responses import as_service_error
from gleanery.errors import (
    CompressionTooStrong,
    ErrorDetail,
    InvalidRequest,
    UnsupportedCoding,
)
from gleanery.http import ClientDisconnected, HttpError, Request
from gleanery.values.compression import GZIP, ZSTD, Codec, Decompressor, InvalidData

_CODECS = {"gzip": GZIP, "x-gzip": GZIP, "zstd": ZSTD}
_PIECE_BYTES = 64 * 1024  # decompressed in 0.3 ms at most
_MAX_RATIO = 500  # most outputs compress to a fifth, very similar ones to a two-hundredth
_ANY_RATIO_BYTES = 1024 * 1024
_ACCEPTED = "gzip, zstd"
_NOT_ACCEPTED = "Send the body with Content-Encoding: gzip or zstd, or without Content-Encoding"
_FILE_NOT_ACCEPTED = "A file is stored as it is sent: send it without Content-Encoding"


class Body:
    """Body of a request."""

    def __init__(self, request: Request) -> None:
        self.request = request

    @property
    def held_bytes(self) -> int:
        """Bytes in memory besides those that were received."""
        return 0

    async def receive(self) -> bytes:
        """Return the next piece, empty at the end. Convert errors of the HTTP connection."""
        state = self.request.state
        try:
            with state.idle():
                piece = await self.request.receive()
        except ClientDisconnected:
            raise
        except HttpError as error:
            raise as_service_error(error) from error
        state.received_bytes += len(piece)
        return piece


class DecodedBody(Body):
    """Body that is decompressed while it arrives.

    The reader limits the size. So a small body that decompresses to a huge one needs little memory.
    """

    def __init__(self, request: Request, codec: Codec) -> None:
        super().__init__(request)
        self._decompressor = Decompressor(codec)

    @property
    def held_bytes(self) -> int:
        return self._decompressor.held_bytes

    async def receive(self) -> bytes:
        try:
            piece = await self._next_piece()
        except InvalidData as error:
            detail = ErrorDetail(("body",), str(error), "content_encoding")
            raise InvalidRequest(detail) from None
        self._check_ratio()
        return piece

    async def _next_piece(self) -> bytes:
        decompressor = self._decompressor
        while True:
            if not decompressor.needs_input:
                await asyncio.sleep(0)  # other requests run between the pieces
            elif received := await super().receive():
                decompressor.add(received)
            else:
                decompressor.check_end()
                return b""
            if piece := decompressor.read(_PIECE_BYTES):
                return piece

    def _check_ratio(self) -> None:
        """Limits the work that a client causes with few bytes."""
        size, consumed = self._decompressor.produced, self._decompressor.consumed
        if size > _ANY_RATIO_BYTES and size > _MAX_RATIO * consumed:
            self.request.keep_alive = False  # otherwise the server would read the rest of the body
            raise CompressionTooStrong(_ANY_RATIO_BYTES, _MAX_RATIO)


def open_body(request: Request) -> Body:
    """Return the body without its content coding. Raise UnsupportedCoding."""
    coding = _coding(request.headers)
    if not coding:
        return Body(request)
    if coding not in _CODECS:
        raise UnsupportedCoding(_NOT_ACCEPTED, _ACCEPTED)
    return DecodedBody(request, _CODECS[coding])


def open_file(request: Request) -> Body:
    """Return the bytes of a file. They are stored as they are sent, so a coding is an error."""
    if _coding(request.headers):
        raise UnsupportedCoding(_FILE_NOT_ACCEPTED, "identity")
    return Body(request)


def _coding(headers: Mapping[bytes, bytes]) -> str:
    """Return the codings as sent, empty if the body has none."""
    coding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    return "" if coding == "identity" else coding
