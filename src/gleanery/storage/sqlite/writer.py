"""SQLite's writer: a thread that commits all that waits together, and the statements in there.

Many small writes share one wait for the disk. Work inside a transaction is a coroutine that never
waits: it is run straight through.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import re
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import apsw

from gleanery.errors import Unavailable
from gleanery.storage import tenancy
from gleanery.storage.database import Row, Transaction

T = TypeVar("T")

_TOGETHER = 128  # requests committed at once, at most
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
BUSY = (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError, apsw.CantOpenError)
"""What passes by itself, or with some room on the disk."""


def dialect(sql: str, organization_id: int) -> str:
    """Translates shared SQL to SQLite's: ``$1`` becomes ``?1``, and an index is no comment.

    ``/* INDEXED BY name */`` after a table makes SQLite use that index. With statistics, its
    planner would scan a group whose rows have equal values.

    Raises ``MissingTenantFilter`` for a statement that could touch another tenant's rows.
    """
    return _dialect(sql, min(organization_id, tenancy.ANY_TENANT))


@lru_cache(maxsize=1024)
def _dialect(sql: str, tenant: int) -> str:
    tenancy.check(sql, tenant)
    sql = re.sub(r"/\* (INDEXED BY \w+) \*/", r"\1", sql.replace("BYTEA", "BLOB"))
    return re.sub(r"\$(\d+)", r"?\1", sql)


@lru_cache(maxsize=128)
def _for_any(sql: str, key: int, organization_id: int) -> str:
    """The statement for an array of keys: to run it once for each would take twice as long."""
    return re.sub(rf"= \?{key}\b", f"IN carray(?{key})", dialect(sql, organization_id))


class _SqliteTransaction:
    """Statements on the writer's connection. Nothing in here ever waits."""

    def __init__(self, connection: apsw.Connection, organization_id: int) -> None:
        self._connection = connection
        self._organization_id = organization_id

    @property
    def organization_id(self) -> int:
        return self._organization_id

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        return self._connection.execute(dialect(sql, self._organization_id), values).fetchall()

    async def fetch_many(self, sql: str, many: Iterable[Row]) -> Sequence[Row]:
        return self._connection.executemany(dialect(sql, self._organization_id), many).fetchall()

    async def execute_many(self, sql: str, many: Iterable[Row]) -> None:
        self._connection.executemany(dialect(sql, self._organization_id), many)

    async def fetch_by_keys(self, keys: Collection[bytes], sql: str, *values: Any) -> Sequence[Row]:
        if not keys:
            return []
        for_any = _for_any(sql, len(values) + 1, self._organization_id)
        return self._connection.execute(for_any, (*values, apsw.carray(tuple(keys)))).fetchall()

    async def run_script(self, sql: str) -> None:
        tenancy.check(sql, min(self._organization_id, tenancy.ANY_TENANT))
        self._connection.execute(sql)

    async def notify(self, channel: str) -> None:
        """Nothing to do: a watcher sees that the file has changed."""

    async def new_output_ids(self, count: int) -> Sequence[int]:
        [[last]] = await self.fetch(_NEW_OUTPUT_IDS, count)
        return range(last - count + 1, last + 1)

    async def skip_ids(self, count: int) -> None:
        for sql in _SKIP_IDS:
            await self.fetch(sql, count)


class Request(NamedTuple):
    """Work, whose it is, and where its outcome is awaited."""

    work: Callable[[Transaction], Awaitable[Any]]
    organization_id: int
    outcome: asyncio.Future[Any]


class Writer:
    """The thread that owns the writing connection and groups what waits into one commit.

    What comes in one turn of the event loop, or while a commit is under way, is handed over as a
    whole: to call the thread for each request would take longer than to do what it asks for.
    """

    def __init__(self, connection: apsw.Connection, folder: Path) -> None:
        self._connection = connection
        self._waiting: list[Request] = []
        self._is_busy = False
        self._handed_over: queue.SimpleQueue[list[Request] | None] = queue.SimpleQueue()
        # A daemon: a program that fails without closing the database must still end.
        name = f"gleanery-writer {folder}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, request: Request) -> None:
        self._waiting.append(request)
        if len(self._waiting) == 1 and not self._is_busy:
            asyncio.get_running_loop().call_soon(self._hand_over)

    def _hand_over(self) -> None:
        if self._waiting and not self._is_busy:
            self._is_busy = True
            self._handed_over.put(self._waiting[:_TOGETHER])
            self._waiting = self._waiting[_TOGETHER:]

    async def stop(self) -> None:
        """Returns when everything that was waiting is committed."""
        rest, self._waiting = self._waiting, []
        self._handed_over.put(rest)
        self._handed_over.put(None)
        await asyncio.to_thread(self._thread.join)
        self._connection.close()

    def _run(self) -> None:
        while (requests := self._handed_over.get()) is not None:
            if requests:
                self._settle(requests, self._commit(requests))

    def _commit(self, requests: list[Request], apart: bool = False) -> list[Any]:
        """The result or the exception of each request; all are durable or told of the failure.

        At first they are not kept apart: SQLite would copy every page that each of them changes,
        and hardly one ever fails. If one does, all are done once more, so that it can be undone.
        """
        try:
            self._roll_back()  # what an earlier failure may have left
            self._connection.execute("BEGIN IMMEDIATE")
            results = [self._attempt(request, apart) for request in requests]
            if apart or not any(isinstance(result, Exception) for result in results):
                self._connection.execute("COMMIT")
                return results
            self._roll_back()
        except Exception as error:
            with contextlib.suppress(apsw.Error):
                self._roll_back()
            return [_told(error) for _ in requests]
        return results if len(requests) == 1 else self._commit(requests, apart=True)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _attempt(self, request: Request, apart: bool) -> Any:
        """One request's work; if it fails, only its own statements are undone, if it is apart."""
        if apart:
            self._connection.execute("SAVEPOINT request")
        try:
            transaction = _SqliteTransaction(self._connection, request.organization_id)
            result = _run_through(request.work(transaction))
        except Exception as error:
            if isinstance(error, BUSY) or not self._connection.in_transaction:
                raise  # the disk's fault, not the request's: nothing of this commit can be kept
            if apart:
                self._connection.execute("ROLLBACK TO request")
            result = error
        if apart:
            self._connection.execute("RELEASE request")
        return result

    def _settle(self, requests: list[Request], results: list[Any]) -> None:
        try:
            loop = requests[0].outcome.get_loop()
            loop.call_soon_threadsafe(self._tell, requests, results)
        except RuntimeError:  # the loop has ended: nobody is waiting
            self._is_busy = False

    def _tell(self, requests: list[Request], results: list[Any]) -> None:
        self._is_busy = False
        self._hand_over()
        for (_, _, outcome), result in zip(requests, results, strict=True):
            if outcome.cancelled():
                continue  # the client went away; what it sent is kept all the same
            if isinstance(result, Exception):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)


def _run_through(work: Awaitable[T]) -> T:
    """Runs a coroutine that never waits, without an event loop."""
    try:
        cast(Coroutine[Any, Any, T], work).send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise RuntimeError("work inside a SQLite transaction may await nothing but the transaction")


def _told(error: Exception) -> Exception:
    """What each request of a failed commit is told: an exception of its own."""
    unavailable = Unavailable()
    unavailable.__cause__ = error
    return unavailable
