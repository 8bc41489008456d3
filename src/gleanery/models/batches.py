"""A batch of outputs as it was sent: cut into its texts, each of which is read only if need be.

What is sent again and again is mostly what it was last time, byte for byte. To know that, it is
enough to know which output it is, and to hash its bytes.
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

_MARK_BYTES = 16
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Head(msgspec.Struct, gc=False):
    """What tells which output it is, if the group's rules don't look into its data."""

    job_id: str
    source_url: str
    key: str | None = None


_head = msgspec.json.Decoder(Head).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode

InFull = Callable[[], Sequence[Output]]
"""Reads a whole batch in the strict way; raises InvalidRequest with every fault that it has."""


class Batch(NamedTuple):
    """Outputs as a client has sent them."""

    heads: Sequence[Head | Output]
    marks: Sequence[bytes]
    """A hash of the bytes of each; empty where there were none."""
    places: Sequence[int]
    """Where each stands in what the client sent."""
    read: Callable[[Sequence[int]], Sequence[Output]]
    """What those of these numbers say. Raises InvalidRequest with every fault of the batch."""

    def read_whole(self) -> Batch:
        """The same, and nothing is left to read."""
        outputs = self.read(range(len(self.heads)))
        return self._replace(heads=outputs, read=_chosen(outputs))


def of_outputs(outputs: Sequence[Output], places: Sequence[int] | None = None) -> Batch:
    """A batch of outputs that have been read and checked."""
    if places is None:
        places = range(len(outputs))
    return Batch(outputs, [b""] * len(outputs), places, _chosen(outputs))


def of_array(text: bytes, most: int, in_full: InFull) -> Batch:
    """The elements of a JSON array."""
    try:
        texts = _elements(text)
    except _UNREADABLE:
        return of_outputs(in_full())
    if len(texts) > most:
        return of_outputs(in_full())
    return of_texts(texts, range(len(texts)), json_text.DEEPEST - 1, in_full)


def of_texts(
    texts: Sequence[bytes | msgspec.Raw], places: Sequence[int], deepest: int, in_full: InFull
) -> Batch:
    """One output each; none may be nested deeper."""

    def read(numbers: Sequence[int]) -> Sequence[Output]:
        try:
            wanted = [bytes(texts[number]) for number in numbers]
            return [_output(record) for record in json_text.decode_each(wanted, deepest)]
        except (json_text.BadJson, ValidationError):
            return _chosen(in_full())(numbers)

    try:
        heads = [_head(text) for text in texts]
    except _UNREADABLE:
        return of_outputs(in_full(), places)
    marks = [sha256(text).digest()[:_MARK_BYTES] for text in texts]
    return Batch(heads, marks, places, read)


def _chosen(outputs: Sequence[Output]) -> Callable[[Sequence[int]], Sequence[Output]]:
    return lambda numbers: [outputs[number] for number in numbers]


def _output(record: Any) -> Output:
    """The common form is seen at a glance; what is not of it, the model looks at."""
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
        ):
            return Output(job_id, source_url, data, key, tags)
    return OutputIn.model_validate(record).checked()


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and "\0" not in value


def _is_name(text: str) -> bool:
    try:
        return bool(_checked_name(text))
    except ValueError:
        return False


_checked_name = lru_cache(maxsize=1024)(check_name)  # a bad one, of whatever length, is not kept
