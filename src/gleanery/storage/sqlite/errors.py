"""The errors of SQLite: which of them are temporary, and what the operator can do."""

from __future__ import annotations

import errno
from pathlib import Path

import apsw

from gleanery.errors import DISK_FULL, Unavailable

TEMPORARY_ERRORS = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.IOError,
    apsw.CantOpenError,
)
"""Errors that can pass without a change of the program, for instance with space on the disk."""
DAMAGED_ERRORS = (apsw.CorruptError, apsw.NotADBError)
"""Errors of a file that SQLite cannot read."""
RESTORE_BACKUP = (
    "keep the damaged file, and restore a backup; see docs/operations/back-up-and-restore.md"
)


def unavailable(error: Exception) -> Unavailable:
    """Return a new error for the client, with the reason for the log if the cause is known."""
    made = Unavailable(reason=_reason(error))
    made.__cause__ = error
    return made


def is_disk_full(error: Exception) -> bool:
    """Return True also if SQLite has no space for the file with its locks."""
    code = getattr(error, "extendedresult", None)
    return isinstance(error, apsw.FullError) or code == apsw.SQLITE_IOERR_SHMSIZE


def _reason(error: Exception) -> str | None:
    if is_disk_full(error):
        return DISK_FULL
    if isinstance(error, DAMAGED_ERRORS):
        return f"the database is damaged: {RESTORE_BACKUP}"
    return f"SQLite: {error}" if isinstance(error, TEMPORARY_ERRORS) else None


def explain(error: Exception, path: Path) -> str:
    """Says why the database cannot be opened, and what to do."""
    if isinstance(error, DAMAGED_ERRORS):
        return f"The database {path} is damaged: {RESTORE_BACKUP}"
    if is_disk_full(error) or getattr(error, "errno", None) == errno.ENOSPC:
        return f"Cannot use the database {path}: {DISK_FULL}"
    reason = getattr(error, "strerror", None) or error
    return (
        f"Cannot use the database {path}: {reason}; "
        "choose another folder with --data, or change its owner"
    )
