"""The database protocol: the interface of both engines, which all queries use.

Queries are written once, in the SQL that SQLite and PostgreSQL share, with ``$1`` for parameters.
Where the text of a statement has to differ, the statement is an ``Sql``: the texts of both engines.
The work of a transaction is a coroutine function. PostgreSQL runs it on the event loop; SQLite runs
it in the writer thread, where it never waits. A transaction can notify a channel. Its subscribers
in this process are the ``Subscriptions`` of the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

from gleanery.service.foundation.errors import Unavailable
from gleanery.service.foundation.observability.progress import StartProgress, no_progress

T = TypeVar("T")
Row = Sequence[Any]
ITEM_SEPARATOR = b",\n"
"""Separates the items of a page. No item contains a line break, so a page can be split again."""


# --- statements ----------------------------------------------------------------------------------


class Sql(NamedTuple):
    """A statement, or a part of one, with another text for each engine."""

    sqlite: str
    postgres: str

    def within(self, start: str, end: str) -> Sql:
        """Return the statement with the same text before it and after it."""
        return Sql(f"{start}{self.sqlite}{end}", f"{start}{self.postgres}{end}")

    def __format__(self, _: str) -> NoReturn:
        raise TypeError("an f-string needs the text of one engine")


Statement = str | Sql
"""A statement for both engines: one text that they share, or one for each."""


def indexed(sql: str, **indexes: str) -> Sql:
    """Return a statement for which SQLite has to use these indexes, each given by its table.

    The text names the table in braces: ``{jobs}``. Without the clause, table statistics can make
    the planner of SQLite scan a whole group, if many rows have the same value.
    """
    return Sql(
        sqlite=sql.format(**{table: f"{table} INDEXED BY {indexes[table]}" for table in indexes}),
        postgres=sql.format(**{table: table for table in indexes}),
    )


# --- pages ---------------------------------------------------------------------------------------


class Page(NamedTuple):
    """Items as JSON text, and the cursor of the next page.

    The parts together are the elements of an array, without its brackets. A page without items has
    no parts. Only a large page has several parts.
    """

    parts: tuple[bytes | memoryview, ...]
    next_cursor: int | None


class PageRead(NamedTuple):
    """One page to read for a tenant."""

    organization_id: int
    search: Sql
    """A SELECT of seq and item, in order, without LIMIT.

    An empty item marks the place where a search with bounded work stopped. It is the last row.
    """
    limit: int
    values: Sequence[Any]
    max_bytes: int
    """A page with more bytes is not read at once."""
    sizes: Sql
    """Like ``search``, with the size of each item instead of the item, and without its limit."""


class LineRead(NamedTuple):
    """Outputs to read for an export, as lines."""

    search: Sql
    """A SELECT of seq, id and item, in order, without LIMIT."""
    values: Sequence[Any]
    limit: int


class Lines(NamedTuple):
    """Outputs of an export: the id of each, and their texts, each of which ends a line."""

    ids: Sequence[int]
    last_seq: int
    text: bytes


class PageTooLarge(Exception):
    """A page has too many bytes to be read at once; it must be read in parts."""


class PageReader(Protocol):
    """Reads pages synchronously, on an engine that never waits for reads."""

    def read_pages(self, reads: Sequence[PageRead]) -> Sequence[Page | Exception]:
        """Read pages from one snapshot. A failed read returns its error instead of a page."""

    def read_for(
        self, organization_id: int, sql: Statement, values: Sequence[Any]
    ) -> Sequence[Row]:
        """Run one reading statement for a tenant."""


# --- notifications -------------------------------------------------------------------------------


class Subscription:
    """Receives the notifications of one channel, from its registration on."""

    def __init__(self) -> None:
        self._notified = asyncio.Event()
        self._is_stopped = False

    async def wait(self, seconds: float) -> bool:
        """Wait for a notification. Return False after a timeout, or if it was stopped."""
        if not self._is_stopped:
            try:
                await asyncio.wait_for(self._notified.wait(), seconds)
            except TimeoutError:
                return False
            self._notified.clear()
        return not self._is_stopped

    def notify(self) -> None:
        self._notified.set()

    def stop(self) -> None:
        """End the current wait and all later ones."""
        self._is_stopped = True
        self._notified.set()


class Watch(Subscription):
    """Receives the notifications of all channels, and notes the names of the channels."""

    def __init__(self) -> None:
        super().__init__()
        self._channels: set[str] | None = None

    def take(self) -> set[str] | None:
        """Return the channels that were notified since the last call.

        None means that it is not known which: any channel may have been notified.
        """
        channels, self._channels = self._channels, set()
        return channels

    def note(self, channel: str | None) -> None:
        """Note a notified channel; None for any."""
        if channel is None:
            self._channels = None
        elif self._channels is not None:
            self._channels.add(channel)
        self.notify()


class Subscriptions:
    """All subscriptions of a process, by channel, and those to all channels."""

    def __init__(self) -> None:
        self._by_channel: dict[str, set[Subscription]] = {}
        self._watches: set[Watch] = set()
        self._is_stopped = False

    def __bool__(self) -> bool:
        return bool(self._by_channel or self._watches)

    @contextmanager
    def add(self, channel: str, subscription: Subscription) -> Iterator[Subscription]:
        """Register the subscription until the context ends."""
        self._by_channel.setdefault(channel, set()).add(subscription)
        if self._is_stopped:
            subscription.stop()
        try:
            yield subscription
        finally:
            self._by_channel[channel].discard(subscription)
            if not self._by_channel[channel]:
                del self._by_channel[channel]

    @contextmanager
    def add_watch(self, watch: Watch) -> Iterator[Watch]:
        """Register the subscription to all channels until the context ends."""
        self._watches.add(watch)
        if self._is_stopped:
            watch.stop()
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    def channels(self) -> list[str]:
        return list(self._by_channel)

    def notify(self, channel: str) -> None:
        for subscription in self._by_channel.get(channel, ()):
            subscription.notify()
        for watch in self._watches:
            watch.note(channel)

    def notify_watches(self) -> None:
        """Notify the subscriptions to all channels that any of these may have been notified."""
        for watch in self._watches:
            watch.note(None)

    def notify_all(self) -> None:
        for channel in self._by_channel:
            self.notify(channel)
        self.notify_watches()

    def stop(self) -> None:
        """Stop all subscriptions, and those that are added later."""
        if self._is_stopped:
            return
        self._is_stopped = True
        for subscriptions in self._by_channel.values():
            for subscription in subscriptions:
                subscription.stop()
        for watch in self._watches:
            watch.stop()


# --- handles and engines -------------------------------------------------------------------------


class Transaction(Protocol):
    """Statements that are committed together or not at all."""

    @property
    def organization_id(self) -> int:
        """The tenant of the transaction; only its rows are visible."""

    async def fetch(self, sql: Statement, *values: Any) -> Sequence[Row]:
        """Run one statement and return its rows."""

    async def fetch_many(self, sql: Statement, many: Iterable[Row]) -> Sequence[Row]:
        """Run one statement for each set of values and return all rows, in that order."""

    async def execute_many(self, sql: Statement, many: Iterable[Row]) -> None:
        """Run one statement without result rows for each set of values.

        The order is undefined, so no two sets may change the same row.
        """

    async def fetch_by_keys(
        self, keys: Collection[bytes], sql: Statement, *values: Any
    ) -> Sequence[Row]:
        """Run one statement for each key and return all rows, in any order.

        The key is the last parameter of the statement.
        """

    async def run_script(self, sql: str) -> None:
        """Run several statements without parameters."""

    async def server_time(self) -> int | None:
        """Return the database server's time in microseconds; None on an engine without server."""

    async def notify(self, channel: str) -> None:
        """Notifies the channel's subscribers, on every node, when the transaction commits."""

    async def commit_unflushed(self) -> None:
        """Let the commit not wait for the disk, if the engine can do that.

        A crash of the database server may lose such a transaction. It never loses one that was
        committed before it. So use it only for work that is repeated if it is lost.
        """

    async def new_output_ids(self, count: int) -> Sequence[int]:
        """Issues ascending ids that no output of any organization has had."""

    async def pause(self) -> None:
        """Lets other requests run, if the work runs on the event loop."""

    async def compute(self, function: Callable[..., T], *args: Any) -> T:
        """Run a long computation, outside the event loop."""

    async def skip_ids(self, count: int) -> None:
        """Skips this many ids, of outputs and of every other table with generated ids."""


