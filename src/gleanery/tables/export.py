"""What all formats of an export share: errors, report, choice of fields, pages as JSON text.

``SeenIds`` recognises the outputs that were written before. It takes little memory if their ids
mostly come in increasing order.
"""

from __future__ import annotations

import importlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TypeVar

import msgspec

from gleanery.common.errors import ClientError


class ExportError(ClientError):
    """An export cannot be written; the message says why and what to do."""


class InvalidExport(ExportError):
    """What the caller gave is wrong: the destination, a field or a missing library."""


class ExportFailed(ExportError):
    """The outputs cannot be read, or the destination cannot be written."""


def already_exists(name: str) -> InvalidExport:
    return InvalidExport(
        f"{name} exists already: choose another name, or give overwrite=True to replace it"
    )


def require(module: str, extra: str) -> ModuleType:
    """Import an optional library, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        raise InvalidExport(
            f"This needs the library {library}. Install it: pip install 'gleanery[{extra}]', "
            f"or '.[{extra}]' in a clone"
        ) from None


@dataclass(frozen=True)
class Widening:
    """A change of a column's type, because a value did not fit the type so far."""

    field: str
    """Name of the column."""
    row: int
    """First row, counted from 1, whose value did not fit."""
    count: int
    """Number of values in the file that do not fit the old type."""
    old_type: str
    new_type: str


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote."""

    rows: int = 0
    bytes: int = 0
    """Size of the file."""
    duplicates: int = 0
    """Outputs that came again, because they changed during the export, and were left out."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Type of each column of a table: null, bool, int64, double, string, timestamp or json."""
    widenings: tuple[Widening, ...] = ()
    missing_fields: tuple[str, ...] = ()
    """Chosen keys of ``data`` that no output has, as the caller gave them."""
    cursor: int | None = None
    """Where ``changes`` continues. None if the outputs are not complete, because of a limit."""

    def with_cursor(self, cursor: int | None) -> ExportReport:
        return replace(self, cursor=cursor)


MEMBERS = (
    "source_url",
    "data",
    "id",
    "output_id",
    "root_job_id",
    "create_date",
    "update_date",
    "last_scraped_date",
    "key_hash",
    "value_hash",
    "is_approved",
    "tags",
    "files",
)
"""Members of an output, in the order of the columns."""


@dataclass(frozen=True)
class Field:
    """A member of an output, or a key of its ``data``."""

    member: str
    key: str | None = None
    given: str = field(default="", compare=False)
    """Name that the caller gave."""

    @property
    def column(self) -> str:
        """Name of the column. No two fields have the same."""
        return self.member if self.key is None else f"data_{self.key}"


def read_fields(names: Sequence[str]) -> tuple[Field, ...]:
    """Return the chosen fields, each once.

    A name is a member of an output. Any other name is a key of ``data``, with or without ``data.``
    or, as in the name of its column, ``data_`` before it.
    """
    if not names or not all(names):
        raise InvalidExport("A list of fields needs names, separated by commas")
    return tuple(dict.fromkeys(_read_field(name) for name in names))


def _read_field(name: str) -> Field:
    if name in MEMBERS:
        return Field(name)
    for prefix in ("data.", "data_"):
        if name.startswith(prefix):
            return Field("data", name.removeprefix(prefix), name)
    return Field("data", name, name)


Item = bytes | msgspec.Raw
"""JSON text of one output. A Raw, as the client decodes a page, need not be copied."""

T = TypeVar("T")
_BLOCK_ITEMS = 64


