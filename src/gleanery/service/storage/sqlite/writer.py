"""The writer thread, which commits waiting requests together (group commit).

Many small writes share one wait for the disk. The work of a transaction is a coroutine that never
waits, so the thread runs it without an event loop.

The writer is idle or busy. In both states requests wait in a queue on the event loop, in which the
tenants take turns::

    add → _submit, at the end of the iteration of the event loop: idle becomes busy
      → the thread: _run_group → _commit → _run_requests → _deliver
      → the event loop: _set_results, and _submit again if requests wait; else busy becomes idle

``_commit`` runs a group in one transaction, without savepoints. If a request fails, the group runs
again with a savepoint for each request. If the disk fails, every request of the group fails.

What always holds:

- Only the thread uses the writing connection, and only one group is in progress.
- A request gets its result after the commit that contains it, and after a check that the files of
  the database are in their place.
- A request that a group had no time for goes back to the front of the queue. It has not run.
- Work may run twice. The first run is rolled back before the second one begins.

See ``docs/explanation/sqlite.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import apsw

from gleanery.service.foundation.errors import Unavailable
from gleanery.service.foundation.scheduling.fair_shares import FairQueue
from gleanery.service.storage import migrations, tenancy
from gleanery.service.storage.database import Row, Statement, Transaction
from gleanery.service.storage.sqlite.connections import (
    TEMPORARY_ERRORS,
    OpenFiles,
    for_key_array,
    to_sqlite,
    unavailable,
)

T = TypeVar("T")

_MAX_GROUP_COMMIT = 128  # requests in one commit
_MAX_GROUP_SECONDS = 0.05  # after this time a commit takes no further request
_NEW_OUTPUT_IDS = "UPDATE output_ids SET last_id = last_id + $1 RETURNING last_id"
_SKIP_IDS = (
    "UPDATE output_ids SET last_id = last_id + $1",
    "UPDATE sqlite_sequence SET seq = seq + $1",
    """
INSERT INTO sqlite_sequence (name, seq) SELECT name, $1 FROM sqlite_schema
WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'
    AND name NOT IN (SELECT name FROM sqlite_sequence)
""",
)


class _SqliteTransaction:
    """Statements on the writer's connection. No method ever waits."""

    def __init__(self, connection: apsw.Connection, organization_id: int) -> None:
        self._connection = connection
        self.organization_id = organization_id

    async def fetch(self, sql: Statement, *values: Any) -> Sequence[Row]:
        return self._connection.execute(to_sqlite(sql, self.organization_id), values).fetchall()

    async def fetch_many(self, sql: Statement, many: Iterable[Row]) -> Sequence[Row]:
        return self._connection.executemany(to_sqlite(sql, self.organization_id), many).fetchall()

    async def execute_many(self, sql: Statement, many: Iterable[Row]) -> None:
        self._connection.executemany(to_sqlite(sql, self.organization_id), many)

    async def fetch_by_keys(
        self, keys: Collection[bytes], sql: Statement, *values: Any
    ) -> Sequence[Row]:
        if not keys:
            return []
        statement = for_key_array(sql, len(values) + 1, self.organization_id)
        return self._connection.execute(statement, (*values, apsw.carray(tuple(keys)))).fetchall()

    async def run_script(self, sql: str) -> None:
        tenancy.check(sql, min(self.organization_id, tenancy.ANY_TENANT))
        self._connection.execute(sql)

    async def server_time(self) -> None:
        return None

    async def notify(self, channel: str) -> None:
        """Do nothing: ``ChangePoller`` sees the commit."""

    async def commit_unflushed(self) -> None:
        """Do nothing: transactions share one wait for the disk."""

    async def new_output_ids(self, count: int) -> Sequence[int]:
        [[last_id]] = await self.fetch(_NEW_OUTPUT_IDS, count)
        return range(last_id - count + 1, last_id + 1)

    async def pause(self) -> None:
        """Do nothing: the work runs in its own thread."""

    async def compute(self, function: Callable[..., T], *args: Any) -> T:
        return function(*args)

    async def skip_ids(self, count: int) -> None:
        for sql in _SKIP_IDS:
            await self.fetch(sql, count)


class WriteRequest(NamedTuple):
    """The work of a transaction, its tenant, and the future of its result."""

    work: Callable[[Transaction], Awaitable[Any]]
    organization_id: int
    result: asyncio.Future[Any]
    checks_schema: bool


