"""The embedded engine: one SQLite file, read in the event loop, written by one thread.

Reads never wait for writes (WAL).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import apsw

from gleanery.errors import SettingsError, Unavailable
from gleanery.storage import migrations, tenancy
from gleanery.storage.database import (
    BETWEEN_ITEMS,
    Database,
    Page,
    PageRead,
    PageReader,
    Row,
    Transaction,
)
from gleanery.storage.notifications import Watch, Watches
from gleanery.storage.sqlite.writer import BUSY, Request, Writer, dialect

T = TypeVar("T")

_PAGE_BYTES = 16 * 1024  # an item of 1 KB: a dozen to the page, no overflow chains
_CACHE_KIB = 16 * 1024
_MAPPED_BYTES = 2**40  # of the file; more than it ever has
_BUSY_MS = 10_000  # how long another process's writer may keep ours waiting
_LOOK_SECONDS = 0.03  # how often a watcher looks whether something was committed

_GROUP_CLOCK = "SELECT clock, deleted FROM groups WHERE organization_id = $1 AND name = $2"


@lru_cache(maxsize=128)
def _joined(found: str, limit: int) -> str:
    return f"""
SELECT count(*), max(seq), CAST(group_concat(item, ${limit + 1}) AS BLOB)
FROM ({found} LIMIT ${limit})
"""


def _connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(_BUSY_MS)
    # Else a statement with a bound LIMIT would be planned anew for each value: half of its time.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.pragma("page_size", _PAGE_BYTES)
    _use_wal(connection)
    connection.pragma("synchronous", "FULL")
    connection.pragma("foreign_keys", True)
    connection.pragma("recursive_triggers", True)  # else a row goes unasked that is replaced
    connection.pragma("cache_size", -_CACHE_KIB)
    return connection


def hold_folder(folder: Path, alone: bool = False) -> int:
    """Keeps a restore out of a folder in use, and everyone out of one that is restored.

    It is let go when what is returned, or the process, is closed.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        by = "A service, or another command," if alone else "A restore"
        raise SettingsError(f"{by} is at work in {folder.absolute()}: let it end first") from None
    return descriptor