def blocks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield the outputs of a page in blocks of some 64 KB.

    To allocate the memory for a copy of a whole page takes as long as to decode the page.
    """
    for at in range(0, len(items), _BLOCK_ITEMS):
        yield items[at : at + _BLOCK_ITEMS]


def join_lines(items: Sequence[Item]) -> bytes:
    """Return one line per output. The service sends JSON without line breaks."""
    if b"\n" in b"".join(items):  # a search is ten times as fast as counting them
        raise ExportFailed("The service has sent an output with line breaks. Check its version")
    return b"\n".join((*items, b"")) if items else b""


def read_items(decoder: msgspec.json.Decoder[T], items: Sequence[Item]) -> list[T]:
    """Decode each output, or say that the service has sent something else."""
    try:
        return [*map(decoder.decode, items)]
    except msgspec.MsgspecError as error:
        raise ExportFailed(
            f"The service has sent something that is not an output: {error}. "
            "Check its version and the URL"
        ) from None


_BLOCK_IDS = 1024
_SORTED_IDS = 65536  # at once
_SIZES = (("H", 1 << 16), ("I", 1 << 32))


class SeenIds:
    """Ids that were added before.

    Sorted blocks hold the ids as differences from the first one of the block, in 2, 4 or 8 bytes
    each. A block without gaps is a range.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: list[Sequence[int]] = []
        self._last = -1
        self._recent: list[int] = []  # increasing ids after those of the last block
        self._unsorted = array("q")  # ids that belong into blocks, if somebody asks for them

    def add(self, ids: list[int]) -> list[bool] | None:
        """Add ids, and say of each whether it is new. None: all of them are new."""
        self._sort()
        if ids and ids[0] > self._last and _is_increasing(ids):
            self._append(ids)
            return None
        are_new = [False] * len(ids)
        # In increasing order, so that the ids before the first block begin one block, not many.
        for at in sorted(range(len(ids)), key=ids.__getitem__):
            are_new[at] = self._add(ids[at])
        return None if all(are_new) else are_new

    def add_new(self, ids: list[int]) -> None:
        """Add ids that are new for certain. This is fast in any order."""
        if ids and ids[0] > self._last and _is_increasing(ids):
            self._append(ids)
        else:
            self._unsorted.extend(ids)

    def _sort(self) -> None:
        unsorted, self._unsorted = self._unsorted, array("q")
        for at in range(0, len(unsorted), _SORTED_IDS):
            for id_ in sorted(unsorted[at : at + _SORTED_IDS]):
                self._add(id_)

    def _append(self, ids: list[int]) -> None:
        self._last = ids[-1]
        self._recent += ids
        if len(self._recent) >= _BLOCK_IDS:
            self._seal()

    def _seal(self) -> None:
        """Move the recent ids into blocks."""
        recent, self._recent = self._recent, []
        for at in range(0, len(recent), _BLOCK_IDS):
            ids = recent[at : at + _BLOCK_IDS]
            if not self._extend_range(ids):
                self._starts.append(ids[0])
                self._blocks.append(_compact(ids, ids[0]))

    def _extend_range(self, ids: list[int]) -> bool:
        """Make the last block longer, if it has no gaps and the ids follow it without a gap."""
        if not self._blocks or not isinstance(block := self._blocks[-1], range):
            return False
        stop = ids[-1] - self._starts[-1] + 1
        if stop != len(block) + len(ids):
            return False
        self._blocks[-1] = range(stop)
        return True

    def _add(self, id_: int) -> bool:
        if id_ > self._last:
            self._append([id_])
            return True
        if self._recent:
            self._seal()
        at = bisect_right(self._starts, id_) - 1
        if at < 0:
            self._starts.insert(0, id_)
            self._blocks.insert(0, range(1))
            return True
        return self._add_to_block(at, id_ - self._starts[at])

    def _add_to_block(self, at: int, difference: int) -> bool:
        block = self._blocks[at]
        if isinstance(block, range):
            if difference < len(block):
                return False
            return self._add_after_range(at, difference)
        position = bisect_left(block, difference)
        if position < len(block) and block[position] == difference:
            return False
        self._insert(at, position, difference)
        return True

    def _add_after_range(self, at: int, difference: int) -> bool:
        """Add an id that is after the range, and before the next block."""
        block = self._blocks[at]
        if difference == len(block):
            self._blocks[at] = range(difference + 1)
        elif len(block) < _BLOCK_IDS:
            self._blocks[at] = _compact([*block, difference], 0)
        else:
            self._starts.insert(at + 1, self._starts[at] + difference)
            self._blocks.insert(at + 1, range(1))
        return True

    def _insert(self, at: int, position: int, difference: int) -> None:
        block = self._blocks[at]
        assert isinstance(block, array)
        try:
            block.insert(position, difference)
        except OverflowError:
            ids = block.tolist()
            ids.insert(position, difference)
            self._blocks[at] = block = _as_array(ids)
        if len(block) >= 2 * _BLOCK_IDS:
            self._split(at)
        elif block[-1] == len(block) - 1:
            self._blocks[at] = range(len(block))

    def _split(self, at: int) -> None:
        start, ids = self._starts[at], list(self._blocks[at])
        lower, upper = ids[:_BLOCK_IDS], ids[_BLOCK_IDS:]
        self._blocks[at] = _compact(lower, 0)
        self._starts.insert(at + 1, start + upper[0])
        self._blocks.insert(at + 1, _compact(upper, upper[0]))


def _is_increasing(ids: list[int]) -> bool:
    return ids == sorted(ids) and len(set(ids)) == len(ids)


def _compact(ids: list[int], start: int) -> Sequence[int]:
    """Return the differences of sorted ids from the start, as a range if they have no gaps."""
    if ids[-1] - start == len(ids) - 1:
        return range(len(ids))
    return _as_array([id_ - start for id_ in ids])


def _as_array(differences: list[int]) -> array[int]:
    """Choose the smallest size of an element that holds the last and largest difference."""
    for code, limit in _SIZES:
        if differences[-1] < limit:
            return array(code, differences)
    return array("Q", differences)
