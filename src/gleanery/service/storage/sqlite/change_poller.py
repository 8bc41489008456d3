"""The poll for changes of a SQLite file. It notifies subscriptions about changes by any process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import apsw

from gleanery.service.storage import tenancy
from gleanery.service.storage.database import Subscription, Subscriptions, Watch
from gleanery.service.storage.sqlite.connections import (
    TEMPORARY_ERRORS,
    to_sqlite,
    unavailable,
)

_POLL_SECONDS = 0.03
_LAST_CHANGE = "SELECT last_seq, deleted FROM groups WHERE organization_id = $1 AND name = $2"


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
            self._start(reader)
            yield subscription

    @asynccontextmanager
    async def watch(self, reader: apsw.Connection) -> AsyncIterator[Watch]:
        """Subscribe to every change of the file until the context ends."""
        with self._subscriptions.add_watch(Watch()) as watch:
            self._start(reader)
            yield watch

    def stop_subscriptions(self) -> None:
        self._subscriptions.stop()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _start(self, reader: apsw.Connection) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._poll(reader))

    async def _poll(self, reader: apsw.Connection) -> None:
        version = None
        while self._subscriptions:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                previous, version = version, reader.pragma("data_version")
                if version != previous:
                    self._notify_changed(reader)
                    self._subscriptions.notify_watches()
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
