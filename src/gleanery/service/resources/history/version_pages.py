"""Pages of an output's versions, newest first, each with the fields that it changed."""

from __future__ import annotations

from typing import NamedTuple

from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.history import field_changes
from gleanery.service.resources.history.entries import Version
from gleanery.service.resources.history.models import DeletionOut, FieldChange, VersionOut
from gleanery.service.resources.history.reading import ChainEnd, KeptVersion, read_versions
from gleanery.service.storage.database import Database
from gleanery.service.storage.paging import ListPage, PageLimits

_REASON = """
SELECT reason FROM tombstones WHERE organization_id = $1 AND group_id = (
    SELECT id FROM groups WHERE organization_id = $1 AND name = $2) AND seq = $3
"""
_MAX_COMPARED_BYTES = 64 * 1024 * 1024  # of the versions of a page


async def read_page(
    database: Database,
    computations: FairThread,
    group: str,
    identity: bytes,
    limits: PageLimits,
    now: int,
) -> ListPage:
    """Read the versions before the cursor. Raise NotFound if the output has no version."""
    page = _Page(limits)
    await read_versions(database, computations, group, identity, now, page)
    elements, next_cursor = page.result()
    records = [await _render(database, group, element) for element in elements]
    return ListPage(records, next_cursor)


async def _render(database: Database, group: str, element: _Element) -> bytes:
    """Return the text of an element. The tombstone of a deletion knows its reason."""
    if element.deletion is None:
        return element.text
    rows = await database.read(_REASON, database.organization_id, group, element.cursor)
    for [reason] in rows:
        if reason is not None:
            return json_text.encode({**element.deletion, "reason": reason})
    return element.text


class _Element(NamedTuple):
    """A version or a deletion as JSON text."""

    cursor: int
    text: bytes
    deletion: DeletionOut | None = None


class _Page:
    """Collects elements, until there is one more than the page has space for."""

    def __init__(self, limits: PageLimits) -> None:
        self._limits = limits
        self._elements: list[_Element] = []
        self._size = 0
        self._compared_bytes = 0
        self._newer: KeptVersion | None = None

    @property
    def is_done(self) -> bool:
        count, limits = len(self._elements), self._limits
        is_large = self._size > limits.max_bytes or self._compared_bytes > _MAX_COMPARED_BYTES
        return count > (limits.limit or count) or (count > 1 and is_large)

    def visit(self, kept: KeptVersion) -> None:
        if self._newer is not None:
            self._add(self._newer, kept, kept.version)
        self._newer = kept

    def finish(self, end: ChainEnd) -> None:
        assert self._newer is not None
        self._add(self._newer, None, end.expired)
        if end.approved is not None:
            self._add(end.approved, None, None)

    def result(self) -> tuple[list[_Element], int | None]:
        """Return the elements of the page, and the cursor of the next one."""
        elements = self._elements[:-1] if self.is_done else self._elements
        return elements, elements[-1].cursor if self.is_done else None

    def _add(
        self, kept: KeptVersion, older: KeptVersion | None, next_older: Version | None
    ) -> None:
        """Add a version and, before it, the deletion with which it ended."""
        version = kept.version
        if version.is_deleted:
            deletion = _deletion(version)
            self._append(_Element(version.replaced_seq, json_text.encode(deletion), deletion))
        if version.seq < self._limits.cursor and not self.is_done:
            self._compared_bytes += len(kept.text)
            shown = _version(kept, older, kept.is_first(next_older))
            self._append(_Element(version.seq, json_text.encode(shown)))

    def _append(self, element: _Element) -> None:
        if element.cursor < self._limits.cursor:
            self._elements.append(element)
            self._size += len(element.text) + 1


def _deletion(version: Version) -> DeletionOut:
    date = timestamps.render_microseconds(version.replaced_seq)
    return DeletionOut(change="delete", cursor=version.replaced_seq, version_date=date)


def _version(kept: KeptVersion, older: KeptVersion | None, is_first: bool) -> VersionOut:
    version = kept.version
    fields: list[FieldChange] | None = [] if is_first else None
    if older is not None and not is_first:
        fields = field_changes.compare(older.item, kept.item)
    replaced = timestamps.render_microseconds(version.replaced_seq) if kept.is_replaced else None
    return VersionOut(
        change="create" if is_first else "update",
        cursor=version.seq,
        version_date=timestamps.render_microseconds(version.seq),
        replaced_date=replaced,
        key_hash=kept.item["key_hash"],
        value_hash=kept.value_hash,
        is_approved=version.approved,
        fields=fields,
    )
