"""The SQLite engine: one file, read in the event loop and written by one thread.

Reads never wait for writes, because of the write-ahead log.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import apsw
import orjson

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.foundation.folders import create_private_folder
from gleanery.service.foundation.observability.progress import StartProgress, no_progress
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore
from gleanery.service.storage import migrations, tenancy
from gleanery.service.storage.database import (
    ITEM_SEPARATOR,
    Database,
    LineRead,
    Lines,
    Page,
    PageRead,
    PageReader,
    PageTooLarge,
    Row,
    SchemaState,
    Statement,
    Subscription,
    Transaction,
    Watch,
)
from gleanery.service.storage.sqlite import space
from gleanery.service.storage.sqlite.change_poller import ChangePoller
from gleanery.service.storage.sqlite.connections import (
    TEMPORARY_ERRORS,
    OpenFiles,
    Traces,
    connect,
    connect_reader,
    create_file,
    explain,
    join_items,
    join_lines,
    lock_folder,
    reject_unfinished_restore,
    require_file,
    to_sqlite,
    unavailable,
)
from gleanery.service.storage.sqlite.writer import Writer, WriteRequest

T = TypeVar("T")

_MAX_RELEASE_SECONDS = 20.0  # of a sweep, which has other work
_MAX_COPIES, _COPY_PAUSE_SECONDS = 50, 0.1  # of the write-ahead log, by a command
_SLOTS = 3  # a tenant alone holds two, so that the thread always has the next read
_WAIT_SECONDS = 30.0
_NICENESS = 10
_LINE_BREAK = ITEM_SEPARATOR[-1:]  # no item contains one
_SMALL_BYTES = 32 * 1024  # are copied in less time than a view is made and used
_TOO_MANY = "Too many large pages and exports are being read; try again"


class SqliteDatabase:
    """An ``Engine`` on one SQLite file."""

    engine = "sqlite"
    pool_state = None
    replica_states = ()
    organization_id = tenancy.NO_TENANT

    def __init__(self, path: Path, traces: Traces | None = None) -> None:
        """Create no empty database where there are ``traces`` of one, unless they are None."""
        self._path = path
        self._traces = traces
        self._writer: Writer | None = None
        self._folder_lock: int | None = None  # a file descriptor
        self._poller = ChangePoller()
        self._large_reads: LargeReads | None = None

    async def open(self, create: bool = True) -> None:
        try:
            if create:
                create_private_folder(self._path.parent)
            else:
                require_file(self._path)
            self._folder_lock = lock_folder(self._path.parent)
            reject_unfinished_restore(self._path)
            if create:
                create_file(self._path, self._traces)
            self._reader = connect_reader(self._path)
            self._files = OpenFiles(self._path, self._reader)
            self._large_reads = LargeReads(self._path, self._files)
            self._writer = Writer(connect(self._path), self._files, self._path.parent)
        except SettingsError:
            self._release_folder()
            raise
        except (OSError, apsw.Error) as error:
            self._release_folder()
            raise SettingsError(explain(error, self._path.absolute())) from None

    async def close(self) -> None:
        self._poller.close()
        if self._large_reads is not None:
            self._large_reads.close()
            self._large_reads = None
        if self._writer is not None:
            await self._writer.stop()
            self._writer = None
            self._reader.close()
        self._release_folder()

    def _release_folder(self) -> None:
        if self._folder_lock is not None:
            os.close(self._folder_lock)
            self._folder_lock = None

    async def migrate(self, accept_compatible: bool = False) -> int:
        await self.schema_state()  # rejects the database of another program
        work = partial(migrations.apply, self.engine, accept_compatible=accept_compatible)
        return await self.write_for(tenancy.ALL_TENANTS, work, checks_schema=False)

    async def distribute(self, progress: StartProgress = no_progress) -> bool:
        raise SettingsError("Only PostgreSQL with Citus can be distributed: give --database")

    async def check_schema(self, accept_compatible: bool = False) -> None:
        migrations.check(self.engine, await self.schema_state(), accept_compatible)

    async def serving_problem(self) -> Unavailable | None:
        return self._files.problem()

    async def security_warning(self) -> str | None:
        return None

    def for_tenant(self, organization_id: int) -> Database:
        assert organization_id >= tenancy.NO_TENANT
        return _SqliteHandle(self, organization_id)

    def for_replica(self, organization_id: int) -> None:
        return None

    def for_all_tenants(self) -> Database:
        return _SqliteHandle(self, tenancy.ALL_TENANTS)

    @property
    def page_reader(self) -> PageReader:
        return self

    def read_pages(self, reads: Sequence[PageRead]) -> Sequence[Page | Exception]:
        """Read in one transaction: locking the file takes a fifth of a small read."""
        if len(reads) > 1:
            with suppress(apsw.Error):  # each read will get the error itself
                self._reader.execute("BEGIN")
        pages = [self._page_or_error(read) for read in reads]
        if self._reader.in_transaction:  # SQLite ends the transaction if the disk fails
            self._reader.execute("COMMIT")
        return pages

    def _page_or_error(self, read: PageRead) -> Page | Exception:
        try:
            return self.read_page_for(read.organization_id, read)
        except Exception as error:
            return error

    def read_page_for(self, organization_id: int, read: PageRead) -> Page:
        """Lets SQLite join the items, which takes half the time of one row per item."""
        sql = join_items(read.search.sqlite, len(read.values) + 1)
        values = (*read.values, read.limit + 1, ITEM_SEPARATOR)
        try:
            [(count, last_seq, items)] = self.read_for(organization_id, sql, values)
        except apsw.TooBigError:  # an item is longer than the search allows
            raise PageTooLarge from None
        if not count:
            return Page((), None)
        if len(items) > read.max_bytes:
            raise PageTooLarge
        if count <= read.limit and items and not items.endswith(ITEM_SEPARATOR):
            return Page((items,), None)
        # Before the last row, which is not part of the page. One byte is found in less time.
        end = items.rfind(_LINE_BREAK) + 1 - len(ITEM_SEPARATOR)
        if end <= 0:
            return Page((), last_seq - 1)
        first_items = items if end < _SMALL_BYTES else memoryview(items)  # a copy, or none
        return Page((first_items[:end],), last_seq - 1)

    async def identity(self) -> None:
        return None

    async def server_time(self) -> None:
        return None

    async def schema_state(self, waits: bool = True) -> SchemaState:
        listed = await self.read("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'")
        if not listed:
            return SchemaState(0, 0)
        try:
            return await migrations.read_state(self.engine, self.read)
        except (apsw.SQLError, TypeError):
            raise SettingsError(migrations.FOREIGN) from None

    async def read(self, sql: Statement, *values: Any) -> Sequence[Row]:
        return self.read_for(tenancy.NO_TENANT, sql, values)

    async def read_large(self, sql: Statement, *values: Any) -> Sequence[Row]:
        return await self.read_large_for(tenancy.NO_TENANT, sql, values)

    async def read_page(self, read: PageRead) -> Page:
        return self.read_page_for(tenancy.NO_TENANT, read)

    async def read_lines(self, read: LineRead) -> Lines:
        return await self.read_lines_for(tenancy.NO_TENANT, read)

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable = None
    ) -> T:
        return await self.write_for(tenancy.NO_TENANT, work)

    def read_for(
        self, organization_id: int, sql: Statement, values: Sequence[Any]
    ) -> Sequence[Row]:
        try:
            return self._reader.execute(to_sqlite(sql, organization_id), values).fetchall()
        except TEMPORARY_ERRORS as error:
            raise unavailable(error) from error

    async def read_large_for(
        self, organization_id: int, sql: Statement, values: Sequence[Any]
    ) -> Sequence[Row]:
        assert self._large_reads is not None, "open() comes first"
        try:
            checked = to_sqlite(sql, organization_id)
            return await self._large_reads.read(organization_id, checked, values)
        except TEMPORARY_ERRORS as error:
            raise unavailable(error) from error

    async def read_lines_for(self, organization_id: int, read: LineRead) -> Lines:
        """Lets SQLite join the lines: it then needs no lock of the interpreter for each row."""
        sql = join_lines(read.search.sqlite, len(read.values) + 1)
        try:
            rows = await self.read_large_for(organization_id, sql, (*read.values, read.limit))
        except apsw.TooBigError:  # an item is longer than the search allows
            raise PageTooLarge from None
        [(last_seq, ids, text)] = rows
        if ids is None:
            return Lines((), 0, b"")
        # SQLite would take six times as long to end the last line.
        return Lines(orjson.loads(f"[{ids}]"), last_seq, text + b"\n")

    async def write_for(
        self,
        organization_id: int,
        work: Callable[[Transaction], Awaitable[T]],
        checks_schema: bool = True,
    ) -> T:
        """Run the work in the writer thread, which also serves as the writers' queue."""
        assert self._writer is not None, "open() comes first"
        result = asyncio.get_running_loop().create_future()
        request = WriteRequest(work, organization_id, result, checks_schema)
        self._writer.add(request)
        return cast(T, await request.result)

    async def release_space(
        self, progress: StartProgress = no_progress, is_complete: bool = False
    ) -> None:
        """Move pages from the end of the file into free ones, in short transactions.

        After each one it waits for the same time, so that others can write.
        """
        assert self._writer is not None, "open() comes first"
        try:
            await self._release_space(self._writer, progress, is_complete)
        except TEMPORARY_ERRORS as error:
            raise unavailable(error) from error

    async def _release_space(
        self, writer: Writer, progress: StartProgress, is_complete: bool
    ) -> None:
        pages, ends = space.count_pages(self._reader), time.monotonic() + _MAX_RELEASE_SECONDS
        count = pages.free if is_complete and pages.can_shrink else pages.to_release
        advance = progress("Releasing pages", count)
        for _ in range(0, count, space.PAGES_PER_STEP):
            started = time.monotonic()
            await writer.run(space.release_pages)
            advance(space.PAGES_PER_STEP)
            ended = time.monotonic()
            is_enough = ended > ends or not space.count_pages(self._reader).to_release
            if is_enough and not is_complete:
                break
            await asyncio.sleep(ended - started)
        for _ in range(_MAX_COPIES if is_complete else 1):
            # The file is shorter when the log is copied, which somebody who reads can delay.
            is_longer = self._files.database_bytes() > space.count_pages(self._reader).total_bytes
            if is_longer or self._files.log_bytes() > space.LARGE_LOG_BYTES:
                await writer.run(space.empty_log)
                await asyncio.sleep(_COPY_PAUSE_SECONDS)

    def subscribe(self, channel: str) -> AbstractAsyncContextManager[Subscription]:
        return self._poller.subscribe(channel, self._reader)

    def watch(self) -> AbstractAsyncContextManager[Watch]:
        return self._poller.watch(self._reader)

    async def check_notifications(self) -> None:
        """Do nothing: a file always reports its changes."""

    def check_replicas(self, urls: Sequence[str]) -> None:
        """Do nothing: the settings allow no replicas of a file."""

    def stop_subscriptions(self) -> None:
        self._poller.stop_subscriptions()


