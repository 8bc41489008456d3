"""Links to the bytes of files that need no token: made when an output is read, valid for minutes.

A store that signs links itself makes them. For a folder they lead to us, and their signature is
one block of AES over the file's id, under a key that belongs to one organization and one moment of
expiry: a keyed function of a message of fixed length, so a signature tells nothing about another
file's or another moment's. One call signs all files of a page, which may be thousands.
"""

from __future__ import annotations

import hmac

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from gleanery.blobs import Blobs, S3Blobs
from gleanery.store.files import LINK

_ID_LETTERS = 32


class FileLinks:
    """Puts links into the stored text of outputs, and knows its own again."""

    def __init__(self, address: str, key: bytes, blobs: Blobs, seconds: int) -> None:
        self._address = address
        self._key = key
        self._blobs = blobs
        self._seconds = seconds

    async def filled(self, text: bytes, organization_id: int, now: int) -> bytes:
        """The text with a link in each place that waits for one. ``now`` is in seconds."""
        pieces = text.split(LINK)
        ids = [piece[:_ID_LETTERS] for piece in pieces[2::2]]
        woven = [b""] * (2 * len(pieces) - 1)
        woven[::2] = pieces
        woven[3::4] = [f"{self._address}/v1/files/".encode()] * len(ids)
        if isinstance(self._blobs, S3Blobs):
            woven[1::4] = await self._from_store(self._blobs, pieces[:-1:2])
        else:
            woven[1::4] = self._of_ours(ids, organization_id, now + self._seconds)
        return b"".join(woven)

    def is_valid(
        self, file_id: str, organization: str, expires: str, signature: str, now: int
    ) -> bool:
        """Whether we made a link of these parts, and its time is not over."""
        if not (organization.isdecimal() and expires.isdecimal()) or len(file_id) != _ID_LETTERS:
            return False
        try:
            [expected] = self._signatures(bytes.fromhex(file_id), organization, expires)
        except ValueError:
            return False
        return hmac.compare_digest(expected, signature.encode()) and now < int(expires)

    async def _from_store(self, blobs: S3Blobs, before_links: list[bytes]) -> list[bytes]:
        """Each text ends with the key of the blob and the beginning of the member for its link."""
        keys = [text.rsplit(b'"', 5)[1].decode() for text in before_links]
        signed = await blobs.sign(keys, self._seconds)
        return [link.encode() for link in signed]

    def _of_ours(self, ids: list[bytes], organization_id: int, expires: int) -> list[bytes]:
        all_ids = bytes.fromhex(b"".join(ids).decode())
        signatures = self._signatures(all_ids, str(organization_id), str(expires))
        start = f"{self._address}/v1/blobs/".encode()
        middle = f"?organization={organization_id}&expires={expires}&signature=".encode()
        return [
            b"".join((start, id_, middle, signature))
            for id_, signature in zip(ids, signatures, strict=True)
        ]

    def _signatures(self, ids: bytes, organization: str, expires: str) -> list[bytes]:
        key = hmac.digest(self._key, f"{organization} {expires}".encode(), "sha256")
        encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
        text = encryptor.update(ids).hex().encode()
        return [text[n : n + 32] for n in range(0, len(text), 32)]
