"""Dataset client of Crawlee: items are stored as the outputs of a job, and read from there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from math import inf
from typing import Any, NamedTuple

from crawlee.storage_clients._base import DatasetClient
from crawlee.storage_clients.models import DatasetItemsListPage, DatasetMetadata

from gleanery.client import PushFailed
from gleanery.client.queue.batches import MAX_ITEMS, BatchQueue
from gleanery.integrations.crawlee.job import DatasetJob, Item

UNLIMITED = 999_999_999_999
"""Crawlee's default for a limit."""


class GleaneryDatasetClient(DatasetClient):
    """Client of one dataset. Nothing at the service is ever deleted.

    Reading returns the outputs of the job, each once and with its current data, oldest change
    first. An item that is pushed again with the same key is the same output.
    """

    def __init__(self, job: DatasetJob, dataset_id: str, name: str | None) -> None:
        self._job = job
        self._requests = _SharedRequests(job.store)
        now = datetime.now(UTC)
        self._metadata = DatasetMetadata(
            id=dataset_id, name=name, created_at=now, accessed_at=now, modified_at=now, item_count=0
        )

    async def get_metadata(self) -> DatasetMetadata:
        """Return the metadata; ``item_count`` is the number of items that were stored here."""
        self._metadata.item_count = self._job.stored
        return self._metadata

    async def drop(self) -> None:
        """Start anew, as ``purge``. Raise NotImplementedError for a named dataset."""
        if self._metadata.name is not None:
            job = self._job
            raise NotImplementedError(
                "The outputs of a dataset are not deleted from Crawlee. To delete them, call "
                f"delete_job({job.group!r}, {job.job!r}) of gleanery.Client"
            )
        await self.purge()

    async def purge(self) -> None:
        """Start anew: what is stored stays at the service, and is no longer read here."""
        self._job.start_anew()
        self._metadata.modified_at = datetime.now(UTC)

    async def push_data(self, data: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> None:
        """Store items, and return when they are stored."""
        items: Sequence[Item] = data if isinstance(data, Sequence) else [data]
        await self._requests.store(items)
        self._metadata.modified_at = datetime.now(UTC)

    async def get_data(
        self,
        *,
        offset: int = 0,
        limit: int | None = UNLIMITED,
        clean: bool = False,
        desc: bool = False,
        fields: list[str] | None = None,
        omit: list[str] | None = None,
        unwind: list[str] | None = None,
        skip_empty: bool = False,
        skip_hidden: bool = False,
        flatten: list[str] | None = None,
        view: str | None = None,
    ) -> DatasetItemsListPage:
        """Return items. To count them, all outputs of the job are read."""
        _reject(unwind=unwind, flatten=flatten, view=view)
        shown = _ItemView(fields, omit, skip_empty or clean, skip_hidden or clean)
        last = UNLIMITED if limit is None else offset + limit
        total = 0
        window: deque[dict[str, Any]] = deque(maxlen=last if desc else None)
        async for item in self._job.read():
            if desc or offset <= total < last:
                window.append(item)
            total += 1
        found = islice(reversed(window), offset, None) if desc else window
        items = [item for item in map(shown.apply, found) if shown.keeps(item)]
        self._metadata.accessed_at = datetime.now(UTC)
        return DatasetItemsListPage(
            count=len(items),
            offset=offset,
            limit=max(total - offset, 0) if limit is None else limit,
            total=total,
            desc=desc,
            items=items,
        )

    async def iterate_items(
        self,
        *,
        offset: int = 0,
        limit: int | None = None,
        clean: bool = False,
        desc: bool = False,
        fields: list[str] | None = None,
        omit: list[str] | None = None,
        unwind: list[str] | None = None,
        skip_empty: bool = False,
        skip_hidden: bool = False,
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Iterate over items, with one page in memory. With ``desc``, a limit is necessary."""
        _reject(unwind=unwind)
        if limit is None:
            limit = UNLIMITED
        options: Any = {
            "clean": clean,
            "fields": fields,
            "omit": omit,
            "skip_empty": skip_empty,
            "skip_hidden": skip_hidden,
        }
        if desc:
            for item in await self._last_items(offset, limit, options):
                yield item
            return
        shown = _ItemView(fields, omit, skip_empty or clean, skip_hidden or clean)
        position = 0
        async for found in self._job.read():
            if position >= offset + limit:
                return
            item = shown.apply(found)
            if position >= offset and shown.keeps(item):
                yield item
            position += 1

    async def _last_items(
        self, offset: int, limit: int, options: dict[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        if limit >= UNLIMITED:
            raise NotImplementedError(
                "The service has no descending order: iterate with a limit, or call get_data(desc="
                "True), which has all items in memory"
            )
        page = await self.get_data(offset=offset, limit=limit, desc=True, **options)
        return page.items


def _reject(**options: object) -> None:
    """Raise NotImplementedError for options that Gleanery has no equivalent of."""
    given = [name for name, value in options.items() if value]
    if given:
        raise NotImplementedError(
            f"{', '.join(given)}: not supported for a dataset in Gleanery. Read all items, and "
            "change them in Python, or export the group with 'gleanery export'"
        )


# --- storing ------------------------------------------------------------------------------------


class _Call(NamedTuple):
    """Items of one call, and the future that it waits for."""

    items: Sequence[Item]
    stored: asyncio.Future[None]


class _SharedRequests:
    """Sends the items of concurrent calls together (group commit).

    A call returns when its items are stored. While a batch is being sent, the next one collects the
    items of other calls. So no item is only in memory when Crawlee marks its request as handled.
    """

    def __init__(self, send: Callable[[list[Item]], Awaitable[None]]) -> None:
        self._send = send
        # A call waits for its items, so the number of calls needs no limit, and no batch waits.
        self._calls: BatchQueue[_Call] = BatchQueue(MAX_ITEMS, max_seconds=0, max_batches=inf)
        self._sender: asyncio.Task[None] | None = None

    async def store(self, items: Sequence[Item]) -> None:
        """Store the items, in their order. Raise the error that has kept them from being stored."""
        for start in range(0, len(items), MAX_ITEMS):
            call = _Call(
                items[start : start + MAX_ITEMS], asyncio.get_running_loop().create_future()
            )
            self._calls.add(call, 0, len(call.items))  # the client divides a batch by its bytes
            if self._sender is None or self._sender.done():
                self._sender = asyncio.create_task(self._send_all())
            await call.stored

    async def _send_all(self) -> None:
        while calls := self._take():
            try:
                await self._send_together(calls)
            finally:  # the event loop may end
                for call in calls:
                    call.stored.cancel()

    def _take(self) -> list[_Call]:
        """Return the calls of the next batch. A call that was cancelled before is left out."""
        while (batch := self._calls.first(0)) is not None:
            self._calls.remove_first()
            if taken := [call for call in batch.entries if not call.stored.done()]:
                return taken
        return []

    async def _send_together(self, calls: list[_Call]) -> None:
        try:
            await self._send([item for call in calls for item in call.items])
        except PushFailed as error:
            if len(calls) == 1 or not error.errors:
                _fail(calls, error)
                return
            for call in calls:  # only the calls whose items are invalid fail
                await self._send_together([call])
        except Exception as error:
            _fail(calls, error)
        else:
            for call in calls:
                if not call.stored.done():
                    call.stored.set_result(None)


def _fail(calls: list[_Call], error: Exception) -> None:
    for call in calls:
        if not call.stored.done():
            call.stored.set_exception(error)


# --- reading ------------------------------------------------------------------------------------


class _ItemView(NamedTuple):
    """Part of each item that a reader of a dataset wants."""

    fields: list[str] | None
    omit: list[str] | None
    skip_empty: bool
    skip_hidden: bool

    def apply(self, item: dict[str, Any]) -> dict[str, Any]:
        """Return the wanted members, in the wanted order."""
        names = [name for name in self.fields if name in item] if self.fields else list(item)
        hidden = self.omit or ()
        return {
            name: item[name]
            for name in names
            if name not in hidden and not (self.skip_hidden and name.startswith("#"))
        }

    def keeps(self, item: dict[str, Any]) -> bool:
        return bool(item) or not self.skip_empty
