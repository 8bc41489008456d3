"""Reading the history: the present version of one output, and the earlier ones that are kept.

Theory of operation
    A version begins when a new value is stored. It ends when another one replaces it, or when the
    output is deleted. The present version is the row in ``outputs``. Each earlier one is an entry
    in a segment, which is a row of ``output_history`` (see ``entries`` and ``storing``).

    - An entry is a delta against the next newer version. So a chain is restored from the present
      version backwards, in steps of about a megabyte, and only as far as a request needs.
    - The last version before a deletion is stored whole, not as a delta. A chain without a present
      version begins there, and the history continues across deletions.
    - Each version covers the positions from ``seq`` (inclusive) to ``replaced_seq`` (exclusive).
      Versions do not overlap.
    - The limits of the group apply when a version is read: more versions can be stored than are
      shown. The version before the oldest shown one is read as well, to compare the two.
    - Others can write during the read. That changes no version that is older than the first one
      that was read. If a deleted output is stored again during the read, the read restarts.
    - The last approved version of an output can be older than what the group keeps. It is read
      from the approved view.

    ::

        version_pages, field_changes, read_item    visitors: each says when it is done
          └─ read_versions
              └─ _read_chain
                  ├─ _Source                       reads the present version and the segments
                  ├─ Chain.restore_some            restores versions, in a thread
                  │   └─ Visitor.visit             once per version, newest first
                  └─ Visitor.finish                if the chain ends first

See ``docs/explanation/history.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

from gleanery.service.foundation.errors import NotFound, VersionExpired, no_output
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.files.references import decode_item
from gleanery.service.resources.history import entries
from gleanery.service.resources.history.entries import CorruptHistory, Entry, Version
from gleanery.service.storage import metadata, paging
from gleanery.service.storage.database import Database
from gleanery.service.storage.group_lock import (
    DEFAULT_KEEP_DAYS,
    DEFAULT_KEEP_VERSIONS,
    require_group,
)

_LIMITS = "SELECT keep_versions, keep_days FROM groups WHERE organization_id = $1 AND id = $2"
# The plus sign prevents planners from scanning the whole group to find one identity in it.
_PRESENT = """
SELECT created_seq, version_seq, seq, last_scraped_at, approved,
    CASE WHEN octet_length(item) <= $4 THEN item END
