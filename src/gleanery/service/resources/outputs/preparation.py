"""Preparation of a batch before the lock, without the database: parses, hashes and renders."""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from gleanery.service.foundation.values import countries, json_text
from gleanery.service.foundation.values.json_text import hash_parts, length_prefixed
from gleanery.service.resources.fields.shapes import FieldTable, ValueFields
from gleanery.service.resources.files.models import FileIn
from gleanery.service.resources.files.references import FileReference, encode_reference
from gleanery.service.resources.outputs.batches import Batch
from gleanery.service.resources.outputs.hashes import (
    HASH_BYTES,
    IdentityHasher,
    sent_hash,
    url_hash,
)
from gleanery.service.resources.outputs.models import Output
from gleanery.service.resources.outputs.rules import Rules
from gleanery.service.storage.idempotency import IdempotentRequest

_CHUNK = 32  # outputs that are parsed before they are rendered: their values are still in the cache


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
    value_hash: bytes
    """The hash in hexadecimal."""
    files: Sequence[FileReference]
    position: int
    """The position in the request body, for error messages."""
    fields: ValueFields

    def has_same_value(self, content_hash: bytes) -> bool:
        """Return True if this content hash belongs to the same value."""
        return self.content_hash[:HASH_BYTES] == content_hash[:HASH_BYTES]


class PreparedBatch:
    """The outputs of a batch, prepared under the rules of their group.

    An output stays unparsed until it is needed: if the same bytes are stored, it never is.
    """

    def __init__(
        self, batch: Batch, rules: Rules, outputs: Sequence[UnparsedOutput | PreparedOutput]
    ) -> None:
        self.rules = rules
        self.outputs = [*outputs]
        self.positions = batch.positions
        self.skipped = batch.skipped
        self.fields = FieldTable()
        """The fields of the parsed outputs."""
        self._batch = batch

    def parse(self, indexes: Sequence[int]) -> None:
        """Parse and render these outputs. Raise InvalidRequest with every error of the batch."""
        for start in range(0, len(indexes), _CHUNK):
            chunk = indexes[start : start + _CHUNK]
            for index, output in zip(chunk, self._batch.parse(chunk), strict=True):
                unparsed = self.outputs[index]
                assert isinstance(unparsed, UnparsedOutput)
                fields = self.fields.classify(output.data)
                url = url_hash(output.source_url, self.rules.identity_format)
                self.outputs[index] = _render(
                    unparsed, output, url, self._batch.positions[index], fields
                )


def prepare(
    batch: Batch, rules: Rules, identities: IdentityHasher, parse_all: bool
) -> PreparedBatch:
    """Identify every output; ``parse_all`` also parses all of them.

    If an output occurs twice, all are parsed: the stored bytes cannot identify the second.
    """
    unparsed = []
    for output, raw_hash in zip(batch.outputs, batch.raw_hashes, strict=True):
        key_hash = identities.key_hash(output)
        identity = identities.identity(output.job_id, key_hash)
        unparsed.append(UnparsedOutput(identity, raw_hash, key_hash))
    prepared = PreparedBatch(batch, rules, unparsed)
    if parse_all or len({output.identity for output in unparsed}) < len(unparsed):
        prepared.parse(range(len(unparsed)))
    return prepared


def idempotent_request(group: str, idempotency_key: str, batch: Batch) -> IdempotentRequest:
    """Hashes the key and the batch, which is parsed completely.

    The batches of an NDJSON body have the same key, so the position is a part of the hash. The
    group's rules are not: they may change between the request and its repetition.
    """
    key_hash = hash_parts("outputs", group, idempotency_key, batch.first_position)
    parts = [*map(_canonical_output, batch.parsed)]
    if batch.skipped is not None:
        parts += [b"skip", batch.skipped.raw_hash]
    return IdempotentRequest(key_hash, hash_parts(*parts))


def _canonical_output(output: Output) -> bytes:
    members = {name: value for name, value in output._asdict().items() if value is not None}
    if output.files is not None:
        members["files"] = [file.model_dump(exclude_none=True) for file in output.files]
    return json_text.canonical(members)


def _render(
    unparsed: UnparsedOutput, output: Output, url: bytes, position: int, fields: ValueFields
) -> PreparedOutput:
    identity, raw_hash, key_hash = unparsed
    job_id, source_url, data, _, tags, file_inputs = output
    tags, file_inputs = tags or {}, file_inputs or ()
    value_hash = json_text.canonical_hash(data)
    content_hash = value_hash[:HASH_BYTES] + _rest_hash(source_url, tags, file_inputs)
    return PreparedOutput(
        identity,
        sent_hash(raw_hash, content_hash),
        content_hash,
        url,
        _tag_key(tags, "country", countries.country_key),
        _tag_key(tags, "region", countries.region_key),
        job_id,
        b'{"source_url":%b,"data":%b,"id":'
        % (json_text.encode(source_url), json_text.encode(data)),
        b',"output_id":"%b","root_job_id":%b,"key_hash":"%b","tags":%b'
        % (
            hexlify(identity),
            json_text.encode(job_id),
            hexlify(key_hash),
            json_text.encode(tags),
        ),
        hexlify(value_hash),
        [encode_reference(file) for file in file_inputs] if file_inputs else (),
        position,
        fields,
    )


def _rest_hash(source_url: str, tags: dict[str, Any], file_inputs: Sequence[FileIn]) -> bytes:
    """Hashes everything but the value that a client can see change."""
    rest = length_prefixed(source_url) + length_prefixed(json_text.canonical(tags))
    if file_inputs:
        rest += b"".join(map(_canonical_file, file_inputs))
    return sha256(rest).digest()[:HASH_BYTES]


def _canonical_file(file: FileIn) -> bytes:
    return length_prefixed(json_text.canonical(file.model_dump(exclude_none=True)))


def _tag_key(tags: dict[str, Any], name: str, key: Callable[[str], str | None]) -> str | None:
    value = tags.get(name)
    return key(value) if isinstance(value, str) else None
