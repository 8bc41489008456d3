"""Connections to a SQLite file, their settings, and the lock on the data folder."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import apsw

from gleanery.errors import SettingsError

RESTORE_FOLDER = "restoring"
"""Folder inside the data folder. It exists from the start to the end of a restore."""
_PAGE_BYTES = 16 * 1024  # a page holds a dozen items of 1 KB without overflow pages
_CACHE_KIB = 16 * 1024
_MAX_MAPPED_BYTES = 2**40  # larger than any file, so that all of it is mapped
_BUSY_TIMEOUT_MS = 10_000  # maximum wait for the writer of another process


def connect(path: Path) -> apsw.Connection:
    """Opens a connection for the writer, to a file that exists."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
    # Without this SQLite plans a statement with a bound LIMIT again for each value, which takes
    # half of its time.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.pragma("page_size", _PAGE_BYTES)
    _enable_wal(connection)
    connection.pragma("synchronous", "FULL")
    connection.pragma("foreign_keys", True)
    # Without this, REPLACE deletes rows without calling the triggers that protect the audit log.
    connection.pragma("recursive_triggers", True)
    connection.pragma("cache_size", -_CACHE_KIB)
    return connection


def connect_reader(path: Path) -> apsw.Connection:
    """Opens a connection for reads. It maps the file: copies of pages take 10 % of a request."""
    connection = connect(path)
    connection.pragma("mmap_size", _MAX_MAPPED_BYTES)
    return connection


def _enable_wal(connection: apsw.Connection) -> None:
    """Enables the write-ahead log.

    SQLite does not wait for another process that does the same on a new file, so this function
    tries again.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def require_file(path: Path) -> None:
    """Raises SettingsError if there is no database at this path."""
    if not path.exists():
        raise SettingsError(
            f"There is no database in {path.parent.absolute()}: give the data folder of the "
            "service with --data or GLEANERY_DATA"
        )


def reject_unfinished_restore(path: Path) -> None:
    """Raises SettingsError if a restore has not yet created the database at this path.

    A new database in its place would look as if the restored data was lost.
    """
    staging = path.parent / RESTORE_FOLDER
    if staging.exists() and not path.exists():
        raise SettingsError(
            f"A restore into {path.parent.absolute()} was interrupted: run gleanery restore again. "
            f"To start with an empty database instead, remove {staging.absolute()}"
        )


def lock_folder(folder: Path, exclusive: bool = False) -> int:
    """Locks a data folder: shared for a service or command, exclusive for a restore.

    Returns a file descriptor. Closing it, or the end of the process, releases the lock.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        holder = "A service or another command" if exclusive else "A restore"
        raise SettingsError(
            f"{holder} is using {folder.absolute()}: wait until it ends, or stop it"
        ) from None
    return descriptor
