"""An output as it was at a position in the change order."""

from __future__ import annotations

from gleanery.service.foundation.errors import NotFound, VersionExpired
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.history.entries import Version
from gleanery.service.resources.history.reading import ChainEnd, KeptVersion, read_versions
from gleanery.service.storage.database import Database


async def read_item(
    database: Database,
    computations: FairThread,
    group: str,
    identity: bytes,
    position: int,
    now: int,
) -> bytes:
    """Return the item. Raise NotFound if the output did not exist, and VersionExpired."""
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
