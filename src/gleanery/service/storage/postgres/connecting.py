"""Opens connections to the hosts of a URL, watches them while they are used, and ends them.

A pooler can be between the service and the server. It has to fit the settings.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any
from urllib.parse import urlencode

import asyncpg

from gleanery.common.errors import SettingsError
from gleanery.service.storage.postgres.errors import (
    DATABASE,
    LOST_STATEMENT,
    LOST_STATEMENT_ERRORS,
    check_url,
    explain,
    split_url,
)

_CONNECT_SECONDS = 4.0
_TARGET = "target_session_attrs"
_APPLICATION_NAME = "application_name"
_PROGRAM = "gleanery"
_WATCH_SECONDS = 0.5
_MAX_NAME = 63  # the server cuts off the rest
_PRIMARY_TARGETS = ("primary", "read-write")
# The host cannot be used now, and another one may be the primary.
_NEXT_HOST_ERRORS = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.TargetServerAttributeNotMatched,
)
_ROUNDS = 10
_TRANSACTION_POOLER = (
    "The pooler of --database gives each transaction another connection of the server: give "
    "--pooling transaction and --listen-database, or set its pool_mode to session"
)
_BACKEND = "SELECT pg_backend_pid()"


# --- hosts ---------------------------------------------------------------------------------------


class Hosts:
    """The hosts of a URL, of which one is the primary; or one host that is a replica.

    The driver has one limit of time for all hosts, which a silent one would use up. So each host is
    tried with a limit of its own, beginning with the one that worked last.
    """

    def __init__(self, url: str, option: str = DATABASE, is_replica: bool = False) -> None:
        """``option`` is the one with the URL."""
        self._url, self._option, self._is_replica = url, option, is_replica
        self._last: str | None = None

    def check(self) -> None:
        """Raise SettingsError if the URL cannot be used."""
        check_url(self._url, self._option, () if self._is_replica else _PRIMARY_TARGETS)
        try:
            urls = _urls_of_hosts(self._url)
        except ValueError:
            urls = []
        if not urls:
            raise SettingsError(f"{self._option} needs at least one host, and one port or one each")

    def explain(self, error: Exception) -> str:
        """Return a sentence for the operator, who cannot connect because of the error."""
        return explain(error, self._url, self._option)

    async def connect(self, *_: Any, seconds: float | None = None, **options: Any) -> Any:
        """Connect to the first host that works. The signature is what asyncpg's pool calls."""
        deadline = time.monotonic() + (seconds or _CONNECT_SECONDS)
        urls = _urls_of_hosts(self._url)
        if self._last is not None:
            urls.sort(key=lambda url: url != self._last)
        options["server_settings"] = _server_settings(self._url)
        if not self._is_replica:  # also if the URL says read-write: a read-only primary can be read
            options[_TARGET] = _PRIMARY_TARGETS[0]
        errors: list[Exception] = []
        for number, url in enumerate(urls):
            limit = (deadline - time.monotonic()) / (len(urls) - number)
            try:
                connection = await asyncpg.connect(url, timeout=limit, **options)
            except _NEXT_HOST_ERRORS as error:
                errors.append(error)
            else:
                self._last = url
                return connection
        # That a server is a standby says most: perhaps none was promoted.
        errors.sort(key=lambda error: isinstance(error, asyncpg.TargetServerAttributeNotMatched))
        raise errors[-1]


