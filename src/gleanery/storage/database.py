"""The one small door to a database: what every engine offers and every query relies on.

SQL is written once, in the part of the language that SQLite and PostgreSQL share, with ``$1``
for parameters. Work inside a transaction is a coroutine function, so that the same lines run
on an event loop (PostgreSQL) and straight through in a writer thread (SQLite).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

from gleanery.storage.notifications import Watch

T = TypeVar("T")
Row = Sequence[Any]
BETWEEN_ITEMS = b",\n"
"""A line for each item: as no item has a line break in its text, this is where one ends."""


class Page(NamedTuple):
    """Items as one JSON text without the brackets, and the place behind which there are more."""

    items: bytes | memoryview
    next_cursor: int | None


class PageRead(NamedTuple):
    """One page that is to be read in the name of a tenant."""

    organization_id: int
    search: str
    """A SELECT of seq and item, in order, without LIMIT."""
    limit: int
    values: Sequence[Any]


class PageReader(Protocol):
    """Reads pages in plain calls: on an engine whose reads wait for nothing."""

    def read_pages(self, reads: Sequence[PageRead]) -> Sequence[Page | Exception]:
        """Reads pages from one snapshot. The error of a read takes the place of its page."""


class Transaction(Protocol):
    """Statements that take effect together or not at all."""

    @property
    def organization_id(self) -> int:
        """The tenant whose rows the transaction sees."""

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Runs one statement and gives all its rows."""

    async def fetch_many(self, sql: str, many: Iterable[Row]) -> Sequence[Row]:
        """Runs one statement once per set of values and gives all rows, in that order."""

    async def execute_many(self, sql: str, many: Iterable[Row]) -> None:
        """The same for a statement without rows, and in any order: no two sets mean one row."""

    async def fetch_by_keys(self, keys: Collection[bytes], sql: str, *values: Any) -> Sequence[Row]:
        """Runs one statement for each key, its last value; gives all rows, in any order."""

    async def run_script(self, sql: str) -> None:
        """Runs several statements that take no values."""

    async def notify(self, channel: str) -> None:
        """Notifies the channel's subscribers, on every node, when the transaction commits."""

    async def new_output_ids(self, count: int) -> Sequence[int]:
        """Numbers that no output of any organization ever had, rising."""

    async def skip_ids(self, count: int) -> None:
        """Leaves out so many numbers, of outputs and of everything else that is numbered."""


class Database(Protocol):
    """Statements in somebody's name. Every method raises ``Unavailable`` while it can't be used.

    Whose work it is has been said before, see ``Engine``; rows of any other organization are not
    there, whatever a statement asks for.
    """

    @property
    def organization_id(self) -> int:
        """The tenant whose rows this handle sees."""

    async def read(self, sql: str, *values: Any) -> Sequence[Row]:
        """Runs one reading statement: one snapshot of what is committed."""

    async def read_page(self, found: str, limit: int, values: Sequence[Any]) -> Page:
        """The first items that ``found`` gives: a SELECT of seq and item, in order, without LIMIT.

        It looks for one more than it gives, and so knows where the next page begins.
        """

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable = None
    ) -> T:
        """Runs the work in one transaction and returns when it is durable.

        The work may run again after a rollback, so its only effects are in the transaction.

        Writers of one organization with the same queue key would wait for each other's row
        locks. They queue before they get a connection, so that they occupy none while they wait.
        A queue key of None does not queue.
        """


class Engine(Database, Protocol):
    """A whole database. By itself it works for nobody: no organization's rows are there."""

    @property
    def engine(self) -> str:
        """The folder of its migrations."""

    @property
    def page_reader(self) -> PageReader | None:
        """Reads pages without waiting; None on an engine that has to wait."""

    async def open(self) -> None:
        """Connects; afterwards reads and writes work, if the schema is there."""

    async def close(self) -> None:
        """Waits for writes under way, then lets go."""

    def for_tenant(self, organization_id: int) -> Database:
        """The same with the rows of one organization."""

    def for_all_tenants(self) -> Database:
        """The same with all rows: to find out for whom there is work, and for nothing else."""

    async def migrate(self) -> None:
        """Brings the schema to the newest form; safe from several processes at once."""

    async def schema_number(self) -> int:
        """The number of the newest migration applied; 0 in an empty database."""

    async def security_warning(self) -> str | None:
        """What an operator should mend, so that the organizations are kept apart twice."""

    def watch(self, channel: str) -> AbstractAsyncContextManager[Watch]:
        """Begins to watch a channel; read after this, then wait, and nothing is missed."""

    def stop_watching(self) -> None:
        """Ends every watch: the process is about to stop."""