class Database(Protocol):
    """A handle with the rows of one tenant. Rows of other tenants are invisible to it.

    Every method raises ``Unavailable`` while the database cannot be used.
    """

    @property
    def organization_id(self) -> int:
        """The tenant of the handle; only its rows are visible."""

    async def read(self, sql: Statement, *values: Any) -> Sequence[Row]:
        """Run one SELECT on a snapshot of the committed data."""

    async def read_large(self, sql: Statement, *values: Any) -> Sequence[Row]:
        """Do the same for large rows. Other requests run during the work, on SQLite as well."""

    async def read_page(self, read: PageRead) -> Page:
        """Return the first items that the search finds, or raise ``PageTooLarge``.

        The method reads one item more than it returns, which shows if there is a next page.
        """

    async def read_lines(self, read: LineRead) -> Lines:
        """Return the first lines that the search finds, or raise ``PageTooLarge``.

        Other requests run during the work, on SQLite as well.
        """

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable = None
    ) -> T:
        """Run the work in one transaction and return when it is durable.

        Raise ``Unavailable`` if this program cannot serve the schema. No migration can commit
        between that check and the end of the transaction.

        The work may run again after a rollback, so its only effects are in the transaction.

        Writers of one organization with the same queue key would wait for each other's row
        locks. They queue before they get a connection, so that they occupy none while they wait.
        A queue key of None does not queue.
        """