def _urls_of_hosts(url: str) -> list[str]:
    """Return one URL for each host. Raise ValueError unless they have one port, or one each."""
    parts, query = split_url(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," in hosts:
        netlocs = [f"{user}{at}{host}" for host in hosts.split(",") if host]
        return [parts._replace(netloc=netloc).geturl() for netloc in netlocs]
    names, ports = query.get("host", "").split(","), query.get("port", "").split(",")
    if hosts or len(names) == 1:
        return [url]
    places = zip(names, ports * len(names) if len(ports) == 1 else ports, strict=True)
    queries = [urlencode(query | {"host": name, "port": port}) for name, port in places]
    return [parts._replace(query=each).geturl() for each in queries]


def _server_settings(url: str) -> dict[str, str]:
    """Return the name of this process, which ``pg_stat_activity`` and the server's log show.

    It is one of the parameters that a pooler passes on. A name in the URL has precedence.
    """
    if _APPLICATION_NAME in split_url(url)[1]:
        return {}
    place = f" {os.getpid()}"
    host = socket.gethostname()[: _MAX_NAME - len(_PROGRAM) - len(place) - 1]
    return {_APPLICATION_NAME: f"{_PROGRAM} {host}{place}"}


# --- connections ---------------------------------------------------------------------------------


def end(connection: Any) -> None:
    """End a connection at once, without waiting for the server."""
    with suppress(asyncpg.InterfaceError):  # it was lost, and is in asyncpg's pool again
        connection.terminate()


class WatchedConnection(asyncpg.Connection):
    """A connection that knows when its server has completed a statement."""

    answered_at = 0.0
    """Monotonic time. It is in the future while a statement may take longer."""
    _protocol: Any

    @property
    def watched(self) -> WatchedConnection:
        """This connection. A proxy of asyncpg's pool returns the connection behind it."""
        return self

    has_ended_silent = False
    """True if the connection was ended because its server was silent."""

    def end_silent(self) -> None:
        """End the connection, whatever the driver waits for."""
        self.has_ended_silent, protocol = True, self._protocol
        self.terminate()
        if protocol is not None:
            protocol.resume_writing()  # a driver that waits until it may send then sees the end

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        if "timeout" in options:
            return await self._execute_script(query, options["timeout"])
        status: str = await super().execute(query, *args)
        self.answered_at = time.monotonic()
        return status

    async def _execute_script(self, script: str, seconds: float) -> str:
        """Run statements that may take longer than the watch allows."""
        self.answered_at = time.monotonic() + seconds
        try:
            status: str = await super().execute(script, timeout=seconds)
        finally:
            self.answered_at = time.monotonic()
        return status

    async def executemany(self, command: str, args: Any, **options: Any) -> None:
        await super().executemany(command, args, **options)
        self.answered_at = time.monotonic()

    async def fetch(self, query: str, *args: Any, **options: Any) -> list[Any]:
        rows: list[Any] = await super().fetch(query, *args, **options)
        self.answered_at = time.monotonic()
        return rows

    async def fetchmany(self, query: str, args: Any, **options: Any) -> list[Any]:
        rows: list[Any] = await super().fetchmany(query, args, **options)
        self.answered_at = time.monotonic()
        return rows

    async def prepare(self, query: str, **options: Any) -> Any:
        statement = await super().prepare(query, **options)
        self.answered_at = time.monotonic()
        return statement


class Watch:
    """Ends connections in use whose server has completed nothing for some time.

    The driver has its own limits, and some of its waits escape them: it forgets the limit of the
    statement after an empty ``fetchmany``, waits without one while it closes a prepared statement,
    and ignores a cancellation while it waits until it may send. The watch depends on none of that.
    One timer checks all connections, so that a use costs neither a task nor a timer.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._watched: set[WatchedConnection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, connection: WatchedConnection) -> None:
        """Watches a connection from now on."""
        connection.answered_at = time.monotonic()
        self._watched.add(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._check)

    def stop(self, connection: WatchedConnection) -> None:
        self._watched.discard(connection)

    def _check(self) -> None:
        self._timer = None
        due = time.monotonic() - self._seconds
        for connection in [each for each in self._watched if each.answered_at <= due]:
            self._watched.discard(connection)
            connection.end_silent()
        if self._watched:
            self._timer = asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._check)


# --- poolers -------------------------------------------------------------------------------------


async def has_pooler(connection: Any) -> bool:
    """Return True if a pooler answers: it tells another process id than the server's."""
    pid = connection.get_server_pid()
    return bool(await connection.execute(f"SELECT WHERE pg_backend_pid() = {pid:d}") == "SELECT 0")


async def check_pooler(connect: Callable[[], Awaitable[Any]], needs_session: bool) -> None:
    """Raise SettingsError if the pooler does not fit.

    One that gives each transaction another connection of the server must keep prepared statements,
    and does not fit where the service needs a session, for notifications.
    """
    async with AsyncExitStack() as stack:
        connections = []
        for _ in range(2):
            connections.append(await connect())
            stack.callback(connections[-1].terminate)
        try:
            is_shared = await _share_backends(*connections)
            loses_statements = is_shared and await _keeps_name(connections[0])
        except LOST_STATEMENT_ERRORS:
            is_shared = loses_statements = True
    if is_shared and needs_session:
        raise SettingsError(_TRANSACTION_POOLER)
    if loses_statements:
        raise SettingsError(f"The database cannot be used: {LOST_STATEMENT}")


async def _share_backends(first: Any, second: Any) -> bool:
    """Return True if the first connection changes its server process, or the second one gets it.

    A pooler gives the next transaction the process that was used last, or the one that was not used
    for longest. If others use the pooler, chance decides, so this is repeated. No transaction stays
    open: many workers that start together would wait for each other.
    """
    backend = await first.fetchval(_BACKEND)
    for _ in range(_ROUNDS):
        for connection, is_same in ((first, True), (second, False)):
            if (await connection.fetchval(_BACKEND) == backend) != is_same:
                return True
    return False


async def _keeps_name(connection: Any) -> bool:
    """Return True if a prepared statement has the client's name on the server.

    A pooler that keeps the statements of many clients has to rename them.
    """
    await connection.execute("BEGIN")
    statement = await connection.prepare("SELECT 1")
    name = statement.get_name()
    found = await connection.execute(f"SELECT FROM pg_prepared_statements WHERE name = '{name}'")
    return bool(found != "SELECT 0")