class _SqliteHandle(NamedTuple):
    """A handle with the rows of one tenant, or of all."""

    database: SqliteDatabase
    organization_id: int

    async def read(self, sql: Statement, *values: Any) -> Sequence[Row]:
        return self.database.read_for(self.organization_id, sql, values)

    async def read_large(self, sql: Statement, *values: Any) -> Sequence[Row]:
        return await self.database.read_large_for(self.organization_id, sql, values)

    async def read_page(self, read: PageRead) -> Page:
        return self.database.read_page_for(self.organization_id, read)

    async def read_lines(self, read: LineRead) -> Lines:
        return await self.database.read_lines_for(self.organization_id, read)

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable = None
    ) -> T:
        return await self.database.write_for(self.organization_id, work)


# --- large rows ----------------------------------------------------------------------------------


class LargeReads:
    """One thread with its own connection, which it opens at the first read.

    The tenants take turns. An export is many reads, and one tenant may have many exports.
    """

    def __init__(self, path: Path, files: OpenFiles) -> None:
        self._path = path
        self._files = files
        self._connection: apsw.Connection | None = None
        self._thread = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="large reads", initializer=_lower_priority
        )
        self._turns = FairSemaphore(_SLOTS, _WAIT_SECONDS, _TOO_MANY)

    async def read(self, organization_id: int, sql: str, values: Sequence[Any]) -> Sequence[Row]:
        """Read in the thread, when it is the tenant's turn. Raise Overloaded."""
        loop = asyncio.get_running_loop()
        async with self._turns.held_for(organization_id):
            return await loop.run_in_executor(self._thread, self._read, sql, values)

    def _read(self, sql: str, values: Sequence[Any]) -> Sequence[Row]:
        self._connection = self._connection or self._connect()
        return self._connection.execute(sql, values).fetchall()

    def _connect(self) -> apsw.Connection:
        """Connect to the file that the others have open, and to no other one."""
        connection = connect_reader(self._path)
        try:
            self._files.check()
        except Unavailable:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Wait for the current read, then close the connection."""
        self._thread.shutdown(cancel_futures=True)
        if self._connection is not None:
            self._connection.close()


def _lower_priority() -> None:
    """Lets the event loop run first where both threads share a core.

    Only Linux has a priority for each thread. Beside an export, the slowest percent of small pages
    takes 1.45 times as long as without one; with equal priorities it takes 1.85 times as long.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
