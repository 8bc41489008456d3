"""Links to the bytes of files that need no token: made when an output is read, valid for minutes.

A store that signs links itself makes them. For a folder they lead to us, and their signature is
one block of AES over the file's id, under a key that belongs to one organization and one moment of
expiry: a keyed function of a message of fixed length, so a signature tells nothing about another
file's or another moment's. One call signs all files of a page, which may be thousands.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from gleanery.blobs import Blobs, S3Blobs
from gleanery.store import files
from gleanery.store.files import ID_BYTES, LINK_PARTS
from gleanery.vault import Vault

_ID_LETTERS = 2 * ID_BYTES
_PURPOSE = "file links"


class FileLinks:
    """Puts links into the stored templates of files, and knows its own again."""

    def __init__(self, address: str, vault: Vault, blobs: Blobs, seconds: int) -> None:
        self._blob_url = f"{address}/v1/blobs/".encode()
        self._file_url = f"{address}/v1/files/".encode()
        self._vault = vault
        self._blobs = blobs
        self._seconds = seconds

    async def filled(
        self,
        templates: Sequence[bytes],
        file_ids: Sequence[bytes],
        organization_id: int,
        now: int,
    ) -> Sequence[bytes]:
        """Each template with its links put in. ``now`` is in seconds."""
        if isinstance(self._blobs, S3Blobs):
            return await self._from_store(self._blobs, templates)
        parts = self._parts(b"".join(file_ids), organization_id, now + self._seconds)
        return _woven(templates, [LINK_PARTS * len(ids) // ID_BYTES for ids in file_ids], parts)

    def is_valid(
        self, file_id: str, organization: str, expires: str, signature: str, now: int
    ) -> bool:
        """Whether we made a link of these parts, under any key we know, and in its time."""
        if not (organization.isdecimal() and expires.isdecimal()) or len(file_id) != _ID_LETTERS:
            return False
        try:
            id_ = bytes.fromhex(file_id)
        except ValueError:
            return False
        given = signature.encode()
        return now < int(expires) and any(
            hmac.compare_digest(_signatures(key, id_, organization, expires)[0], given)
            for key in self._vault.each_derived(_PURPOSE)
        )

    async def _from_store(self, blobs: S3Blobs, templates: Sequence[bytes]) -> list[bytes]:
        whole = [files.with_whole_links(template) for template in templates]
        links = await blobs.sign([key for _, keys in whole for key in keys], self._seconds)
        parts = [self._file_url] * (2 * len(links))
        parts[::2] = [link.encode() for link in links]
        return _woven([one for one, _ in whole], [2 * len(keys) for _, keys in whole], parts)

    def _parts(self, ids: bytes, organization_id: int, expires: int) -> list[bytes]:
        """What each file's two links are made up of, beside the id."""
        key = self._vault.key(self._vault.current).derived(_PURPOSE)
        signatures = _signatures(key, ids, str(organization_id), str(expires))
        middle = f"?organization={organization_id}&expires={expires}&signature=".encode()
        parts = [self._blob_url, middle, b"", self._file_url] * len(signatures)
        parts[2::LINK_PARTS] = signatures
        return parts


def _signatures(key: bytes, ids: bytes, organization: str, expires: str) -> list[bytes]:
    once = hmac.digest(key, f"{organization} {expires}".encode(), "sha256")
    encryptor = Cipher(algorithms.AES(once), modes.ECB()).encryptor()  # noqa: S305
    text = encryptor.update(ids).hex().encode()
    return [text[n : n + _ID_LETTERS] for n in range(0, len(text), _ID_LETTERS)]


def _woven(
    templates: Sequence[bytes], counts: Sequence[int], parts: Sequence[bytes]
) -> list[bytes]:
    """Each template with as many of the parts, in their order, as it has places for."""
    parts, start, texts = tuple(parts), 0, []
    for template, count in zip(templates, counts, strict=True):
        texts.append(template % parts[start : start + count])
        start += count
    return texts
