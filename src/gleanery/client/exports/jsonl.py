"""JSON lines: the bytes of each output as the service gave them, or the chosen fields of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import msgspec

from gleanery.client.exports.destinations import Destination
from gleanery.client.exports.fields import Field
from gleanery.client.exports.pages import Item, blocks, join_lines, read_items
from gleanery.client.exports.report import ExportReport
from gleanery.client.exports.seen_ids import SeenIds


class _Identified(msgspec.Struct, gc=False):
    id: int


class JsonLines:
    """Writer of JSON lines."""

    row_type = None  # it writes the JSON text

    def __init__(self, destination: Destination, fields: Sequence[Field] | None) -> None:
        self._destination = destination
        self._selection = Selection(fields) if fields else None
        self._seen = SeenIds()
        self._seen_bytes = 0  # of the file; the ids of the lines after them are not known yet
        self._ids = msgspec.json.Decoder(_Identified)
        self._can_read_back = destination.is_readable and not fields

    def write(self, items: Sequence[Item], are_new: bool) -> int:
        """Write the outputs that were not written before, and return their number."""
        is_unread = are_new and self._can_read_back
        if not is_unread:
            items = self._select_new(items)
        for block in blocks(items):
            self._destination.write(
                self._selection.apply(block) if self._selection else join_lines(block)
            )
        if not is_unread:
            self._seen_bytes = self._destination.bytes
        return len(items)

    def _select_new(self, items: Sequence[Item]) -> Sequence[Item]:
        self._read_back()
        new = self._seen.add([item.id for item in read_items(self._ids, items)])
        return items if new is None else [*compress(items, new)]

    def _read_back(self) -> None:
        """Read the ids of the lines that were written without a look at them."""
        if self._seen_bytes < self._destination.bytes:
            for lines in self._destination.read_back(self._seen_bytes):
                items = lines.removesuffix(b"\n").split(b"\n")
                self._seen.add([item.id for item in read_items(self._ids, items)])

    def write_rows(self, rows: list[Any]) -> None:
        raise NotImplementedError

    def finish(self, metadata: dict[str, Any], on_rows: Callable[[int], None]) -> ExportReport:
        missing = self._selection.missing() if self._selection else ()
        return ExportReport(missing_fields=missing)

    def close(self) -> None:
        pass


class Selection:
    """The chosen fields of each line, in the order of the choice, with their exact text."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._members = [*dict.fromkeys(field.member for field in fields)]
        whole_data = Field("data") in fields
        self._keys = {field.key for field in fields if field.key is not None and not whole_data}
        self._missing = {field for field in fields if field.key is not None}
        self._decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._encoder = msgspec.json.Encoder()

    def apply(self, items: Sequence[Item]) -> bytes:
        """Return the lines of the outputs."""
        chosen = [self._select(item) for item in read_items(self._decoder, items)]
        return self._encoder.encode_lines(chosen)

    def _select(self, item: dict[str, msgspec.Raw]) -> dict[str, Any]:
        chosen: dict[str, Any] = {name: item[name] for name in self._members if name in item}
        if self._missing or self._keys:
            data = self._decoder.decode(item.get("data", b"{}"))
            self._missing = {field for field in self._missing if field.key not in data}
            if self._keys:
                chosen["data"] = {key: text for key, text in data.items() if key in self._keys}
        return chosen

    def missing(self) -> tuple[str, ...]:
        """Return the keys that no output has had so far."""
        return tuple(sorted(field.given for field in self._missing))
