"""Changed fields: the differences between two versions, and those of each update in a change feed.

A path without a prefix is inside ``data``. A path with the prefix ``$.`` names another member.

An update is compared with the version that its client has, which is the one at the cursor. The
histories of neighbouring updates are read together, and the comparisons are bounded in bytes. See
``docs/explanation/change-feed.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from gleanery.service.foundation.errors import NotFound
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import json_text
from gleanery.service.resources.files.references import with_markers
from gleanery.service.resources.history.entries import Version
from gleanery.service.resources.history.models import FieldChange
from gleanery.service.resources.history.reading import (
    NOT_REPLACED,
    Chain,
    ChainEnd,
    KeptVersion,
    Limits,
    VersionSearch,
    keep_whole,
    read_limits,
    read_versions,
)
from gleanery.service.storage.database import Database, Row

MAX_FIELDS = 100
"""The most changed fields of two versions.

If an object or array has more, it is one changed field as a whole.
"""
MAX_PATH_LENGTH = 1000
"""The longest path. If a member has a longer one, the object around it is the changed field."""
Item = dict[str, Any]
_ABSENT: Any = object()
_SCALARS = (str, int, float, bool, type(None))


def compare(before: Item, after: Item) -> list[FieldChange]:
    """Return the changed fields of two versions, without the approval."""
    data, tags = _compare_member("data", before, after), _compare_member("tags", before, after)
    rest = _compare_member("source_url", before, after) + _compare_files(before, after)
    if len(data) + len(tags) + len(rest) > MAX_FIELDS:
        data, tags = (
            [_change(f"$.{name}", before[name], after[name])] if changes else []
            for name, changes in (("data", data), ("tags", tags))
        )
    return data + tags + rest


def compare_approval(before: bool, after: bool) -> list[FieldChange]:
    """Return the change of the approval, if there is one."""
    return _differences("$.is_approved", before, after)


def _compare_member(name: str, before: Item, after: Item) -> list[FieldChange]:
    path = "" if name == "data" else f"$.{name}"
    return _differences(path, before[name], after[name])


def _compare_files(before: Item, after: Item) -> list[FieldChange]:
    """Compare the files without their dates: a file elsewhere has the date of each version."""
    old, new = (
        [{**file, "create_date": None} for file in item["files"]] for item in (before, after)
    )
    if not _differences("", old, new):
        return []
    return [_change("$.files", with_markers(before["files"]), with_markers(after["files"]))]


def _differences(path: str, before: Any, after: Any) -> list[FieldChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        inner = _members(before, after)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        inner = _elements(before, after)
    else:
        return [] if _is_equal(before, after) else [_change(path, before, after)]
    found: list[FieldChange] = []
    for part, old, new in inner:
        inner_path = _join(path, part)
        changes = _differences(inner_path or "", old, new)
        found += changes
        if len(found) > MAX_FIELDS or (changes and inner_path is None):
            return [_change(path or "$.data", before, after)]
    return found


_Part = str | int
"""The name of a member, or the index of an element."""


def _members(before: Item, after: Item) -> Iterator[tuple[_Part, Any, Any]]:
    for name in before | after:
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if _may_differ(old, new):
            yield name, old, new


def _elements(before: list[Any], after: list[Any]) -> Iterator[tuple[_Part, Any, Any]]:
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if _may_differ(old, new):
            yield index, old, new


def _may_differ(before: Any, after: Any) -> bool:
    """Return False for most values that are equal, which then need no path."""
    return type(before) is not type(after) or type(before) not in _SCALARS or before != after


def _join(path: str, part: _Part) -> str | None:
    """Return the path of a member or an element; None if it is too long."""
    if isinstance(part, int):
        return json_text.path_of_element(path, part)
    if len(path) + len(part) > MAX_PATH_LENGTH:
        return None
    return json_text.path_of_member(path, part)


def _is_equal(before: Any, after: Any) -> bool:
    """Compare two values that are not both objects, and not both arrays of one length."""
    if isinstance(before, str) or isinstance(after, str):
        return bool(before == after)
    if before is _ABSENT or after is _ABSENT:
        return False
    if isinstance(before, dict | list) or isinstance(after, dict | list):
        return False
    return json_text.canonical(before) == json_text.canonical(after)


def _change(path: str, before: Any, after: Any) -> FieldChange:
    if before is _ABSENT:
        return FieldChange(path=path, kind="added", before=None, after=after)
    if after is _ABSENT:
        return FieldChange(path=path, kind="removed", before=before, after=None)
    return FieldChange(path=path, kind="changed", before=before, after=after)


# --- the updates of a change feed ---------------------------------------------------------------

_STORED = """
SELECT outputs.seq, outputs.version_seq, output_history.seq,
    CASE WHEN octet_length(output_history.versions) <= $5 THEN output_history.versions END
