"""Connections to a SQLite file: the file, the lock on the data folder, the dialect, and errors.

The files must stay where they are. SQLite goes on with deleted and moved files, so ``OpenFiles``
compares them with their paths. An empty database is never created in place of a lost one.

The shared SQL is translated to SQLite's dialect after the check for a tenant filter.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path

import apsw

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.errors import DISK_FULL, Unavailable
from gleanery.service.storage import tenancy
from gleanery.service.storage.database import Statement

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
RESTORE_FOLDER = "restoring"
"""Folder inside the data folder. It exists from the start to the end of a restore."""
_PAGE_BYTES = 16 * 1024  # a page holds a dozen items of 1 KB without overflow pages
_CACHE_KIB = 16 * 1024
_MAX_MAPPED_BYTES = 2**40  # larger than any file, so that all of it is mapped
_BUSY_TIMEOUT_MS = 10_000  # maximum wait for the writer of another process
INCREMENTAL = 2
"""Value of PRAGMA auto_vacuum: free pages are given back on request."""
Traces = Callable[[], Iterable[Path]]
"""Returns paths that exist only where there was a database."""
_PUT_BACK = "put the database back, or restore a backup; see docs/operations/back-up-and-restore.md"
_MOVED = "The database was moved, replaced or deleted: the log of the service says what to do"


# --- errors --------------------------------------------------------------------------------------


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


# --- connections ---------------------------------------------------------------------------------


def connect(path: Path) -> apsw.Connection:
    """Open a connection for the writer, to a file that exists."""
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
    connection.pragma("schema_version")  # opens the other files of the database
    return connection


def connect_reader(path: Path) -> apsw.Connection:
    """Open a connection for reads. It maps the file: copies of pages take 10 % of a request."""
    connection = connect(path)
    connection.pragma("mmap_size", _MAX_MAPPED_BYTES)
    return connection


def _enable_wal(connection: apsw.Connection) -> None:
    """Enable the write-ahead log.

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


# --- files ---------------------------------------------------------------------------------------


class OpenFiles:
    """The files of an open database: the file itself, the write-ahead log and its index.

    SQLite opens them once. If they are deleted or moved, it goes on writing into files that nobody
    will find, and another process creates new ones. SQLite itself replaces no file that is open.
    """

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        """Take the connection's files, which SQLite has opened without symbolic links."""
        self._database, self._log = os.path.abspath(path), connection.filename_wal
        paths = (self._database, self._log, f"{connection.filename}-shm")
        self._identities = {path: _identity(path) for path in paths}

    def problem(self) -> Unavailable | None:
        """Return what happened, and what to do; None if every file is in its place."""
        for path, identity in self._identities.items():
            if _identity(path) != identity:
                return Unavailable(
                    _MOVED,
                    f"{path} was moved, replaced or deleted while the service was using it: put it "
                    "back, or restart the service to use what is there now",
                )
        return None

    def check(self) -> None:
        """Raise Unavailable unless every file is in its place."""
        if (problem := self.problem()) is not None:
            raise problem

    def database_bytes(self) -> int:
        return _size(self._database)

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log."""
        return _size(self._log)

    def is_only_log_missing(self) -> bool:
        """Return True if the write-ahead log is gone, and no process can have created another."""
        found = {path: _identity(path) for path in self._identities}
        lost = [path for path in found if found[path] != self._identities[path]]
        return self._log in lost and not any(found[path] for path in lost)


def _identity(path: str) -> tuple[int, int] | None:
    """Return what tells the file from others; None if there is none, or nobody can see it."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _size(path: str) -> int:
    """Return the bytes of the file; 0 if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def require_file(path: Path) -> None:
    """Raise SettingsError if there is no database at this path."""
    folder = path.parent.absolute()
    if not path.exists():
        raise SettingsError(
            f"There is no database in {folder}: give the data folder of the service with --data or "
            "GLEANERY_DATA"
        )
    if not path.stat().st_size:
        raise SettingsError(f"The database {path.absolute()} is empty: {_PUT_BACK}")


def create_file(path: Path, traces: Traces | None) -> None:
    """Create an empty database, unless there is one.

    Raise SettingsError if there was one: the file is empty, its write-ahead log is left, or there
    is one of the ``traces``. With None it does not matter.

    The file gets its name when it has its first page. So an empty file is never one that another
    process is about to fill.
    """
    if _size(str(path)):
        return
    if traces is not None:
        _reject_lost_file(path, traces())
    if path.exists():
        _initialize(path)
        return
    temporary = path.with_name(f"creating-{secrets.token_hex(8)}")
    _create_empty(temporary)
    try:
        _initialize(temporary)
        with suppress(FileExistsError):  # another process was faster
            _give_name(temporary, path)
    finally:
        temporary.unlink()


def _create_empty(path: Path) -> None:
    """Create a file. SQLite gives its other files the same permissions."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _give_name(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # the file system has no links
        _create_empty(path)
        _initialize(path)


