"""Links to the bytes of files that need no token: made when an output is read, valid for minutes.

A store that signs links itself makes them. For a folder they lead to us, and their signature is
one block of AES over the file's id, under a key that belongs to one organization and one moment of
expiry: a keyed function of a message of fixed length, so a signature tells nothing about another
file's or another moment's. One call signs all files of a page, which may be thousands.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from gleanery.blobs import Blobs, S3Blobs
from gleanery.security.vault import Vault
from gleanery.storage import files
from gleanery.storage.files import BLOB_URL, FILE_URL, ID_BYTES, ID_LETTERS, SIGNATURE

_PURPOSE = "file links"
_MOST_DIGITS = 18


def needs_links(text: bytes | memoryview) -> bool:
    """Tells if there are marks for links in the text of outputs."""
    searchable: Any = text.obj if isinstance(text, memoryview) else text  # a view has no search
    return SIGNATURE in searchable


class FileLinks:
    """Puts links into the stored text of outputs, and knows its own again."""

    def __init__(self, address: str, vault: Vault, blobs: Blobs, seconds: int) -> None:
        self._blob_url = f"{address}/v1/blobs/".encode()
        self._file_url = f"{address}/v1/files/".encode()
        self._vault = vault
        self._blobs = blobs
        self._seconds = seconds

    async def insert(self, text: bytes | memoryview, organization_id: int, now: int) -> bytes:
        """Returns the text of outputs with links where they are marked. ``now`` is in seconds."""
        own = self.insert_own(text, organization_id, now)
        if own is None:
            assert isinstance(self._blobs, S3Blobs)
            return await self._from_store(self._blobs, self._with_file_urls(text))
        return own

    def insert_own(self, text: bytes | memoryview, organization_id: int, now: int) -> bytes | None:
        """Does the same in a plain call; returns None if the store must sign the links."""
        if isinstance(self._blobs, S3Blobs):
            return None
        pieces = self._with_file_urls(text).replace(BLOB_URL, self._blob_url).split(SIGNATURE)
        ids = b"".join([piece[-ID_LETTERS:] for piece in pieces[:-1]])
        expires = str(now + self._seconds)
        key = self._vault.key(self._vault.current).derived(_PURPOSE)
        signatures = _signatures(key, bytes.fromhex(ids.decode()), str(organization_id), expires)
        middle = f"?organization={organization_id}&expires={expires}&signature=".encode()
        return _woven(pieces, [middle] * len(signatures), signatures)

    def _with_file_urls(self, text: bytes | memoryview) -> bytes:
        return bytes(text).replace(FILE_URL, self._file_url)

    def is_valid(
        self, file_id: str, organization: str, expires: str, signature: str, now: int
    ) -> bool:
        """Whether we made a link of these parts, under any key we know, and in its time."""
        id_ = _id_of(file_id)
        if id_ is None or not (_is_number(organization) and _is_number(expires)):
            return False
        given = signature.encode()
        return now < int(expires) and any(
            hmac.compare_digest(_signatures(key, id_, organization, expires)[0], given)
            for key in self._vault.each_derived(_PURPOSE)
        )

    async def _from_store(self, blobs: S3Blobs, text: bytes) -> bytes:
        keys, around = files.keys_and_rest(text)
        links = await blobs.sign(keys, self._seconds)
        return _woven(around, [link.encode() for link in links])


def _id_of(file_id: str) -> bytes | None:
    """None for what is no file's id: also spaces, which would be passed over."""
    try:
        id_ = bytes.fromhex(file_id)
    except ValueError:
        return None
    return id_ if len(file_id) == ID_LETTERS and len(id_) == ID_BYTES else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def _signatures(key: bytes, ids: bytes, organization: str, expires: str) -> list[bytes]:
    once = hmac.digest(key, f"{organization} {expires}".encode(), "sha256")
    encryptor = Cipher(algorithms.AES(once), modes.ECB()).encryptor()  # noqa: S305
    return encryptor.update(ids).hex(" ", ID_BYTES).encode().split()


def _woven(pieces: Sequence[bytes], *between: Sequence[bytes]) -> bytes:
    """The pieces, and between each and the next one of each list."""
    step = 1 + len(between)
    parts = [b""] * (step * len(pieces) - len(between))
    parts[::step] = pieces
    for number, some in enumerate(between, 1):
        parts[number::step] = some
    return b"".join(parts)