FROM outputs LEFT JOIN output_history
    ON output_history.organization_id = outputs.organization_id
    AND output_history.identity = outputs.identity
WHERE outputs.organization_id = $1 AND outputs.group_id = $2
    AND outputs.seq > $3 AND outputs.seq <= $4
"""
_STORED_OF_ONE = """
SELECT outputs.seq, outputs.version_seq, output_history.seq,
    CASE WHEN octet_length(output_history.versions) <= $3 THEN output_history.versions END
FROM outputs LEFT JOIN output_history
    ON output_history.organization_id = outputs.organization_id
    AND output_history.identity = outputs.identity
    AND output_history.seq = (
        SELECT max(seq) FROM output_history WHERE organization_id = $1 AND identity = $2)
WHERE outputs.organization_id = $1 AND outputs.identity = $2
"""
_UPDATES_PER_READ = 50
_VERSIONS_PER_READ = 1000  # of all outputs
_MAX_SEGMENT_BYTES = 8 * 1024  # a larger one is read later
_MAX_WORK = 64 * 1024 * 1024
_STEP_WORK = 1024 * 1024
_MAX_SEQ = 2**63 - 1
_UNKNOWN = b"null"


class Update(NamedTuple):
    """An update in the change feed."""

    seq: int
    created_seq: int
    item: bytes
    identity: bytes

    @property
    def approved(self) -> bool:
        return self.item.endswith(b"true}")


@dataclass(slots=True)
class FieldReader:
    """Reads the changed fields of updates for one client."""

    database: Database
    computations: FairThread
    group: str
    group_id: int
    position: int
    """Position after which the client reads the feed."""
    max_bytes: int
    """Maximum for all texts of fields. A longer text is unknown to the client."""
    now: int
    work: int = 0
    """Work of the comparisons until now. If it is too much, the other fields are unknown."""

    async def read(self, updates: Sequence[Update]) -> Mapping[int, bytes]:
        """Return the fields of each update as JSON text, by its sequence number."""
        limits = await read_limits(self.database, self.group_id, self.now)
        step = min(_UPDATES_PER_READ, max(1, _VERSIONS_PER_READ // max(1, limits.keep_versions)))
        texts: dict[int, bytes] = {}
        for start in range(0, len(updates), step):
            texts |= await self._read_some(updates[start : start + step], limits)
        return texts

    async def read_newest(self, updates: Sequence[Update]) -> Mapping[int, bytes]:
        """Do the same for updates that are not neighbours in the change order.

        Each is compared with the version before, so the position must be 0.
        """
        limits = await read_limits(self.database, self.group_id, self.now)
        stored: dict[int, _Stored] = {}
        for update in updates:
            await asyncio.sleep(0)  # other requests run between two statements
            stored |= await self._read_newest_segment(update.identity)
        return await self._compare_all(updates, stored, limits)

    async def _read_some(self, updates: Sequence[Update], limits: Limits) -> Mapping[int, bytes]:
        stored = await self._read_stored(updates[0].seq - 1, updates[-1].seq)
        return await self._compare_all(updates, stored, limits)

    async def _compare_all(
        self, updates: Sequence[Update], stored: Mapping[int, _Stored], limits: Limits
    ) -> Mapping[int, bytes]:
        remaining = [*reversed(updates)]
        texts: dict[int, bytes] = {}
        while remaining:
            if _is_small(stored.get(remaining[-1].seq)):
                step = partial(self._compare_some, remaining, stored, limits)
                texts |= await self.computations.run(self.database.organization_id, step)
            else:
                update = remaining.pop()
                texts[update.seq] = await self._compare_alone(update)
        return texts

    async def _read_stored(self, after: int, until: int) -> Mapping[int, _Stored]:
        """Read the histories of the outputs in a range, by the outputs' sequence numbers."""
        key = (self.database.organization_id, self.group_id)
        rows = await self.database.read_large(_STORED, *key, after, until, _MAX_SEGMENT_BYTES)
        return _by_seq(rows)

    async def _read_newest_segment(self, identity: bytes) -> Mapping[int, _Stored]:
        key = (self.database.organization_id, identity)
        return _by_seq(await self.database.read(_STORED_OF_ONE, *key, _MAX_SEGMENT_BYTES))

    def _compare_some(
        self, remaining: list[Update], stored: Mapping[int, _Stored], limits: Limits
    ) -> Mapping[int, bytes]:
        """Compare the last of the remaining updates, and remove them.

        Stop at one that is compared alone, and after a step, so that other requests compute.
        """
        texts: dict[int, bytes] = {}
        end = self.work + _STEP_WORK
        while remaining and self.work < end:
            found = stored.get(remaining[-1].seq)
            if found is None or not _is_small(found):
                break
            update = remaining.pop()
            comparison = _Comparison(update, self.position)
            if self.work < _MAX_WORK:
                _compare_stored(comparison, found, limits)
            texts[update.seq] = self._encode(comparison)
        return texts

    async def _compare_alone(self, update: Update) -> bytes:
        """Compare an output with a large segment, or one that has changed since it was read."""
        comparison = _Comparison(update, self.position)
        if self.work < _MAX_WORK:
            key = (self.group, update.identity)
            with suppress(NotFound):  # nothing is known about it
                await read_versions(self.database, self.computations, *key, self.now, comparison)
        return await self.computations.run(self.database.organization_id, self._encode, comparison)

    def _encode(self, comparison: _Comparison) -> bytes:
        """Return the fields as text. After that, the versions need no memory."""
        self.work += comparison.work
        text = json_text.encode(comparison.fields())
        if len(text) > self.max_bytes:
            text = _UNKNOWN
        self.max_bytes -= len(text)
        return text