class Writer:
    """The thread that owns the writing connection and commits requests in groups.

    Requests of one event-loop iteration, and those that arrive during a commit, go to the thread as
    one group: a call to the thread for each request would take longer than the request.

    A group has requests of the tenants in rotation, and ends early if it takes long. So a request
    waits for few requests of another tenant, however many that tenant has sent.

    No request succeeds whose commit went into a file that is not in its place any more: the check
    comes after the commit. A later deletion of the file also deletes what was there before.
    """

    def __init__(self, connection: apsw.Connection, files: OpenFiles, folder: Path) -> None:
        self._connection = connection
        self._files = files
        self._are_files_in_place = True
        self._waiting = FairQueue[WriteRequest]()
        self._is_busy = False
        self._idle = asyncio.Event()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: a program that fails without closing the database must still end.
        name = f"gleanery-writer {folder}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, request: WriteRequest) -> None:
        if not self._waiting and not self._is_busy:
            asyncio.get_running_loop().call_soon(self._submit)
        self._waiting.add(request.organization_id, request)

    def _submit(self) -> None:
        """Give the waiting requests to the thread, unless it is busy."""
        if self._waiting and not self._is_busy:
            self._is_busy = True
            self._idle.clear()
            group = [self._waiting.take() for _ in range(_MAX_GROUP_COMMIT) if self._waiting]
            self._tasks.put(partial(self._run_group, group))

    async def run(self, work: Callable[[apsw.Connection], None]) -> None:
        """Run the work between two commits, and raise its error. Its failure is nobody else's."""
        ended: Future[None] = Future()

        def run() -> None:
            try:
                work(self._connection)
            except Exception as error:
                ended.set_exception(error)
            else:
                ended.set_result(None)

        self._tasks.put(run)
        # Not cancelled with the caller: the thread sets the result.
        await asyncio.shield(asyncio.wrap_future(ended))

    async def stop(self) -> None:
        """Return when all waiting requests are committed."""
        self._submit()
        if self._is_busy:
            await self._idle.wait()
        self._tasks.put(None)
        await asyncio.to_thread(self._thread.join)
        self._connection.close()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _run_group(self, requests: list[WriteRequest]) -> None:
        self._deliver(requests, self._commit(requests))

    def _commit(self, requests: list[WriteRequest], isolated: bool = False) -> list[Any]:
        """Commit a group; return the result or the exception of each request.

        If the group takes long, the results are only those of the first requests. The others have
        not run.

        The first attempt uses no savepoints, because with them SQLite copies every page that a
        request changes, and requests rarely fail. If one fails, the group runs again with a
        savepoint for each request, so that only the failed ones are undone.
        """
        try:
            if not self._are_files_in_place:
                self._check_files()  # before a commit too: nothing more is written there
            self._roll_back()  # an earlier failure may have left a transaction
            self._connection.execute("BEGIN IMMEDIATE")
            self._check_schema(requests)
            results = self._run_requests(requests, isolated)
            if isolated or not any(isinstance(result, Exception) for result in results):
                self._connection.execute("COMMIT")
                self._check_files()
                return results
            self._roll_back()
        except Exception as error:
            with contextlib.suppress(apsw.Error):
                self._roll_back()
            return [_unavailable(error) for _ in requests]
        return results if len(requests) == 1 else self._commit(requests, isolated=True)

    def _check_files(self) -> None:
        """Raise Unavailable unless the files of the database are in their place."""
        problem = self._files.problem()
        self._are_files_in_place = problem is None
        if problem is None:
            return
        if self._files.is_only_log_missing():
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # saves what it contains
        raise problem

    def _check_schema(self, requests: list[WriteRequest]) -> None:
        """Raise Unavailable if this program cannot serve the schema any more.

        The transaction has the lock of the file, so the schema stays as it is until the commit.
        """
        if any(request.checks_schema for request in requests) and not self._can_serve_schema():
            raise Unavailable(migrations.CHANGED)

    def _can_serve_schema(self) -> bool:
        needed = migrations.newest("sqlite")
        applied = self._connection.execute(migrations.NEWEST_APPLIED).get
        if applied <= needed:
            return bool(applied == needed)
        return bool(self._connection.execute(migrations.COMPATIBLE_FROM).get <= needed)

    def _run_requests(self, requests: list[WriteRequest], isolated: bool) -> list[Any]:
        """Run requests until all have run, or the group has taken long."""
        results, ends = [], time.monotonic() + _MAX_GROUP_SECONDS
        for request in requests:
            results.append(self._run_request(request, isolated))
            if time.monotonic() > ends:
                break
        return results

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _run_request(self, request: WriteRequest, isolated: bool) -> Any:
        """Return the result or the exception of a request; raise if the whole group must fail."""
        if isolated:
            self._connection.execute("SAVEPOINT request")
        try:
            transaction = _SqliteTransaction(self._connection, request.organization_id)
            result = _run_coroutine(request.work(transaction))
        except Exception as error:
            if isinstance(error, TEMPORARY_ERRORS) or not self._connection.in_transaction:
                raise  # the disk failed, so nothing of this group can be committed
            if isolated:
                self._connection.execute("ROLLBACK TO request")
            result = error
        if isolated:
            self._connection.execute("RELEASE request")
        return result

    def _deliver(self, requests: list[WriteRequest], results: list[Any]) -> None:
        try:
            loop = requests[0].result.get_loop()
            loop.call_soon_threadsafe(self._set_results, requests, results)
        except RuntimeError:  # the event loop is closed
            self._is_busy = False

    def _set_results(self, requests: list[WriteRequest], results: list[Any]) -> None:
        self._is_busy = False
        for request in reversed(requests[len(results) :]):
            self._waiting.add_first(request.organization_id, request)
        self._submit()
        if not self._is_busy:
            self._idle.set()
        for request, result in zip(requests, results, strict=False):
            future = request.result
            if future.cancelled():
                continue  # the client has disconnected; its data is stored nevertheless
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)


def _run_coroutine(work: Awaitable[T]) -> T:
    """Run a coroutine that never waits."""
    try:
        cast(Coroutine[Any, Any, T], work).send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise RuntimeError("work inside a SQLite transaction may await nothing but the transaction")


def _unavailable(error: Exception) -> Exception:
    """Return a new exception; each request of a failed group gets its own."""
    if not isinstance(error, Unavailable):
        return unavailable(error)
    repeated = Unavailable(str(error), error.reason)
    repeated.__cause__ = error
    return repeated
