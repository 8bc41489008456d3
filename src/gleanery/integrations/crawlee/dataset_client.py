"""Dataset client of Crawlee: items are stored as the outputs of a job."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from crawlee.storage_clients._base import DatasetClient
from crawlee.storage_clients.models import DatasetItemsListPage, DatasetMetadata

from gleanery.integrations.crawlee.batches import Batches, Item
from gleanery.integrations.crawlee.job import DatasetJob
from gleanery.integrations.crawlee.outputs import ItemView

UNLIMITED = 999_999_999_999
"""Crawlee's default for a limit."""


class GleaneryDatasetClient(DatasetClient):
    """Client of one dataset. Nothing at the service is ever deleted.

    Reading returns the outputs of the job, each once and with its current data, oldest change
    first. An item that is pushed again with the same key is the same output.
    """

    def __init__(self, job: DatasetJob, dataset_id: str, name: str | None) -> None:
        self._job = job
        self._batches = Batches(job.store)
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
        await self._batches.add(items)
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
        shown = ItemView(fields, omit, skip_empty or clean, skip_hidden or clean)
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
        shown = ItemView(fields, omit, skip_empty or clean, skip_hidden or clean)
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
