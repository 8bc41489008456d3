"""Space of a SQLite file: deleted data leaves free pages, which are given back to the disk.

A file that this program creates can shrink in steps while it is used (``auto_vacuum``). An older
file has to be rewritten once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.observability.progress import StartProgress
from gleanery.service.storage.sqlite.connections import INCREMENTAL, connect, explain, lock_folder

PAGES_PER_STEP = 64
"""Pages that one transaction gives back. It takes some milliseconds."""
LARGE_LOG_BYTES = 64 * 1024**2
"""Size of a write-ahead log after a long read. Usually it has a quarter of that."""
_MIN_RESERVE = 64  # pages
_RESERVE_SHARE = 16  # of the file: pages that the next writes use
_COPY = "compacting"
_PAGES_PER_COPY_STEP = 256
_STEPS_PER_REPORT = 100_000  # of SQLite's virtual machine


class PageCounts(NamedTuple):
    """Pages of a file."""

    total: int
    free: int
    can_shrink: bool
    page_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.total * self.page_bytes

    @property
    def used_bytes(self) -> int:
        return (self.total - self.free) * self.page_bytes

    @property
    def to_release(self) -> int:
        """Free pages, except for a reserve that the next writes will use."""
        reserve = max(_MIN_RESERVE, self.total // _RESERVE_SHARE)
        return max(0, self.free - reserve) if self.can_shrink else 0


def count_pages(connection: apsw.Connection) -> PageCounts:
    names = ("page_count", "freelist_count", "auto_vacuum", "page_size")
    total, free, mode, page_bytes = map(connection.pragma, names)
    return PageCounts(total, free, mode == INCREMENTAL, page_bytes)


def release_pages(connection: apsw.Connection) -> None:
    """Give some free pages back, in one transaction."""
    connection.execute(f"PRAGMA incremental_vacuum({PAGES_PER_STEP})").fetchall()


def empty_log(connection: apsw.Connection) -> None:
    """Copy the write-ahead log into the database, and empty its file if nobody uses it.

    Never waits for others: the next call tries again.
    """
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # others can write
    with _no_wait(connection):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@contextmanager
def _no_wait(connection: apsw.Connection) -> Any:
    milliseconds = connection.pragma("busy_timeout")
    connection.set_busy_timeout(0)
    try:
        yield
    finally:
        connection.set_busy_timeout(milliseconds)


def can_shrink(path: Path) -> bool:
    """Return True if the file can give pages back while it is used."""
    try:
        with closing(connect(path)) as connection:
            return count_pages(connection).can_shrink
    except apsw.Error as error:
        raise SettingsError(explain(error, path.absolute())) from None


def rewrite(path: Path, progress: StartProgress) -> None:
    """Rewrites a file that nobody else uses, without free space. Afterwards it can shrink.

    A compact copy replaces the content in one transaction, so an interruption changes nothing.
    VACUUM does the same, but puts its copy into a temporary folder, which can be smaller.
    """
    descriptor = lock_folder(path.parent, exclusive=True)
    copy = path.with_name(_COPY)
    try:
        copy.unlink(missing_ok=True)  # leftover of a process that was killed
        os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(connect(path)) as connection:
            _check_free_space(path.parent, connection)
            _write_copy(connection, copy, progress)
            _replace_content(connection, copy, progress)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except (OSError, apsw.Error) as error:
        raise SettingsError(explain(error, path.absolute())) from None
    finally:
        copy.unlink(missing_ok=True)
        os.close(descriptor)


def _check_free_space(folder: Path, connection: apsw.Connection) -> None:
    """Raise SettingsError unless there is space for the copy and for the log of the transaction.

    The log is empty before, and its frames are a little longer than pages.
    """
    needed = round(2.1 * count_pages(connection).used_bytes)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SettingsError(
            f"Compacting needs {megabytes(needed)} in {folder.absolute()}, and {megabytes(free)} "
            "are free: free some space, or move the folder to a larger disk"
        )


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _write_copy(connection: apsw.Connection, copy: Path, progress: StartProgress) -> None:
    pages = count_pages(connection)
    advance = progress("Copying the data", pages.total - pages.free)
    reported = 0

    def report() -> bool:
        nonlocal reported
        written = copy.stat().st_size // pages.page_bytes
        advance(written - reported)
        reported = written
        return False  # SQLite goes on

    connection.pragma("auto_vacuum", INCREMENTAL)  # of the copy
    connection.set_progress_handler(report, _STEPS_PER_REPORT)
    connection.execute("VACUUM INTO ?", (str(copy),))
    connection.set_progress_handler(None)
    report()


def _replace_content(connection: apsw.Connection, copy: Path, progress: StartProgress) -> None:
    with (
        closing(apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)) as source,
        connection.backup("main", source, "main") as backup,
    ):
        advance: Callable[[int], object] = progress(
            "Replacing the database", source.pragma("page_count")
        )
        while not backup.step(_PAGES_PER_COPY_STEP):
            advance(_PAGES_PER_COPY_STEP)