class _Stored(NamedTuple):
    """The present version of an output, and its segments, newest first."""

    version_seq: int
    segments: list[bytes | None]
    """None instead of a large one."""


def _by_seq(rows: Sequence[Row]) -> Mapping[int, _Stored]:
    """Return the histories by the sequence numbers of their outputs."""
    stored: dict[int, _Stored] = {}
    newest_first = sorted(rows, key=lambda row: row[2] or 0, reverse=True)
    for seq, version_seq, segment_seq, segment in newest_first:
        one = stored.setdefault(seq, _Stored(version_seq, []))
        if segment_seq is not None:
            one.segments.append(segment)
    return stored


def _is_small(stored: _Stored | None) -> bool:
    """Return True if the output has not changed since its update was read, and is all there."""
    return stored is not None and None not in stored.segments


def _compare_stored(comparison: _Comparison, stored: _Stored, limits: Limits) -> None:
    """Compare an output that has not changed since its update was read."""
    update = comparison.update
    version = Version(stored.version_seq, update.seq, NOT_REPLACED, 0, update.approved)
    present = keep_whole(version, update.item, update.created_seq)
    chain = Chain(present, limits)
    comparison.visit(present)
    chain.restore((segment for segment in stored.segments if segment is not None), comparison)
    if not comparison.is_done:
        comparison.finish(ChainEnd(chain.expired, None))


class _Comparison:
    """Compares an update with an earlier version."""

    def __init__(self, update: Update, position: int) -> None:
        self.update = update
        self.is_done = False
        self._restored_bytes = 0
        self._own: KeptVersion | None = None
        self._earlier: KeptVersion | None = None
        self._position = position
        self._search = VersionSearch(position) if update.created_seq <= position else None

    def visit(self, kept: KeptVersion) -> None:
        self._restored_bytes += len(kept.text)
        if self._own is not None:
            self._visit_earlier(kept)
        elif kept.version.seq <= self.update.seq:  # else it is newer than the update
            last = kept.version._replace(last_seq=self.update.seq, approved=self.update.approved)
            self._own = replace(kept, version=last)
            self._visit_own(self._own)

    def _visit_own(self, own: KeptVersion) -> None:
        if self._search is not None:
            self._visit_earlier(own)

    def _visit_earlier(self, kept: KeptVersion) -> None:
        if self._search is None:
            # The version before a deletion is not the one before.
            self._earlier = self._own if kept.version.is_deleted else kept
            self.is_done = True
            return
        self._search.visit(kept)
        self._earlier, self.is_done = self._search.found, self._search.is_done

    def finish(self, end: ChainEnd) -> None:
        self.is_done = True
        if self._own is None:
            return
        if self._search is not None:
            self._search.finish(end)
            self._earlier = self._search.found
        elif self._own.is_first(end.expired):
            self._earlier = self._own

    @property
    def work(self) -> int:
        """The bytes that are compared. To restore a byte takes a sixteenth of the time."""
        own, earlier = self._own, self._earlier
        compared = 0 if own is None or earlier is None else len(own.text) + len(earlier.text)
        return compared + self._restored_bytes // 16

    def fields(self) -> list[FieldChange] | None:
        """Return the changed fields; None if the earlier version is not kept."""
        own, earlier = self._own, self._earlier
        if own is None or earlier is None:
            return None
        was_approved = earlier.approved_at(self._approval_position(own, earlier))
        changes = [] if earlier is own else compare(earlier.item, own.item)
        return changes + compare_approval(was_approved, self.update.approved)

    def _approval_position(self, own: KeptVersion, earlier: KeptVersion) -> int:
        if self._search is not None:
            return self._position
        return own.version.seq if earlier is own else _MAX_SEQ
