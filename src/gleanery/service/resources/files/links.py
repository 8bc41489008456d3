"""Signed links to files: created when an output is read, valid for some minutes without a token.

The S3 library signs links to a bucket. Links to blobs in a folder are URLs of this service. Their
signature is the file id, which is one block, encrypted with AES. Each organization and expiry time
has its own AES key. So a signature reveals nothing about another file or another time. One call
signs all files of a page, which may be thousands.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from gleanery.service.api.context import AnyContext
from gleanery.service.api.services import Services
from gleanery.service.foundation.blobs import Blobs, S3Blobs
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.files.records import ID_BYTES
from gleanery.service.resources.files.references import (
    BLOB_URL_MARKER,
    FILE_URL_MARKER,
    ID_HEX_DIGITS,
    SIGNATURE_MARKER,
    split_at_blob_urls,
)

_PURPOSE = "file links"
_MAX_DIGITS = 18
_LARGE_TEXT_BYTES = 256 * 1024


async def with_links(context: AnyContext, text: bytes | memoryview) -> bytes | memoryview:
    """Insert signed links to files into the text of outputs."""
    if not _needs_links(text):
        return text
    if len(text) > _LARGE_TEXT_BYTES:
        await asyncio.sleep(0)  # other requests run between the parts of a large page
    services = context.services
    now = services.clock() // timestamps.SECOND
    return await services[FileLinks].insert(text, context.organization_id, now)


def with_local_links(
    services: Services, organization_id: int, text: bytes | memoryview
) -> bytes | memoryview | None:
    """Do the same without waiting; return None if the store must sign the links."""
    if not _needs_links(text):
        return text
    now = services.clock() // timestamps.SECOND
    return services[FileLinks].insert_local(text, organization_id, now)


def _needs_links(text: bytes | memoryview) -> bool:
    """Return True if the text of outputs contains markers for links."""
    searchable: Any = (
        text.obj if isinstance(text, memoryview) else text
    )  # a memoryview cannot be searched
    return SIGNATURE_MARKER in searchable


class FileLinks:
    """Inserts links into the stored text of outputs, and verifies them."""

    def __init__(self, address: str, vault: Vault, blobs: Blobs, seconds: int) -> None:
        self._blob_url = f"{address}/v1/blobs/".encode()
        self._file_url = f"{address}/v1/files/".encode()
        self._vault = vault
        self._blobs = blobs
        self._seconds = seconds

    async def insert(self, text: bytes | memoryview, organization_id: int, now: int) -> bytes:
        """Replace the markers in the text of outputs by links. ``now`` is in seconds."""
        local = self.insert_local(text, organization_id, now)
        if local is None:
            assert isinstance(self._blobs, S3Blobs)
            return await self._insert_presigned_links(self._blobs, self._with_file_urls(text))
        return local

    def insert_local(
        self, text: bytes | memoryview, organization_id: int, now: int
    ) -> bytes | None:
        """Do the same without waiting; return None if the object store must sign the links."""
        if isinstance(self._blobs, S3Blobs):
            return None
        pieces = (
            self._with_file_urls(text)
            .replace(BLOB_URL_MARKER, self._blob_url)
            .split(SIGNATURE_MARKER)
        )
        ids = b"".join([piece[-ID_HEX_DIGITS:] for piece in pieces[:-1]])
        expires = str(now + self._seconds)
        key = self._vault.key(self._vault.current).derive(_PURPOSE)
        signatures = _signatures(key, bytes.fromhex(ids.decode()), str(organization_id), expires)
        query = f"?organization={organization_id}&expires={expires}&signature=".encode()
        return _interleave(pieces, [query] * len(signatures), signatures)

    def _with_file_urls(self, text: bytes | memoryview) -> bytes:
        return bytes(text).replace(FILE_URL_MARKER, self._file_url)

    def is_valid(
        self, file_id: str, organization: str, expires: str, signature: str, now: int
    ) -> bool:
        """Check that a link with these parts was signed with a known key and has not expired."""
        id_ = _parse_id(file_id)
        if id_ is None or not (_is_number(organization) and _is_number(expires)):
            return False
        given = signature.encode()
        return now < int(expires) and any(
            hmac.compare_digest(_signatures(key, id_, organization, expires)[0], given)
            for key in self._vault.derive_all(_PURPOSE)
        )

    async def _insert_presigned_links(self, blobs: S3Blobs, text: bytes) -> bytes:
        keys, pieces = split_at_blob_urls(text)
        links = await blobs.sign(keys, self._seconds)
        return _interleave(pieces, [link.encode() for link in links])


def _parse_id(file_id: str) -> bytes | None:
    """Return the bytes of a file id, or None if it is invalid. ``fromhex`` ignores spaces."""
    try:
        id_ = bytes.fromhex(file_id)
    except ValueError:
        return None
    return id_ if len(file_id) == ID_HEX_DIGITS and len(id_) == ID_BYTES else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


def _signatures(key: bytes, ids: bytes, organization: str, expires: str) -> list[bytes]:
    aes_key = hmac.digest(key, f"{organization} {expires}".encode(), "sha256")
    encryptor = Cipher(algorithms.AES(aes_key), modes.ECB()).encryptor()  # noqa: S305
    return encryptor.update(ids).hex(" ", ID_BYTES).encode().split()


def _interleave(pieces: Sequence[bytes], *separators: Sequence[bytes]) -> bytes:
    """Join the pieces with the next element of each list between two of them."""
    step = 1 + len(separators)
    parts = [b""] * (step * len(pieces) - len(separators))
    parts[::step] = pieces
    for number, texts in enumerate(separators, 1):
        parts[number::step] = texts
    return b"".join(parts)
