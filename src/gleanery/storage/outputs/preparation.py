"""Preparation of a batch before the lock, without the database: parses, hashes and renders."""

from __future__ import annotations

import json
from binascii import hexlify
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from gleanery.models.batches import Batch, IdentityFields
from gleanery.models.requests import FileIn, Output
from gleanery.storage.files.references import FileReference, encode_reference
from gleanery.storage.outputs.rules import Rules
from gleanery.values import countries, json_text
from gleanery.values.hashing import hash_parts, length_prefixed

_HASH_BYTES = 16
_CHUNK = 32  # outputs that are parsed before they are rendered: their values are still in the cache
_KEY_HASH_LENGTH_PREFIX = length_prefixed(bytes(64))[:-64]  # of a key hash in hexadecimal


class UnparsedOutput(NamedTuple):
    """An output of which only the key and the hash of its bytes are known."""

    identity: bytes
    raw_hash: bytes
    key_hash: bytes


class PreparedOutput(NamedTuple):
    """An output with everything that does not depend on the database."""

    identity: bytes
    sent_hash: bytes
    """Recognises a byte-identical repetition of the output."""
    content_hash: bytes
    """Recognises a change that a client can see: half for the value, half for the rest."""
    url_hash: bytes
    country: str | None
    region: str | None
    job: str
    json_before_id: bytes
    json_after_id: bytes
    files: Sequence[FileReference]
    position: int
    """The position in the request body, for error messages."""

    def has_same_value(self, content_hash: bytes) -> bool:
        """Tells if this content hash belongs to the same value."""
        return self.content_hash[:_HASH_BYTES] == content_hash[:_HASH_BYTES]


def sent_hash(raw_hash: bytes, content_hash: bytes) -> bytes:
    """Hashes the bytes of an output together with their content; empty if the bytes are unknown.

    It includes the content, so that it becomes invalid if only the stored content hash changes.
    """
    return sha256(raw_hash + content_hash).digest()[:_HASH_BYTES] if raw_hash else b""


def url_hash(source_url: str) -> bytes:
    return hash_parts(source_url)[:_HASH_BYTES]


class _Job(NamedTuple):
    """Encoded values that the outputs of a job share."""

    identity_prefix: bytes
    """Everything that an identity is hashed from, up to the key hash."""
    name_json: bytes


class BatchPreparer:
    """Prepares the outputs of a batch under the rules of their group.

    An output stays unparsed until it is needed: if the same bytes are stored, it never is.
    """

    def __init__(self, organization_id: int, group: str, batch: Batch, rules: Rules) -> None:
        self.rules = rules
        self.outputs: list[UnparsedOutput | PreparedOutput] = []
        self._group_prefix = length_prefixed(organization_id) + length_prefixed(group)
        self._batch = batch
        self._jobs: dict[str, _Job] = {}

    def identify_first(self) -> UnparsedOutput:
        return self._identify(self._batch.outputs[0], self._batch.raw_hashes[0])

    def prepare(self, parse_all: bool) -> None:
        """Identifies every output, and parses all of them if asked to.

        If an output occurs twice, all are parsed: the stored bytes tell nothing about the second.
        """
        pairs = zip(self._batch.outputs, self._batch.raw_hashes, strict=True)
        self.outputs = [self._identify(output, raw_hash) for output, raw_hash in pairs]
        if parse_all or len({output.identity for output in self.outputs}) < len(self.outputs):
            self.parse(range(len(self.outputs)))

    def parse(self, indexes: Sequence[int]) -> None:
        """Parses and renders these outputs. Raises InvalidRequest with every error of the batch."""
        for start in range(0, len(indexes), _CHUNK):
            chunk = indexes[start : start + _CHUNK]
            for index, output in zip(chunk, self._batch.parse(chunk), strict=True):
                unparsed = self.outputs[index]
                assert isinstance(unparsed, UnparsedOutput)
                self.outputs[index] = self._render(unparsed, output, self._batch.positions[index])

    def _identify(self, output: IdentityFields | Output, raw_hash: bytes) -> UnparsedOutput:
        key_hash = _key_hash(output, self.rules)
        job = self._jobs.get(output.job_id) or self._add_job(output.job_id)
        identity = sha256(job.identity_prefix + hexlify(key_hash)).digest()[:_HASH_BYTES]
        return UnparsedOutput(identity, raw_hash, key_hash)

    def _add_job(self, name: str) -> _Job:
        prefix = self._group_prefix + length_prefixed(name) + _KEY_HASH_LENGTH_PREFIX
        job = self._jobs[name] = _Job(prefix, json_text.encode(name))
        return job

    def _render(self, unparsed: UnparsedOutput, output: Output, position: int) -> PreparedOutput:
        identity, raw_hash, key_hash = unparsed
        job_id, source_url, data, _, tags, file_inputs = output
        tags, file_inputs = tags or {}, file_inputs or ()
        value_hash = json_text.canonical_hash(data)
        url = length_prefixed(source_url)
        rest = url + length_prefixed(json_text.canonical(tags))
        if file_inputs:
            rest += b"".join(map(_canonical_file, file_inputs))
        content_hash = value_hash[:_HASH_BYTES] + sha256(rest).digest()[:_HASH_BYTES]
        return PreparedOutput(
            identity,
            sent_hash(raw_hash, content_hash),
            content_hash,
            sha256(url).digest()[:_HASH_BYTES],
            _tag_key(tags, "country", countries.country_key),
            _tag_key(tags, "region", countries.region_key),
            job_id,
            b'{"source_url":%b,"data":%b,"id":'
            % (json_text.encode(source_url), json_text.encode(data)),
            b',"output_id":"%b","root_job_id":%b,"key_hash":"%b","value_hash":"%b","tags":%b'
            % (
                hexlify(identity),
                self._jobs[job_id].name_json,
                hexlify(key_hash),
                hexlify(value_hash),
                json_text.encode(tags),
            ),
            [encode_reference(file) for file in file_inputs] if file_inputs else (),
            position,
        )


def _key_hash(output: IdentityFields | Output, rules: Rules) -> bytes:
    """Hashes ``key``, else the group's key fields if ``data`` has all of them, else the URL."""
    if output.key is not None:
        return json_text.canonical_hash(output.key)
    if rules.key_fields is not None:
        assert isinstance(output, Output)
        names = _field_names(rules.key_fields)
        if all(name in output.data for name in names):
            return json_text.canonical_hash([output.data[name] for name in names])
    return json_text.canonical_hash(output.source_url)


@lru_cache(maxsize=256)
def _field_names(key_fields: str) -> tuple[str, ...]:
    return tuple(json.loads(key_fields))


def _canonical_file(file: FileIn) -> bytes:
    return length_prefixed(json_text.canonical(file.model_dump(exclude_none=True)))


def _tag_key(tags: dict[str, Any], name: str, key: Callable[[str], str | None]) -> str | None:
    value = tags.get(name)
    return key(value) if isinstance(value, str) else None