class PoolState(NamedTuple):
    """Use of a pool of database connections."""

    size: int
    in_use: int
    waiting: int
    """Requests that wait for a connection."""


class ReplicaState(NamedTuple):
    """State of a replica at its last check."""

    is_usable: bool
    lag_seconds: float
    """Time for which the primary has had changes that the replica lacks."""


class SchemaState(NamedTuple):
    """The schema of a database."""

    number: int
    """Number of the newest applied migration; 0 for an empty database."""
    compatible_from: int
    """Schema of the oldest program that can serve the database."""


class Engine(Database, Protocol):
    """A whole database. Used as a handle, it sees no tenant's rows."""

    @property
    def engine(self) -> str:
        """The name of the engine, which is also the folder of its migrations."""

    @property
    def page_reader(self) -> PageReader | None:
        """Reads pages synchronously; None on an engine that has to wait."""

    @property
    def pool_state(self) -> PoolState | None:
        """The use of the connection pool; None on an engine without one."""

    @property
    def replica_states(self) -> Sequence[ReplicaState]:
        """The states of the replicas."""

    async def open(self, create: bool = True) -> None:
        """Connect. Afterwards reads and writes work if this program can serve the schema.

        Only ``create`` allows a new SQLite file.
        """

    async def close(self) -> None:
        """Wait for unfinished writes, then disconnects."""

    def for_tenant(self, organization_id: int) -> Database:
        """Return a handle with the rows of one tenant."""

    def for_replica(self, organization_id: int) -> AbstractAsyncContextManager[Database] | None:
        """Return a handle for one request to one replica; None if no replica can be used now.

        A replica lacks the newest changes; see ``paging.read_from_replica``. The handle runs one
        statement at a time.
        """

    def for_all_tenants(self) -> Database:
        """Return a handle with all rows; only for finding the tenants that have work to do."""

    async def migrate(self, accept_compatible: bool = False) -> int:
        """Apply missing migrations; safe when several processes do it at the same time.

        Return the number of the newest migration that was already applied; 0 if none was.
        Raise SettingsError if the schema is newer than this program. ``accept_compatible``
        accepts a newer schema that this program can serve.
        """

    async def distribute(self, progress: StartProgress = no_progress) -> bool:
        """Distributes the tables over the workers of Citus; can be repeated.

        Returns False if they were distributed already. The schema must be this program's. Raises
        SettingsError without Citus, or if its coordinator cannot log in to a worker.
        """

    async def check_schema(self, accept_compatible: bool = False) -> None:
        """Raise SettingsError unless the schema is this program's. Change nothing.

        ``accept_compatible`` accepts a newer schema that this program can serve.
        """

    async def schema_state(self, waits: bool = True) -> SchemaState:
        """Return the schema of the database.

        Without ``waits``, raise ``SchemaLocked`` if a migration has locked it. Its changes are not
        committed then.
        """

    async def serving_problem(self) -> Unavailable | None:
        """Return why the database cannot be served any more since ``open``; None if it can.

        A SQLite file was deleted, or the tables of PostgreSQL were distributed.
        """

    async def identity(self) -> str | None:
        """Return words of which at least one differs in a copy that was loaded from a dump.

        A word that is not known is ``-``. None means that the engine cannot tell copies apart.
        """

    async def server_time(self) -> int | None:
        """Return the database server's time in microseconds; None on an engine without server."""

    async def security_warning(self) -> str | None:
        """Return how to activate row-level security; None if it is active."""

    async def release_space(
        self, progress: StartProgress = no_progress, is_complete: bool = False
    ) -> None:
        """Give space that deleted data has left back to the disk, in short transactions.

        It ends after some seconds, and keeps a reserve for the next writes, unless ``is_complete``.
        PostgreSQL does this itself.
        """

    def subscribe(self, channel: str) -> AbstractAsyncContextManager[Subscription]:
        """Subscribe to a channel until the context ends.

        A client that reads after this call and then waits misses no change.
        """

    def watch(self) -> AbstractAsyncContextManager[Watch]:
        """Subscribe to all channels until the context ends."""

    async def check_notifications(self) -> None:
        """Raise SettingsError unless the notifications of writes arrive."""

    def check_replicas(self, urls: Sequence[str]) -> None:
        """Raise SettingsError if servers with these addresses cannot be replicas."""

    def stop_subscriptions(self) -> None:
        """End all waits for notifications, because the process is about to stop."""
