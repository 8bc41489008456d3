"""A batch of outputs, from the request body to prepared outputs, without the database.

A body is an array, or NDJSON lines. An object in the place of an array is a batch of one, because
some tools send a request per item. Everything else is the same as for an array of one, such as the
positions in errors.

A batch is split into texts that are parsed only when needed. Most outputs of a repeated scrape have
the same bytes as last time. To recognise such an output, the members that identify it and a hash of
its bytes are enough. See ``ingest`` for what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError

from gleanery.service.api.binding import (
    advice_on_invalid_json,
    check_value_count,
    error_details,
    validate_with_model,
)
from gleanery.service.foundation.errors import (
    MAX_DETAILS,
    ErrorDetail,
    InvalidRequest,
    first_problems,
)
from gleanery.service.foundation.field_types import MAX_INT64
from gleanery.service.foundation.values import json_text
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.fields.shapes import FieldTable
from gleanery.service.resources.outputs.elements import (
    IdentityFields,
    IdentityHasher,
    ItemMapping,
    PreparedOutput,
    Rules,
    UnparsedOutput,
    canonical_output,
    decode_identity,
    prepare_output,
    to_output,
    url_hash,
)
from gleanery.service.resources.outputs.models import IngestQuery, Output, OutputIn
from gleanery.service.storage.idempotency import IdempotentRequest

_RAW_HASH_BYTES = 16
_LARGE_BYTES = 4 * 1024 * 1024
_SHORT_BYTES = 4 * 1024
_LARGE_VALUES = 100_000
# Outputs that are parsed before they are rendered: their values are still in the cache.
_PARSED_CHUNK = 32
_BARE_ITEMS: Any = list[Any]
_ONE_PER_LINE = "; put each output on its own line, and use --data-binary in curl, not -d"
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

    It includes their positions, because the response has them.
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
        return min([*self.positions[:1], *skipped[:1], MAX_INT64])

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
    convert = to_output if mapping is None else mapping.to_output

    def parse(indexes: Sequence[int]) -> Sequence[Output]:
        try:
            selected = [bytes(texts[index]) for index in indexes]
            return [convert(record) for record in json_text.decode_many(selected, max_depth)]
        except (json_text.InvalidJson, ValidationError):
            return _selector(parse_strictly())(indexes)

    identify = decode_identity if mapping is None else mapping.identify
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


# --- binding of a request body ------------------------------------------------------------------


class RefusedBatch(NamedTuple):
    """A batch that is not valid. Its run counts it before the error is reported."""

    error: InvalidRequest


def bind_json(
    text: bytes, max_records: int, max_values: int, query: IngestQuery
) -> Batch | LargeBatch | RefusedBatch:
    """Make a batch of an array or an object. Its outputs are validated later, on demand."""
    try:
        return _bind_json(text, max_records, max_values, BatchOptions.from_query(query))
    except InvalidRequest as error:
        if query.run_id is None:
            raise
        return RefusedBatch(error)


def _bind_json(
    text: bytes, max_records: int, max_values: int, options: BatchOptions
) -> Batch | LargeBatch:
    check_value_count(text, max_values)
    if is_large([text]):
        return LargeBatch([text], [], max_records, options)
    if options.skips_invalid:
        return parse_json(text, max_records, options)

    def parse_strictly() -> Sequence[Output]:
        return parse_json(text, max_records, options).parsed

    return from_json(text, max_records, options, parse_strictly)


def bind_lines(
    lines: dict[int, bytes], max_values: int, options: BatchOptions
) -> Batch | LargeBatch:
    """Make a batch of lines by their position in the body."""
    for position, line in lines.items():
        if len(line) > max_values:
            check_value_count(line, max_values, ("body", str(position)))
    texts, positions = [*lines.values()], [*lines]
    if is_large(texts):
        return LargeBatch(texts, positions, len(texts), options)
    if options.skips_invalid:
        return parse_lines(lines, options)

    def parse_strictly() -> Sequence[Output]:
        return parse_lines(lines, options).parsed

    return from_texts(texts, positions, json_text.MAX_DEPTH, options, parse_strictly)


def parse_json(text: bytes, max_records: int, options: BatchOptions) -> Batch:
    """Parse a whole array or an object. Raises InvalidRequest with the first errors."""
    if options == BatchOptions():
        return from_outputs(parse_outputs(text, max_records))
    texts = dict(enumerate(_split(text, max_records)))
    return _parse_texts(texts, max_element_depth(text), options)


def parse_lines(lines: dict[int, bytes], options: BatchOptions) -> Batch:
    """Parse lines by their position. Raises InvalidRequest with the first errors."""
    return _parse_texts(lines, json_text.MAX_DEPTH, options)


def parse_outputs(text: bytes, max_records: int) -> list[Output]:
    """Parse outputs with the model."""
    bound: list[OutputIn] = validate_with_model(list[OutputIn], text, max_records, is_batch=True)
    return [output.checked() for output in bound]


def _split(text: bytes, max_records: int) -> list[bytes]:
    """Split a body into its elements. Raises InvalidRequest if it is not a batch, or too long."""
    texts: Sequence[Text] | None = split(text)
    if texts is None:
        texts = json_text.split_batch(text)
    if texts is None or len(texts) > max_records:
        records: list[Any] = validate_with_model(_BARE_ITEMS, text, max_records, is_batch=True)
        return [json_text.encode(record) for record in records]
    return [bytes(element) for element in texts]


def _parse_texts(texts: dict[int, bytes], max_depth: int, options: BatchOptions) -> Batch:
    """Parse each text on its own. An invalid one is skipped or is an error, as the options say."""
    mapping, max_depth = options.mapping, options.max_depth(max_depth)
    convert = to_output if mapping is None else mapping.to_output
    outputs: dict[int, Output] = {}
    details: list[ErrorDetail] = []
    for position, text in texts.items():
        try:
            outputs[position] = convert(json_text.decode(text, max_depth))
        except (json_text.InvalidJson, ValidationError) as error:
            if len(details) <= MAX_DETAILS:  # a description takes as long as the validation
                details += _describe(position, text, error)
            elif not options.skips_invalid:
                break
    if options.skips_invalid:
        return without_invalid(texts, outputs, details, mapping)
    if details:
        raise InvalidRequest(*first_problems(details))
    return from_outputs([*outputs.values()], [*texts])


def _describe(
    position: int, text: bytes, error: json_text.InvalidJson | ValidationError
) -> Iterable[ErrorDetail]:
    """Return the errors of one element."""
    loc = ("body", str(position))
    if isinstance(error, ValidationError):
        return error_details(loc, error)
    msg = f"{error}{advice_on_invalid_json(text, _ONE_PER_LINE)}"
    return [ErrorDetail(loc, msg, "json")]


# --- preparation --------------------------------------------------------------------------------


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
        for start in range(0, len(indexes), _PARSED_CHUNK):
            chunk = indexes[start : start + _PARSED_CHUNK]
            for index, output in zip(chunk, self._batch.parse(chunk), strict=True):
                unparsed = self.outputs[index]
                assert isinstance(unparsed, UnparsedOutput)
                fields = self.fields.classify(output.data)
                url = url_hash(output.source_url, self.rules.identity_format)
                self.outputs[index] = prepare_output(
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


def idempotent_request(
    group: str, idempotency_key: str, batch: Batch, run_id: str | None
) -> IdempotentRequest:
    """Hashes the key and the batch, which is parsed completely.

    The batches of an NDJSON body have the same key, so the position is a part of the hash. The
    group's rules are not: they may change between the request and its repetition.
    """
    key_hash = hash_parts("outputs", group, idempotency_key, batch.first_position)
    parts = [*map(canonical_output, batch.parsed)]
    if batch.skipped is not None:
        parts += [b"skip", batch.skipped.raw_hash]
    if run_id is not None:
        parts += [b"run", run_id.encode()]
    return IdempotentRequest(key_hash, hash_parts(*parts))
