"""The hashes of an output: they identify it, find it and detect changes.

The identities of a group begin with the same bytes, and then come bytes that the outputs of a job
share. The hash of a URL begins with bytes that the URLs of a site share. So what a scraper stores
together are neighbours in the indexes, and it changes few of their pages, also in a large group.
A group keeps the format of its first hashes, because clients know its identities.
"""

from __future__ import annotations

import json
import re
from binascii import hexlify
from functools import lru_cache
from hashlib import sha256
from typing import Any

from gleanery.service.foundation.values import json_text
from gleanery.service.foundation.values.json_text import hash_parts, length_prefixed
from gleanery.service.resources.outputs.elements import IdentityFields
from gleanery.service.resources.outputs.models import Output

HASH_BYTES = 16
_PREFIX_BYTES = ((0, 0), (4, 0), (4, 2))
"""Bytes of the group and of the job at the start of an identity, for each identity format.

The other bytes distinguish the outputs of a job.
"""
SITE_PREFIX = 2
"""The first identity format in which the hash of a URL begins with bytes of its site."""
_SITE_BYTES = 2
_OUTPUT_ID = re.compile(f"[0-9a-f]{{{2 * HASH_BYTES}}}")  # bytes.fromhex accepts more
_KEY_HASH_LENGTH = length_prefixed(bytes(64))[:-64]  # the prefix of a key hash in hexadecimal


def sent_hash(raw_hash: bytes, content_hash: bytes) -> bytes:
    """Hashes the bytes of an output together with its content; empty if the bytes are unknown.

    It includes the content, so that it becomes invalid if only the stored content hash changes.
    """
    return sha256(raw_hash + content_hash).digest()[:HASH_BYTES] if raw_hash else b""


def has_same_bytes(raw_hash: bytes, stored_sent_hash: bytes, stored_content_hash: bytes) -> bool:
    """Return True if the stored output was last sent in the bytes with this hash."""
    return bool(raw_hash) and stored_sent_hash == sent_hash(raw_hash, stored_content_hash)


def url_hash(source_url: str, identity_format: int) -> bytes:
    """Hashes the URL of an output, in a group with this identity format."""
    start = b""
    if identity_format >= SITE_PREFIX:
        site = source_url.split("/", 3)[:3]  # https://shop.example
        start = hash_parts(*site)[:_SITE_BYTES]
    return start + hash_parts(source_url)[: HASH_BYTES - len(start)]


def parse_output_id(text: str) -> bytes:
    """Return the identity; empty, which no output has, if the text is not an ``output_id``."""
    return bytes.fromhex(text) if _OUTPUT_ID.fullmatch(text) else b""


class IdentityHasher:
    """Computes the identities of the outputs of a group, which are hashes of group, job and key."""

    def __init__(
        self, organization_id: int, group: str, key_fields: str | None, identity_format: int
    ) -> None:
        self._key_fields = None if key_fields is None else _decode_names(key_fields)
        self._group_prefix = length_prefixed(organization_id) + length_prefixed(group)
        group_bytes, self._job_bytes = _PREFIX_BYTES[identity_format]
        self._start = sha256(self._group_prefix).digest()[:group_bytes]
        self._rest_bytes = HASH_BYTES - group_bytes - self._job_bytes
        self._jobs: dict[str, tuple[bytes, bytes]] = {}

    def key_hash(self, output: IdentityFields | Output) -> bytes:
        """Hashes ``key``, else the key fields if ``data`` has all of them, else ``source_url``."""
        if output.key is not None:
            return json_text.canonical_hash(output.key)
        if self._key_fields is not None:
            assert isinstance(output, Output)
            values = [output.data.get(name) for name in self._key_fields]
            if not any(map(_is_null, values)):
                return json_text.canonical_hash(values)
        return json_text.canonical_hash(output.source_url)

    def identity(self, job: str, key_hash: bytes) -> bytes:
        start, hashed = self._jobs.get(job) or self._add_job(job)
        return start + sha256(hashed + hexlify(key_hash)).digest()[: self._rest_bytes]

    def _add_job(self, job: str) -> tuple[bytes, bytes]:
        """Encode what the outputs of a job share: the start of the identity, and hashed bytes."""
        hashed = self._group_prefix + length_prefixed(job)
        start = self._start + sha256(hashed).digest()[: self._job_bytes]
        self._jobs[job] = start, hashed + _KEY_HASH_LENGTH
        return self._jobs[job]


def _is_null(value: Any) -> bool:
    """Return True for null and for an array or object that contains nothing but null.

    Scrapers write null for a value that they did not find, so it identifies nothing.
    """
    if isinstance(value, dict):
        value = list(value.values())
    return value is None or (isinstance(value, list) and value != [] and all(map(_is_null, value)))


@lru_cache(maxsize=256)
def _decode_names(key_fields: str) -> tuple[str, ...]:
    return tuple(json.loads(key_fields))