FROM outputs WHERE organization_id = $1 AND identity = $2 AND +group_id = $3
"""
_SEGMENTS = """
SELECT seq, CASE WHEN octet_length(versions) <= $6 THEN versions END FROM output_history
WHERE organization_id = $1 AND identity = $2 AND +group_id = $3 AND seq < $4
ORDER BY seq DESC LIMIT $5
"""
_APPROVED_VERSION = f"""
SELECT version_seq, seq, item, {metadata.RESTORE_TIME} FROM approved_versions
WHERE organization_id = $1 AND identity = $2 AND +group_id = $3 AND version_seq < $4
"""
_DAY = 86_400 * timestamps.SECOND
_SMALL_BYTES = 64 * 1024
_SEGMENTS_PER_READ = 8
_STEP_BYTES = 1024 * 1024  # of the restored versions in one step
_MAX_SEQ = 2**63 - 1
_ATTEMPTS = 3
NOT_REPLACED = 0
"""Stands for the position at which the present version was replaced."""
_log = logging.getLogger("gleanery")


# --- versions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeptVersion:
    """A version and its text, which lacks the end of an item; see ``entries``."""

    version: Version
    text: bytes
    entry: Entry
    created_seq: int | None
    """Position at which the output was created; None if it was deleted after this version."""

    @property
    def is_replaced(self) -> bool:
        return self.version.replaced_seq != NOT_REPLACED

    @cached_property
    def item(self) -> dict[str, Any]:
        """The parsed item, without the members that change without a new version."""
        return decode_item(self.text + b"}")

    @property
    def value_hash(self) -> str:
        stored: str | None = self.item.get("value_hash")
        return stored or json_text.canonical_hash(self.item["data"]).hex()

    def is_first(self, older: Version | None) -> bool:
        """Return True if the output was created with this version.

        ``older`` is the next older version, also of an output that was deleted since then.
        """
        if self.created_seq is not None:
            return self.version.seq == self.created_seq
        if older is not None:
            return older.is_deleted
        date: str = self.item["create_date"]
        return date == timestamps.render_microseconds(self.version.seq)

    def approved_at(self, position: int) -> bool:
        """Return the approval at a position.

        Only the last change of the approval is known. Before it, the approval was the opposite.
        """
        return self._version_at(position).approved

    def render(self, position: int) -> bytes:
        """Return the item as it was at a position."""
        return self.entry._replace(version=self._version_at(position)).render(self.text)

    def _version_at(self, position: int) -> Version:
        version = self.version
        if version.seq == version.last_seq or position >= version.last_seq:
            return version
        return version._replace(last_seq=version.seq, approved=not version.approved)


def keep_whole(version: Version, item: bytes, created_seq: int | None) -> KeptVersion:
    """Return a version whose whole item is stored."""
    text, has_hash_in_text = entries.split(item, version.approved)
    return KeptVersion(version, text, Entry(version, has_hash_in_text, b""), created_seq)


class Limits(NamedTuple):
    """The earlier versions of an output that a group keeps."""

    keep_versions: int
    keep_days: int
    now: int

    def allow(self, version: Version, newer_count: int) -> bool:
        """Return True for a version after this number of newer earlier versions."""
        oldest = self.now - self.keep_days * _DAY
        return newer_count < self.keep_versions and version.replaced_seq >= oldest


class ChainEnd(NamedTuple):
    """What is known about the versions after the last one of a chain."""

    expired: Version | None
    """The next older version, which is not kept."""
    approved: KeptVersion | None
    """The last approved version, if it is older than the kept versions."""


class Visitor(Protocol):
    """Takes the versions of an output, newest first."""

    @property
    def is_done(self) -> bool:
        """True if no more versions are needed."""

    def visit(self, kept: KeptVersion) -> None:
        """Take the next version."""

    def finish(self, end: ChainEnd) -> None:
        """Take the end of the chain, unless the visitor is done before."""


def decode_segments(segments: Iterable[bytes]) -> Iterator[Entry]:
    """Yield the entries of segments. Raise CorruptHistory at a damaged one."""
    for segment in segments:
        yield from entries.decode(segment)


class OutputReturned(Exception):
    """A deleted output was stored again during the read, or its group is being deleted."""


class Chain:
    """Restores the versions of one output, newest first."""

    def __init__(self, present: KeptVersion | None, limits: Limits) -> None:
        self._newer = present
        self._newest_seq = _MAX_SEQ if present is None else present.version.seq
        self._limits = limits
        self._earlier_count = 0
        self.has_ended = False
        """True if no older version is kept."""
        self.expired: Version | None = None
        """The next older version, which is not kept."""

    @property
    def oldest_seq(self) -> int:
        """Position at which the last restored version began."""
        return _MAX_SEQ if self._newer is None else self._newer.version.seq

    def restore(self, segments: Iterable[bytes], visitor: Visitor) -> None:
        """Pass the kept versions of segments to the visitor, until it is done."""
        stored = decode_segments(segments)
        while self.restore_some(stored, visitor):
            pass

    def restore_some(self, stored: Iterator[Entry], visitor: Visitor) -> bool:
        """Pass the next kept versions to the visitor, which have about a megabyte together.

        Return True if there can be more of them: other requests compute between two steps.
        """
        restored = 0
        try:
            for entry in stored:
                if self.has_ended or visitor.is_done:
                    return False
                self._add(entry, visitor)
                restored += 0 if self._newer is None else len(self._newer.text)
                if restored > _STEP_BYTES:
                    return True
        except CorruptHistory:
            _log.exception("the earlier versions of an output are damaged")
            self.has_ended = True
        return False

    def _add(self, entry: Entry, visitor: Visitor) -> None:
        version = entry.version
        if version.seq >= self._newest_seq:
            return  # it was replaced after the present version was read
        if self._is_left_over(version):
            self.has_ended = True
            return
        if not self._limits.allow(version, self._earlier_count):
            self.has_ended, self.expired = True, version
            return
        self._newer = self._restore(entry)
        self._earlier_count += 1
        visitor.visit(self._newer)

    def _is_left_over(self, version: Version) -> bool:
        """Return True for a version that was deleted with its whole group, which leaves no entry.

        A bulk job deletes it later.
        """
        created_seq = None if self._newer is None else self._newer.created_seq
        return created_seq is not None and version.seq < created_seq and not version.is_deleted

    def _restore(self, entry: Entry) -> KeptVersion:
        """Restores the next older version. The last version before a deletion stands alone."""
        newer = self._newer
        if entry.version.is_deleted:
            return KeptVersion(entry.version, entry.restore(None), entry, None)
        if newer is None:
            raise OutputReturned
        return KeptVersion(entry.version, entry.restore(newer.text), entry, newer.created_seq)


# --- reading ------------------------------------------------------------------------------------


async def read_versions(
    database: Database,
    computations: FairThread,
    group: str,
    identity: bytes,
    now: int,
    visitor: Visitor,
) -> None:
    """Pass the versions of an output to the visitor, until it is done.

    Raise NotFound if there is no version.
    """
    group_id = await require_group(database, group)
    limits = await read_limits(database, group_id, now)
    source = _Source(database, identity, group_id)
    for _ in range(_ATTEMPTS):
        with suppress(OutputReturned):
            return await _read_chain(source, computations, limits, visitor)
    raise no_output()  # its group is being deleted, and its versions after the outputs


async def _read_chain(
    source: _Source, computations: FairThread, limits: Limits, visitor: Visitor
) -> None:
    organization_id = source.database.organization_id
    present = await source.read_present()
    chain = Chain(present, limits)
    if present is not None:
        await computations.run(organization_id, visitor.visit, present)
    before = _MAX_SEQ
    while not visitor.is_done and not chain.has_ended:
        segments, before = await source.read_segments(before)
        if not segments:
            break
        stored = decode_segments(segments)
        while await computations.run(organization_id, chain.restore_some, stored, visitor):
            pass
    if chain.oldest_seq == _MAX_SEQ:
        raise no_output()
    if not visitor.is_done:
        approved = None if present is None else await source.read_approved(chain.oldest_seq)
        await computations.run(organization_id, _finish, visitor, chain.expired, present, approved)


def _finish(
    visitor: Visitor,
    expired: Version | None,
    present: KeptVersion | None,
    approved: _ApprovedVersion | None,
) -> None:
    """Pass the end of the chain to the visitor."""
    kept = None
    if approved is not None:
        # A restore has moved it, so its approval has no position.
        is_moved = approved.version_seq < int(approved.restored or 0)
        last_seq = approved.version_seq if is_moved else approved.approval_seq
        scraped = timestamps.parse(decode_item(approved.item)["last_scraped_date"])
        version = Version(approved.version_seq, last_seq, NOT_REPLACED, scraped, approved=True)
        kept = keep_whole(version, approved.item, None if present is None else present.created_seq)
    visitor.finish(ChainEnd(expired, kept))


class _ApprovedVersion(NamedTuple):
    """The last approved version of an output that has a newer value."""

    version_seq: int
    approval_seq: int
    item: bytes
    restored: str | None
    """Time of the last restore of the service; None without one."""


class _Source(NamedTuple):
    """The stored versions of one output."""

    database: Database
    identity: bytes
    group_id: int

    async def read_present(self) -> KeptVersion | None:
        """Read the present version; return None if the output is deleted."""
        rows = await self.database.read(_PRESENT, *self._key, _SMALL_BYTES)
        if rows and rows[0][-1] is None:
            rows = await self.database.read_large(_PRESENT, *self._key, paging.UNLIMITED)
        if not rows:
            return None
        [[created_seq, seq, last_seq, last_scraped_at, approved, item]] = rows
        version = Version(seq, last_seq, NOT_REPLACED, last_scraped_at, bool(approved))
        return keep_whole(version, item, created_seq)

    async def read_segments(self, before: int) -> tuple[list[bytes], int]:
        """Read the newest segments before a position. Return the position of the last one."""
        rows = await self.database.read(
            _SEGMENTS, *self._key, before, _SEGMENTS_PER_READ, _SMALL_BYTES
        )
        if rows and rows[0][1] is None:
            rows = await self.database.read_large(
                _SEGMENTS, *self._key, before, 1, paging.UNLIMITED
            )
        small = [*takewhile(lambda row: row[1] is not None, rows)]
        return [segment for _, segment in small], small[-1][0] if small else before

    async def read_approved(self, before: int) -> _ApprovedVersion | None:
        """Read the last approved version of an output, if it began before a position."""
        rows = await self.database.read_large(_APPROVED_VERSION, *self._key, before)
        return _ApprovedVersion(*rows[0]) if rows else None

    @property
    def _key(self) -> tuple[int, bytes, int]:
        return self.database.organization_id, self.identity, self.group_id


async def read_limits(database: Database, group_id: int, now: int) -> Limits:
    """Read which versions a group keeps."""
    [[keep_versions, keep_days]] = await database.read(_LIMITS, database.organization_id, group_id)
    return Limits(
        DEFAULT_KEEP_VERSIONS if keep_versions is None else keep_versions,
        DEFAULT_KEEP_DAYS if keep_days is None else keep_days,
        now,
    )


# --- the version at a position ------------------------------------------------------------------


async def read_item(
    database: Database,
    computations: FairThread,
    group: str,
    identity: bytes,
    position: int,
    now: int,
) -> bytes:
    """Return the item of an output as it was at a position.

    Raise NotFound if the output did not exist, and VersionExpired.
    """
    search = VersionSearch(position)
    await read_versions(database, computations, group, identity, now, search)
    if search.found is None:
        raise VersionExpired if search.is_expired else _did_not_exist()
    return await computations.run(database.organization_id, search.found.render, position)


def _did_not_exist() -> NotFound:
    return NotFound(("query", "at"), "The output did not exist at this time")


class VersionSearch:
    """Searches the version that was the present one at a position.

    After a restore there can be positions between two versions. They belong to the newer one.
    """

    def __init__(self, position: int) -> None:
        self._position = position
        self._newer: KeptVersion | None = None
        self.found: KeptVersion | None = None
        """The version; None if the output did not exist, or if the version is not kept."""
        self.is_expired = False
        """True if the version is not kept."""
        self.is_done = False

    def visit(self, kept: KeptVersion) -> None:
        version = kept.version
        if kept.is_replaced and self._position >= version.replaced_seq:
            self.is_done = True
            self.found = None if version.is_deleted else self._newer
        elif self._position >= version.seq:
            self.is_done, self.found = True, kept
        self._newer = kept

    def finish(self, end: ChainEnd) -> None:
        oldest, expired, approved = self._newer, end.expired, end.approved
        assert oldest is not None
        if approved is not None and (
            approved.version.seq <= self._position <= approved.version.last_seq
        ):
            self.found = approved
        elif expired is not None and self._position >= expired.replaced_seq:
            self.found = None if expired.is_deleted else oldest
        else:
            self.is_expired = self._position >= _creation(oldest, expired)


def _creation(oldest: KeptVersion, expired: Version | None) -> int:
    """Return the position at which the output was created, or the start of that second."""
    if oldest.created_seq is not None:
        return oldest.created_seq
    if oldest.is_first(expired):
        return oldest.version.seq
    return timestamps.parse(oldest.item["create_date"])