def _reject_lost_file(path: Path, traces: Iterable[Path]) -> None:
    log = path.with_name(f"{path.name}-wal")
    trace = next((trace for trace in (path, log, *traces) if trace.exists()), None)
    if trace is None or _size(str(path)):  # or another process has just created it
        return
    problem = f"There is no database in {path.parent.absolute()}, but {trace.absolute()} is left"
    if trace == path:
        problem = f"The database {path.absolute()} is empty"
    raise SettingsError(f"{problem}: {_PUT_BACK}. To start with an empty database, give --create")


def _initialize(path: Path) -> None:
    """Write the first page. Its settings hold for the life of the file.

    With this mode of vacuum the file can shrink. SQLite then keeps the parent of every page, which
    takes one page in 3,000.
    """
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        connection.pragma("page_size", _PAGE_BYTES)
        connection.pragma("auto_vacuum", INCREMENTAL)
        _enable_wal(connection)


# --- the data folder -----------------------------------------------------------------------------


def reject_unfinished_restore(path: Path) -> None:
    """Raise SettingsError if a restore has not yet created the database at this path.

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


def to_sqlite(sql: Statement, organization_id: int) -> str:
    """Translate a statement: ``$1`` becomes ``?1``, and the type BYTEA becomes BLOB.

    Raise ``MissingTenantFilter`` for a statement that could touch another tenant's rows.
    """
    # All tenants share one cache entry.
    return _to_sqlite(sql, min(organization_id, tenancy.ANY_TENANT))


@lru_cache(maxsize=1024)
def _to_sqlite(sql: Statement, tenant: int) -> str:
    text = sql if isinstance(sql, str) else sql.sqlite
    tenancy.check(text, tenant)
    return re.sub(r"\$(\d+)", r"?\1", text.replace("BYTEA", "BLOB"))


def for_key_array(sql: Statement, key_parameter: int, organization_id: int) -> str:
    """Translate a statement with one key for an array of keys.

    ``key_parameter`` is the number of the key's parameter. One run per key would take twice as
    long.
    """
    return _for_key_array(sql, key_parameter, min(organization_id, tenancy.ANY_TENANT))


@lru_cache(maxsize=128)
def _for_key_array(sql: Statement, key_parameter: int, tenant: int) -> str:
    statement = _to_sqlite(sql, tenant)
    return re.sub(rf"= \?{key_parameter}\b", f"IN carray(?{key_parameter})", statement)


@lru_cache(maxsize=128)
def join_items(search: str, limit_parameter: int) -> str:
    """Wrap the search for a page in a statement that joins the items.

    ``limit_parameter`` is the number of the limit's parameter; the next one is the separator.
    """
    return f"""
SELECT count(*), max(seq), CAST(group_concat(item, ${limit_parameter + 1}) AS BLOB)
FROM ({search} LIMIT ${limit_parameter})
"""


@lru_cache(maxsize=128)
def join_lines(search: str, limit_parameter: int) -> str:
    """Wrap the search of an export in a statement that joins the ids and the lines.

    ``limit_parameter`` is the number of the limit's parameter.
    """
    return f"""
SELECT max(seq), group_concat(id), CAST(group_concat(item, char(10)) AS BLOB)
FROM ({search} LIMIT ${limit_parameter})
"""
