"""The export of a group: every output exactly once, as lines, while others write.

An export reads in short steps in the change order. Between two steps it holds no transaction and no
connection. An output that changes meanwhile moves to the end of the order. So the export reads on
after the position where it began, but there it takes only outputs that existed when it began and
that it has not sent. It ends when a step reaches the end of the order. It does end: reading is
faster than writing, and a slow client delays at most one step for each output.

See ``docs/decisions/0096-an-export-reads-in-steps.md``.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from itertools import chain
from typing import NamedTuple

from gleanery.service.foundation.errors import no_group
from gleanery.service.resources.outputs.models import OutputFilters
from gleanery.service.resources.outputs.search import max_steps, position_before, search_for
from gleanery.service.storage import paging
from gleanery.service.storage.database import Database, LineRead, Lines, PageTooLarge

_LAST_SEQ = "SELECT last_seq FROM groups WHERE organization_id = $1 AND name = $2 AND NOT deleted"
_STEP_BYTES = 1024 * 1024
_FIRST_LIMIT, _MAX_LIMIT = 100, 2000  # outputs per step
_STOPPED = -1  # the id in the row where a search with several filters stopped
_LINE_END = b"\n"
_NO_LINES = Lines((), 0, b"")


async def begin(
    database: Database, group: str, filters: OutputFilters, hold: Callable[[int], Awaitable[None]]
) -> Export:
    """Begins an export of the group. Raises NotFound if there is none.

    ``hold`` waits for memory for the next step. Steps of usual outputs need none.
    """
    rows = await database.read(_LAST_SEQ, database.organization_id, group)
    if not rows:
        raise no_group()
    return Export(database, group, filters, rows[0][0], hold)


class Export:
    """One export of a group."""

    def __init__(
        self,
        database: Database,
        group: str,
        filters: OutputFilters,
        last_seq: int,
        hold: Callable[[int], Awaitable[None]],
    ) -> None:
        self.cursor: int = last_seq
        """Position in the change order where the export began."""
        self._database = database
        self._group = group
        self._hold = hold
        self._search, self._filter_values = search_for(filters)
        self._position = position_before(filters)
        self._sent = OutputIds()

    async def lines(self) -> AsyncGenerator[bytes]:
        """Yield lines, several at a time. Hold nothing in the database while it is suspended."""
        limit = _FIRST_LIMIT
        while True:
            step = await self._read_step(limit)
            self._position = step.position
            if step.lines.ids and (text := self._choose_lines(step.lines)):
                yield text
                del text
            if step.is_last:
                return
            size = max(len(step.lines.text), 1)
            del step  # one output can be large, so the next step is not read beside this one
            limit = max(1, min(limit * _STEP_BYTES // size, _MAX_LIMIT))

    def _choose_lines(self, lines: Lines) -> bytes:
        """Return the lines of the outputs that existed at the beginning and are not yet sent."""
        if lines.last_seq <= self.cursor and lines.ids[-1] != _STOPPED:
            # All these outputs existed at the beginning, and none of them was sent before.
            self._sent.add_all(lines.ids)
            return lines.text
        chosen = [
            line
            for id_, line in zip(lines.ids, lines.text.split(_LINE_END), strict=False)
            if id_ > 0 and self._sent.add(id_)
        ]
        return b"".join([line + _LINE_END for line in chosen])

    # --- steps --------------------------------------------------------------------------------

    async def _read_step(self, limit: int) -> _Step:
        await self._hold(0)
        values = (*self._values(limit), self.cursor)
        max_item_bytes = paging.max_item_bytes(2 * _STEP_BYTES, limit)
        read = LineRead(self._search.lines, (*values, max_item_bytes), limit)
        try:
            lines = await self._database.read_lines(read)
        except PageTooLarge:
            return await self._read_large_step(limit)
        if lines.ids and lines.ids[-1] == _STOPPED:
            return _Step(lines, lines.last_seq - 1)
        return _Step(lines, lines.last_seq, is_last=len(lines.ids) < limit)

    async def _read_large_step(self, limit: int) -> _Step:
        """Read the sizes of the outputs, and then as many outputs as fit, but at least one.

        An output that changes between both reads moves to the end of the order.
        """
        values = self._values(limit)
        sql = self._search.sizes.within("", f" LIMIT ${len(values) + 1}")
        rows = await self._database.read_large(sql, *values, limit)
        sizes = [size for _, size in rows if size]  # 0: the search stopped there
        count = paging.count_fitting(sizes, _STEP_BYTES)
        if not count:  # the large outputs have moved
            return _Step(_NO_LINES, self._position)
        until, size = rows[count - 1][0], sum(sizes[:count])
        await self._hold(size if size > 2 * _STEP_BYTES else 0)
        values = (*values, self.cursor, paging.UNLIMITED, count, until)
        number = len(values)
        search = self._search.lines.within(
            "SELECT seq, id, item FROM (", f" LIMIT ${number - 1}) AS part WHERE seq <= ${number}"
        )
        lines = await self._database.read_lines(LineRead(search, values, limit))
        is_stopped = lines.ids and lines.ids[-1] == _STOPPED
        return _Step(lines, lines.last_seq - 1 if is_stopped else until)

    def _values(self, limit: int) -> tuple[int | str | bytes, ...]:
        """Return the values of the parameters that all searches have."""
        values = (self._database.organization_id, self._group, self._position)
        steps = (max_steps(limit),) if self._search.has_steps else ()
        return (*values, *self._filter_values, *steps)


class _Step(NamedTuple):
    """Lines that were read, and the position after them."""

    lines: Lines
    position: int
    is_last: bool = False


# --- outputs that are sent ----------------------------------------------------------------------

_BLOCK_BITS = 16
_BLOCK_IDS = 1 << _BLOCK_BITS
_MAX_LISTED = 256  # ids of a block in a list; with more of them, a bitmap is small enough


class OutputIds:
    """Set of output ids. It needs one bit for each id if they are dense, else at most 32 bytes.

    Each block of 65,536 possible ids is a list of its ids, or a bitmap if they are many.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, array[int] | bytearray] = {}

    def add(self, id_: int) -> bool:
        """Add an id. Return False if the set has it already."""
        number, low = id_ >> _BLOCK_BITS, id_ & (_BLOCK_IDS - 1)
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = array("H")
        if isinstance(block, array):
            if low in block:
                return False
            if len(block) < _MAX_LISTED:
                block.append(low)
                return True
            block = self._to_bitmap(number)
        byte, bit = low >> 3, 1 << (low & 7)
        is_new = not block[byte] & bit
        block[byte] |= bit
        return is_new

    def add_all(self, ids: Sequence[int]) -> None:
        """Add ids that the set does not have. Consecutive ids are added 50 times as fast."""
        lowest, stop = min(ids), max(ids) + 1
        if stop - lowest > len(ids):
            for id_ in ids:
                self.add(id_)
            return
        while lowest < stop:
            low = lowest & (_BLOCK_IDS - 1)
            count = min(stop - lowest, _BLOCK_IDS - low)
            self._add_range(lowest >> _BLOCK_BITS, low, count)
            lowest += count

    def _add_range(self, number: int, low: int, count: int) -> None:
        """Add consecutive ids to one block."""
        block = self._blocks.setdefault(number, array("H"))
        if isinstance(block, array) and len(block) + count <= _MAX_LISTED:
            block.extend(range(low, low + count))
            return
        bitmap, stop = self._to_bitmap(number), low + count
        first, last = (low + 7) >> 3, stop >> 3  # the bytes of which all bits are set
        if first < last:
            bitmap[first:last] = b"\xff" * (last - first)
        for bit in chain(range(low, min(first << 3, stop)), range(max(last << 3, low), stop)):
            bitmap[bit >> 3] |= 1 << (bit & 7)

    def _to_bitmap(self, number: int) -> bytearray:
        """Return the bitmap of a block, which may have been a list or missing."""
        block = self._blocks.get(number, array("H"))
        if isinstance(block, bytearray):
            return block
        bitmap = self._blocks[number] = bytearray(_BLOCK_IDS >> 3)
        for low in block:
            bitmap[low >> 3] |= 1 << (low & 7)
        return bitmap
