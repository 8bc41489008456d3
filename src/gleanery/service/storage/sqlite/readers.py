"""Reads outside requests: large rows in a separate thread, and the poll for changes of the file.

``LargeReads`` does not block the event loop. ``ChangePoller`` notifies subscriptions about changes
by any process.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw

from gleanery.service.foundation.errors import Unavailable
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore
from gleanery.service.storage import tenancy
from gleanery.service.storage.database import Row, Subscription, Subscriptions
from gleanery.service.storage.sqlite.connections import (
    TEMPORARY_ERRORS,
    OpenFiles,
    connect_reader,
    to_sqlite,
    unavailable,
)

_SLOTS = 3  # a tenant alone holds two, so that the thread always has the next read
_WAIT_SECONDS = 30.0
_NICENESS = 10
_TOO_MANY = "Too many large pages and exports are being read; try again"
_POLL_SECONDS = 0.03
_LAST_CHANGE = "SELECT last_seq, deleted FROM groups WHERE organization_id = $1 AND name = $2"


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


# --- changes -------------------------------------------------------------------------------------


class ChangePoller:
    """Polls for changes while there are subscriptions.

    A poll reads the version of the file, which every commit of every process changes. The groups
    are read only if the version has changed.
    """

    def __init__(self) -> None:
        self._subscriptions = Subscriptions()
        self._last_changes: dict[str, Any] = {}  # by channel
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def subscribe(self, channel: str, reader: apsw.Connection) -> AsyncIterator[Subscription]:
        """Subscribe to the channel of a group until the context ends."""
        with self._subscriptions.add(channel, Subscription()) as subscription:
            try:
                self._last_changes.setdefault(channel, _last_change(reader, channel))
            except TEMPORARY_ERRORS as error:
                raise unavailable(error) from error
            if self._task is None:
                self._task = asyncio.create_task(self._poll(reader))
            yield subscription

    def stop_subscriptions(self) -> None:
        self._subscriptions.stop()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _poll(self, reader: apsw.Connection) -> None:
        version = None
        while self._subscriptions:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                previous, version = version, reader.pragma("data_version")
                if version != previous:
                    self._notify_changed(reader)
            except apsw.Error:
                self._subscriptions.notify_all()  # their own reads will get the error
        self._task = None

    def _notify_changed(self, reader: apsw.Connection) -> None:
        channels = self._subscriptions.channels()
        for channel in self._last_changes.keys() - channels:
            del self._last_changes[channel]
        for channel in channels:
            last_change = _last_change(reader, channel)
            if self._last_changes.get(channel) != last_change:
                self._last_changes[channel] = last_change
                self._subscriptions.notify(channel)


def _last_change(reader: apsw.Connection, channel: str) -> Any:
    """Read the state of the group that the channel belongs to; see ``group_lock.channel``."""
    organization_id, _, group = channel.partition("/")
    sql = to_sqlite(_LAST_CHANGE, tenancy.ANY_TENANT)
    return reader.execute(sql, (int(organization_id), group)).fetchall()
