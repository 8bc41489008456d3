"""Binding of batches of outputs: from JSON or from NDJSON lines to outputs, or their errors.

A JSON body is an array. An object instead is a batch of one, because some tools send a request per
item. Everything else is the same as for an array of one, such as the positions in errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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
from gleanery.service.foundation.values import json_text
from gleanery.service.resources.outputs import batches, elements
from gleanery.service.resources.outputs.batches import Batch, BatchOptions, LargeBatch
from gleanery.service.resources.outputs.models import IngestQuery, Output, OutputIn

_BARE_ITEMS: Any = list[Any]
_ONE_PER_LINE = "; put each output on its own line, and use --data-binary in curl, not -d"


def bind_json(
    text: bytes, max_records: int, max_values: int, query: IngestQuery
) -> Batch | LargeBatch:
    """Make a batch of an array or an object. Its outputs are validated later, on demand."""
    options = BatchOptions.from_query(query)
    check_value_count(text, max_values)
    if batches.is_large([text]):
        return LargeBatch([text], [], max_records, options)
    if options.skips_invalid:
        return parse_json(text, max_records, options)

    def parse_strictly() -> Sequence[Output]:
        return parse_json(text, max_records, options).parsed

    return batches.from_json(text, max_records, options, parse_strictly)


def bind_lines(
    lines: dict[int, bytes], max_values: int, options: BatchOptions
) -> Batch | LargeBatch:
    """Make a batch of lines by their position in the body."""
    for position, line in lines.items():
        if len(line) > max_values:
            check_value_count(line, max_values, ("body", str(position)))
    texts, positions = [*lines.values()], [*lines]
    if batches.is_large(texts):
        return LargeBatch(texts, positions, len(texts), options)
    if options.skips_invalid:
        return parse_lines(lines, options)

    def parse_strictly() -> Sequence[Output]:
        return parse_lines(lines, options).parsed

    return batches.from_texts(texts, positions, json_text.MAX_DEPTH, options, parse_strictly)


def parse_json(text: bytes, max_records: int, options: BatchOptions) -> Batch:
    """Parse a whole array or an object. Raises InvalidRequest with the first errors."""
    if options == BatchOptions():
        return batches.from_outputs(parse_outputs(text, max_records))
    texts = dict(enumerate(_split(text, max_records)))
    return _parse_texts(texts, batches.max_element_depth(text), options)


def parse_lines(lines: dict[int, bytes], options: BatchOptions) -> Batch:
    """Parse lines by their position. Raises InvalidRequest with the first errors."""
    return _parse_texts(lines, json_text.MAX_DEPTH, options)


def parse_outputs(text: bytes, max_records: int) -> list[Output]:
    """Parse outputs with the model."""
    bound: list[OutputIn] = validate_with_model(list[OutputIn], text, max_records, is_batch=True)
    return [output.checked() for output in bound]


def _split(text: bytes, max_records: int) -> list[bytes]:
    """Split a body into its elements. Raises InvalidRequest if it is no batch, or too long."""
    texts: Sequence[batches.Text] | None = batches.split(text)
    if texts is None:
        texts = json_text.split_batch(text)
    if texts is None or len(texts) > max_records:
        records: list[Any] = validate_with_model(_BARE_ITEMS, text, max_records, is_batch=True)
        return [json_text.encode(record) for record in records]
    return [bytes(element) for element in texts]


def _parse_texts(texts: dict[int, bytes], max_depth: int, options: BatchOptions) -> Batch:
    """Parse each text on its own. An invalid one is skipped or is an error, as the options say."""
    mapping, max_depth = options.mapping, options.max_depth(max_depth)
    to_output = elements.to_output if mapping is None else mapping.to_output
    outputs: dict[int, Output] = {}
    details: list[ErrorDetail] = []
    for position, text in texts.items():
        try:
            outputs[position] = to_output(json_text.decode(text, max_depth))
        except (json_text.InvalidJson, ValidationError) as error:
            if len(details) <= MAX_DETAILS:  # a description takes as long as the validation
                details += _describe(position, text, error)
            elif not options.skips_invalid:
                break
    if options.skips_invalid:
        return batches.without_invalid(texts, outputs, details, mapping)
    if details:
        raise InvalidRequest(*first_problems(details))
    return batches.from_outputs([*outputs.values()], [*texts])


def _describe(
    position: int, text: bytes, error: json_text.InvalidJson | ValidationError
) -> Iterable[ErrorDetail]:
    """Return the errors of one element."""
    loc = ("body", str(position))
    if isinstance(error, ValidationError):
        return error_details(loc, error)
    msg = f"{error}{advice_on_invalid_json(text, _ONE_PER_LINE)}"
    return [ErrorDetail(loc, msg, "json")]
