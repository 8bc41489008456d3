"""Images of the sample: small PNG files of one colour each, in the blob store."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import AsyncIterator

from gleanery.blobs import Blobs
from gleanery.storage.database import Database
from gleanery.storage.files import uploads

_SIZE = 160
_COLOURS = {
    "black": (34, 36, 40),
    "sand": (214, 190, 150),
    "forest green": (38, 92, 66),
    "slate": (96, 110, 128),
    "red": (190, 52, 48),
}


async def store(database: Database, blobs: Blobs, now: int) -> dict[str, str]:
    """Store an image for each colour, and return the ids of the files."""
    return {colour: await _store_one(database, blobs, colour, now) for colour in _COLOURS}


async def _store_one(database: Database, blobs: Blobs, colour: str, now: int) -> str:
    content = _png(_COLOURS[colour])
    key = await uploads.begin(database, now)
    await blobs.put(key, "image/png", _chunks(content), len(content))
    name = f"{colour.replace(' ', '-')}.png"
    upload = uploads.Upload(
        checksum=hashlib.sha256(content).digest(),
        size=len(content),
        file_type="image/png",
        source_url=f"https://images.example/{name}",
        etag="1",
        filename=name,
    )
    file = await uploads.finish(database, key, upload, now)
    return file.id.hex()


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _png(colour: tuple[int, int, int]) -> bytes:
    """Return a square of the colour on a light ground, brighter towards the top."""
    rows = b"".join(_row(y, colour) for y in range(_SIZE))
    header = struct.pack(">IIBBBBB", _SIZE, _SIZE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _row(y: int, colour: tuple[int, int, int]) -> bytes:
    light = 1.25 - 0.5 * y / _SIZE
    inside = bytes(min(255, round(part * light)) for part in colour)
    edge = _SIZE // 5
    if not edge <= y < _SIZE - edge:
        return b"\0" + b"\xf2\xf3\xf5" * _SIZE
    return b"\0" + b"\xf2\xf3\xf5" * edge + inside * (_SIZE - 2 * edge) + b"\xf2\xf3\xf5" * edge


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )
