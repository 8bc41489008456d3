"""A copy of the embedded database as it is at one moment: for backups, outside of any service."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from gleanery.observability.progress import Begin
from gleanery.storage.sqlite.writer import dialect
from gleanery.storage.tenancy import ANY_TENANT

_BLOBS = "SELECT organization_id, checksum, key FROM blobs ORDER BY key"
_KEY = "SELECT value FROM metadata WHERE name = 'secret key'"
_FORGET_UNNAMED = "DELETE FROM files WHERE organization_id = $1 AND checksum = $2 AND named = 0"
_LEFT = "SELECT count(*) FROM files WHERE organization_id = $1 AND checksum = $2"
_COUNT = "UPDATE blobs SET files = $3 WHERE organization_id = $1 AND checksum = $2"
_FORGET_BLOB = "DELETE FROM blobs WHERE organization_id = $1 AND checksum = $2"
_PAGES_AT_ONCE = 256
_BUSY_MS = 10_000


class NamedBlob(NamedTuple):
    """A blob that the database names, and the checksum that its bytes must have."""

    organization_id: int
    checksum: bytes
    key: str


def take(source: Path, to: Path, begin: Begin) -> None:
    """Copies what is committed now, page by page.

    Writers go on: all that they notice is a log that can't be shortened meanwhile.
    """
    with (
        closing(apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)) as reader,
        closing(apsw.Connection(str(to))) as copy,
    ):
        reader.set_busy_timeout(_BUSY_MS)  # of a service that starts or ends just now
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # from here on, no change
        copy.pragma("synchronous", "OFF")
        tell = begin("Copying the database", reader.pragma("page_count"))
        with copy.backup("main", reader, "main") as pending:
            while not pending.step(_PAGES_AT_ONCE):
                tell(_PAGES_AT_ONCE)
        reader.execute("COMMIT")
        copy.pragma("journal_mode", "delete")


class Snapshot:
    """A copied database that nobody serves."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)

    def close(self) -> None:
        """All of it is in the one file then."""
        self._connection.pragma("journal_mode", "delete")
        self._connection.close()

    def fault(self) -> str | None:
        """What is wrong with it, if anything."""
        told = self._connection.execute("PRAGMA integrity_check(1)").get
        return None if told == "ok" else str(told)

    def key(self) -> str:
        """The fingerprint of the key that encrypts."""
        return str(self._connection.execute(_KEY).get or "")

    def blobs(self) -> list[NamedBlob]:
        rows: list[Any] = self._connection.execute(_BLOBS).fetchall()
        return [NamedBlob(*row) for row in rows]

    def forget_if_unnamed(self, blob: NamedBlob) -> bool:
        """Forgets a blob, unless outputs name files that have it; tells whether it did."""
        of_blob = (blob.organization_id, blob.checksum)
        self._run(_FORGET_UNNAMED, of_blob)
        left = self._run(_LEFT, of_blob).get
        if left:
            self._run(_COUNT, (*of_blob, left))
        else:
            self._run(_FORGET_BLOB, of_blob)
        return not left

    def _run(self, sql: str, values: tuple[Any, ...]) -> apsw.Cursor:
        """One statement on the rows of one organization."""
        return self._connection.execute(dialect(sql, ANY_TENANT), values)
