"""A batch of outputs as a client sends it: split into texts that are parsed only when needed.

Most outputs of a repeated scrape have the same bytes as last time. To recognise such an output, the
members that identify it and a hash of its bytes are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec
from pydantic import ValidationError

from gleanery.service.foundation.errors import MAX_DETAILS, ErrorDetail
from gleanery.service.foundation.field_types import MAX_INT64
from gleanery.service.foundation.values import json_text
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.outputs import elements
from gleanery.service.resources.outputs.elements import IdentityFields, ItemMapping
from gleanery.service.resources.outputs.models import IngestQuery, Output

_RAW_HASH_BYTES = 16
_LARGE_BYTES = 4 * 1024 * 1024
_SHORT_BYTES = 4 * 1024
_LARGE_VALUES = 100_000
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValidationError)

_split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(msgspec.Raw).decode

Text = bytes | msgspec.Raw
StrictParser = Callable[[], Sequence[Output]]
"""Parses the whole batch with the model; raises InvalidRequest with every error of the batch."""


class BatchOptions(NamedTuple):
    """How the elements of a batch are read."""

    mapping: ItemMapping | None = None
    """The mapping of bare items; None if the elements are outputs."""
    skips_invalid: bool = False
    """True if elements that are not valid are skipped. Otherwise they are errors of the batch."""

    @classmethod
    def from_query(cls, query: IngestQuery) -> BatchOptions:
        return cls(ItemMapping.from_query(query), query.on_error == "skip")

    def max_depth(self, max_element_depth: int) -> int:
        """Return the maximum depth of a text. A bare item is a level deeper when it is read."""
        return max_element_depth - (self.mapping is not None)


class SkippedElements(NamedTuple):
    """The elements of a batch that are skipped, because they are not valid."""

    positions: Sequence[int] = ()
    details: Sequence[ErrorDetail] = ()
    """The first errors. Not every skipped element has one."""
    raw_hash: bytes = b""
    """Hash of the texts that were skipped before the batch was compared with the database.

    It includes their positions, because the response has them, too.
    """

    def add(self, positions: Collection[int], details: Sequence[ErrorDetail]) -> SkippedElements:
        """Return these elements and some more."""
        return self._replace(
            positions=[*self.positions, *positions],
            details=[*self.details, *details][:MAX_DETAILS],
        )


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
    skipped: SkippedElements | None = None
    """Elements that are not among the outputs; None if an invalid element is an error.

    A batch that skips elements is parsed completely.
    """
    is_long: bool = True
    """False if the text is so short that a computation delays no other request noticeably."""

    def parse_all(self) -> Batch:
        """Return the same batch with every output parsed."""
        outputs = self.parsed
        return self._replace(outputs=outputs, parse=_selector(outputs))

    @property
    def parsed(self) -> Sequence[Output]:
        """All outputs, parsed."""
        return self.parse(range(len(self.outputs)))

    @property
    def first_position(self) -> int:
        """The position of the first element, which may be a skipped one."""
        skipped = () if self.skipped is None else self.skipped.positions
        return min(*self.positions[:1], *skipped[:1], MAX_INT64)

    def skip(self, positions: Collection[int], details: Sequence[ErrorDetail]) -> Batch:
        """Return the batch without the outputs at these positions, which have these errors."""
        assert self.skipped is not None
        kept = [index for index, at in enumerate(self.positions) if at not in positions]
        outputs = self.parse(kept)
        return Batch(
            outputs,
            [self.raw_hashes[index] for index in kept],
            [self.positions[index] for index in kept],
            _selector(outputs),
            self.skipped.add(positions, details),
        )


class LargeBatch(NamedTuple):
    """A batch that is parsed in another process, because it would take a thread too long."""

    texts: Sequence[bytes]
    """The whole request body, or lines of it."""
    positions: Sequence[int]
    """The position of each line in the request body; empty for a whole body."""
    max_records: int
    options: BatchOptions


def is_large(texts: Sequence[bytes]) -> bool:
    """Return True if parsing these texts would delay other threads noticeably."""
    size = sum(map(len, texts))
    return size > _LARGE_BYTES or (
        size > _LARGE_VALUES and sum(map(json_text.count_at_most, texts)) > _LARGE_VALUES
    )


def from_outputs(outputs: Sequence[Output], positions: Sequence[int] | None = None) -> Batch:
    """Make a batch of outputs that are already parsed and validated."""
    if positions is None:
        positions = range(len(outputs))
    return Batch(outputs, [b""] * len(outputs), positions, _selector(outputs))


def parsed_elsewhere(positions: Sequence[int], skipped: SkippedElements | None) -> Batch:
    """Make a batch whose outputs were parsed in another process, and are not here."""
    return Batch((), (), positions, _selector(()), skipped)


def from_json(
    text: bytes, max_records: int, options: BatchOptions, parse_strictly: StrictParser
) -> Batch:
    """Split a JSON body into a batch with one output per element."""
    texts = split(text)
    if texts is None or len(texts) > max_records:
        return from_outputs(parse_strictly())
    positions = range(len(texts))
    return from_texts(texts, positions, max_element_depth(text), options, parse_strictly)


def split(text: bytes) -> list[msgspec.Raw] | None:
    """Split a JSON array into its elements. An object is one element.

    Return None if the text is not valid JSON, or neither an array nor an object.
    """
    try:
        return [_decode_text(text)] if json_text.is_object(text) else _split_array(text)
    except _DECODE_ERRORS:
        return None


def max_element_depth(text: bytes) -> int:
    """Return the maximum depth of an element, which an array around it reduces."""
    return json_text.MAX_DEPTH - (not json_text.is_object(text))


def from_texts(
    texts: Sequence[Text],
    positions: Sequence[int],
    max_depth: int,
    options: BatchOptions,
    parse_strictly: StrictParser,
) -> Batch:
    """Make a batch with one output per JSON text."""
    mapping, max_depth = options.mapping, options.max_depth(max_depth)
    to_output = elements.to_output if mapping is None else mapping.to_output

    def parse(indexes: Sequence[int]) -> Sequence[Output]:
        try:
            selected = [bytes(texts[index]) for index in indexes]
            return [to_output(record) for record in json_text.decode_many(selected, max_depth)]
        except (json_text.InvalidJson, ValidationError):
            return _selector(parse_strictly())(indexes)

    identify = elements.decode_identity if mapping is None else mapping.identify
    try:
        identities = [identify(text) for text in texts]
    except _DECODE_ERRORS:
        return from_outputs(parse_strictly(), positions)
    is_long = sum(map(len, texts)) > _SHORT_BYTES
    return Batch(identities, raw_hashes(texts, mapping), positions, parse, is_long=is_long)


def raw_hashes(texts: Sequence[Text], mapping: ItemMapping | None) -> list[bytes]:
    """Hashes the bytes of each element."""
    if mapping is None:
        return [sha256(text).digest()[:_RAW_HASH_BYTES] for text in texts]
    prefix = mapping.hash_prefix
    return [sha256(prefix + bytes(text)).digest()[:_RAW_HASH_BYTES] for text in texts]


def without_invalid(
    texts: dict[int, bytes],
    outputs: dict[int, Output],
    details: Sequence[ErrorDetail],
    mapping: ItemMapping | None,
) -> Batch:
    """Make a batch of the valid outputs among some texts, by position; it skips the others."""
    invalid = [position for position in texts if position not in outputs]
    raw_hash = hash_parts(*(part for position in invalid for part in (position, texts[position])))
    return Batch(
        [*outputs.values()],
        raw_hashes([texts[position] for position in outputs], mapping),
        [*outputs],
        _selector([*outputs.values()]),
        SkippedElements(invalid, details[:MAX_DETAILS], raw_hash),
    )


def _selector(outputs: Sequence[Output]) -> Callable[[Sequence[int]], Sequence[Output]]:
    return lambda indexes: [outputs[index] for index in indexes]
