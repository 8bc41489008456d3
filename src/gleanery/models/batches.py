"""A batch of outputs as a client sends it: split into texts that are parsed only when needed.

Most outputs of a repeated scrape have the same bytes as last time. To recognise such an output, the
members that identify it and a hash of its bytes are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeGuard

import msgspec
from pydantic import ValidationError

from gleanery.models.fields import check_name
from gleanery.models.requests import Output, OutputIn
from gleanery.values import json_text

_RAW_HASH_BYTES = 16
_KNOWN_MEMBERS = frozenset(Output._fields)
_LARGE_BYTES = 4 * 1024 * 1024
_LARGE_VALUES = 100_000
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class IdentityFields(msgspec.Struct, gc=False):
    """The members that identify an output, if the group's rules do not use its data."""

    job_id: str
    source_url: str
    key: str | None = None


_decode_identity = msgspec.json.Decoder(IdentityFields).decode
_split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode

StrictParser = Callable[[], Sequence[Output]]
"""Parses the whole batch with the model; raises InvalidRequest with every error of the batch."""


class Batch(NamedTuple):
    """The outputs of a request body, or of a part of it."""

    outputs: Sequence[IdentityFields | Output]
    """Each output, parsed as far as it has been needed."""
    raw_hashes: Sequence[bytes]
    """The hash of each output's bytes; empty if the bytes are not known."""
    positions: Sequence[int]
    """The position of each output in the request body."""
    parse: Callable[[Sequence[int]], Sequence[Output]]
    """Parses the outputs at these indexes. Raises InvalidRequest with every error of the batch."""

    def parse_all(self) -> Batch:
        """Returns the same batch with every output parsed."""
        outputs = self.parse(range(len(self.outputs)))
        return self._replace(outputs=outputs, parse=_selector(outputs))


class LargeBatch(NamedTuple):
    """A batch that is parsed in another process, because it would take a thread too long."""

    texts: Sequence[bytes]
    """The whole request body, or lines of it."""
    positions: Sequence[int]
    """The position of each line in the request body; empty for a whole body."""
    max_records: int


def is_large(texts: Sequence[bytes]) -> bool:
    """Returns True if parsing these texts would delay other threads noticeably."""
    size = sum(map(len, texts))
    return size > _LARGE_BYTES or (
        size > _LARGE_VALUES and sum(map(json_text.count_at_most, texts)) > _LARGE_VALUES
    )


def from_outputs(outputs: Sequence[Output], positions: Sequence[int] | None = None) -> Batch:
    """Makes a batch of outputs that are already parsed and validated."""
    if positions is None:
        positions = range(len(outputs))
    return Batch(outputs, [b""] * len(outputs), positions, _selector(outputs))


def from_array(text: bytes, max_records: int, parse_strictly: StrictParser) -> Batch:
    """Splits a JSON array into a batch with one output per element."""
    try:
        texts = _split_array(text)
    except _DECODE_ERRORS:
        return from_outputs(parse_strictly())
    if len(texts) > max_records:
        return from_outputs(parse_strictly())
    return from_texts(texts, range(len(texts)), json_text.MAX_DEPTH - 1, parse_strictly)


def from_texts(
    texts: Sequence[bytes | msgspec.Raw],
    positions: Sequence[int],
    max_depth: int,
    parse_strictly: StrictParser,
) -> Batch:
    """Makes a batch with one output per JSON text."""

    def parse(indexes: Sequence[int]) -> Sequence[Output]:
        try:
            selected = [bytes(texts[index]) for index in indexes]
            return [_validate(record) for record in json_text.decode_many(selected, max_depth)]
        except (json_text.InvalidJson, ValidationError):
            return _selector(parse_strictly())(indexes)

    try:
        identities = [_decode_identity(text) for text in texts]
    except _DECODE_ERRORS:
        return from_outputs(parse_strictly(), positions)
    raw_hashes = [sha256(text).digest()[:_RAW_HASH_BYTES] for text in texts]
    return Batch(identities, raw_hashes, positions, parse)


def _selector(outputs: Sequence[Output]) -> Callable[[Sequence[int]], Sequence[Output]]:
    return lambda indexes: [outputs[index] for index in indexes]


def _validate(record: Any) -> Output:
    """Validates a record; the model, which takes twice as long, only sees uncommon ones."""
    if isinstance(record, dict):
        job_id, source_url, data, key, tags, files = map(record.get, Output._fields)
        if (
            isinstance(job_id, str)
            and _is_name(job_id)
            and _is_text(source_url)
            and isinstance(data, dict)
            and (key is None or _is_text(key))
            and (tags is None or isinstance(tags, dict))
            and files is None
            and record.keys() <= _KNOWN_MEMBERS
        ):
            return Output(job_id, source_url, data, key, tags)
    return OutputIn.model_validate(record).checked()


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and "\0" not in value


def _is_name(text: str) -> bool:
    try:
        return bool(_check_name(text))
    except ValueError:
        return False


_check_name = lru_cache(maxsize=1024)(check_name)  # an invalid name raises, so it is not cached