def _use_wal(connection: apsw.Connection) -> None:
    """The switch of a new file does not wait for another process that does the same: we do."""
    deadline = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class SqliteDatabase:
    """A ``Database`` in one file."""

    engine = "sqlite"
    organization_id = tenancy.NO_TENANT

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Writer | None = None
        self._folder: int | None = None  # held for as long as the database is used
        self._watches = Watches()
        self._seen: dict[str, Any] = {}  # the clocks of the groups that are watched
        self._lookout: asyncio.Task[None] | None = None

    async def open(self) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = hold_folder(self._path.parent)
            self._path.touch(mode=0o600)  # its companions get the same rights from SQLite
            self._reader = _connect(self._path)
            # Read where the system holds it: a copy of each page takes a tenth of a request.
            self._reader.pragma("mmap_size", _MAPPED_BYTES)
            self._writer = Writer(_connect(self._path), self._path.parent)
        except (OSError, apsw.Error) as error:
            self._let_folder_go()
            reason = getattr(error, "strerror", None) or error
            raise SettingsError(
                f"Can't use the database {self._path.absolute()}: {reason}; "
                "choose another folder with --data, or change its owner"
            ) from None

    async def close(self) -> None:
        if self._lookout is not None:
            self._lookout.cancel()
        if self._writer is not None:
            await self._writer.stop()
            self._writer = None
            self._reader.close()
        self._let_folder_go()

    def _let_folder_go(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    async def migrate(self) -> None:
        await self.for_all_tenants().write(partial(migrations.apply, self.engine))

    async def security_warning(self) -> str | None:
        return None

    def for_tenant(self, organization_id: int) -> Database:
        assert organization_id >= tenancy.NO_TENANT
        return _SqliteRows(self, organization_id)

    def for_all_tenants(self) -> Database:
        return _SqliteRows(self, tenancy.ALL_TENANTS)

    @property
    def page_reader(self) -> PageReader:
        return self

    def read_pages(self, reads: Sequence[PageRead]) -> Sequence[Page | Exception]:
        """Reads in one transaction: locking and unlocking the file takes a fifth of a small read."""
        if len(reads) > 1:
            with suppress(apsw.Error):  # then each read finds out by itself
                self._reader.execute("BEGIN")
        pages = [self._page_or_error(read) for read in reads]
        if self._reader.in_transaction:  # SQLite ends it itself if the disk fails
            self._reader.execute("COMMIT")
        return pages

    def _page_or_error(self, read: PageRead) -> Page | Exception:
        try:
            return self.read_page_for(*read)
        except Exception as error:
            return error

    def read_page_for(
        self, organization_id: int, search: str, limit: int, values: Sequence[Any]
    ) -> Page:
        """SQLite joins the items: half the time of a row, an object and a call for each item."""
        sql = _joined(search, len(values) + 1)
        rows = self.read_for(organization_id, sql, (*values, limit + 1, BETWEEN_ITEMS))
        [(count, last, items)] = rows
        if count <= limit:
            return Page(items or b"", None)
        without_the_last = memoryview(items)[: items.rindex(BETWEEN_ITEMS)]  # copies nothing
        return Page(without_the_last, last - 1)

    async def schema_number(self) -> int:
        listed = await self.read("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'")
        if not listed:
            return 0
        return int((await self.read(migrations.NEWEST_APPLIED))[0][0])

    async def read(self, sql: str, *values: Any) -> Sequence[Row]:
        return self.read_for(tenancy.NO_TENANT, sql, values)

    async def read_page(self, found: str, limit: int, values: Sequence[Any]) -> Page:
        return await self.for_tenant(tenancy.NO_TENANT).read_page(found, limit, values)

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable = None
    ) -> T:
        return await self.write_for(tenancy.NO_TENANT, work)

    def read_for(self, organization_id: int, sql: str, values: Sequence[Any]) -> Sequence[Row]:
        try:
            return self._reader.execute(dialect(sql, organization_id), values).fetchall()
        except BUSY as error:
            raise Unavailable from error

    @asynccontextmanager
    async def watch(self, line: str) -> AsyncIterator[Watch]:
        with self._watches.adding(line, Watch()) as watch:
            try:
                self._seen.setdefault(line, self._clock(line))
            except BUSY as error:
                raise Unavailable from error
            if self._lookout is None:
                self._lookout = asyncio.create_task(self._look_out())
            yield watch

    def stop_watching(self) -> None:
        self._watches.stop()

    async def _look_out(self) -> None:
        """Looks for all who wait, every moment, whether the clock of a group has moved.

        Nothing is read as long as the file's version is the same, which every commit of every
        process changes.
        """
        version = None
        while self._watches:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                was, version = version, self._reader.pragma("data_version")
                if version != was:
                    self._wake_the_concerned()
            except apsw.Error:
                self._watches.wake_all()  # let them find out for themselves
        self._lookout = None

    def _wake_the_concerned(self) -> None:
        lines = self._watches.lines()
        for line in self._seen.keys() - lines:
            del self._seen[line]
        for line in lines:
            clock = self._clock(line)
            if self._seen.get(line) != clock:
                self._seen[line] = clock
                self._watches.wake(line)

    def _clock(self, line: str) -> Any:
        organization_id, _, group = line.partition("/")
        clock = dialect(_GROUP_CLOCK, tenancy.ANY_TENANT)
        return self._reader.execute(clock, (int(organization_id), group)).fetchall()

    async def write_for(
        self, organization_id: int, work: Callable[[Transaction], Awaitable[T]]
    ) -> T:
        assert self._writer is not None, "open() comes first"
        request = Request(work, organization_id, asyncio.get_running_loop().create_future())
        self._writer.add(request)
        return cast(T, await request.outcome)


class _SqliteRows(NamedTuple):
    """The rows of one organization, or of all."""

    database: SqliteDatabase
    organization_id: int

    async def read(self, sql: str, *values: Any) -> Sequence[Row]:
        return self.database.read_for(self.organization_id, sql, values)

    async def read_page(self, found: str, limit: int, values: Sequence[Any]) -> Page:
        return self.database.read_page_for(self.organization_id, found, limit, values)

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable = None
    ) -> T:
        return await self.database.write_for(self.organization_id, work)
