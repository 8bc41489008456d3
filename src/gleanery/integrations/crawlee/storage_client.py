"""Storage client of Crawlee: datasets at the service, everything else in another storage client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from crawlee.configuration import Configuration
from crawlee.storage_clients import FileSystemStorageClient, StorageClient

from gleanery.client import AsyncClient, PushReport
from gleanery.integrations import limit_request_log
from gleanery.integrations.crawlee.dataset_client import GleaneryDatasetClient
from gleanery.integrations.crawlee.job import DatasetJob, OutputFields
from gleanery.integrations.crawlee.runs import StorageRuns

if TYPE_CHECKING:
    from crawlee.storage_clients._base import KeyValueStoreClient, RequestQueueClient

    from gleanery.client.models import FinalRunStatus

_MAX_RETRIES = 60  # about six minutes: an error ends the crawl
_DEFAULT_ALIAS = "__default__"  # Crawlee's alias of the dataset without a name


class GleaneryStorageClient(StorageClient):
    """Stores the items of datasets as outputs of a group.

        crawler = ParselCrawler(storage_client=GleaneryStorageClient("shop-prices", "shop"))

    Items of the default dataset belong to ``job``. Another dataset has the job of its name or
    alias. ``url_field`` and ``key_field`` name the members of an item that are its URL and its key,
    and ``file_fields`` those with ids of stored files. An invalid item is logged and left out, or,
    with ``on_error="fail"``, ends the crawl. Key-value stores and request queues are those of
    ``storage_client``, by default of Crawlee's file system.

    In an ``async with`` statement, the block is a run of each job, with ``labels``, unless ``run``
    is False. It ends as complete, as partial if requests have failed or are left, or if items were
    not stored, and as failed after an exception.
    """

    def __init__(
        self,
        group: str,
        job: str,
        *,
        client: AsyncClient | None = None,
        url_field: str = "url",
        key_field: str | None = None,
        file_fields: Sequence[str] = (),
        on_error: Literal["fail", "skip"] = "skip",
        storage_client: StorageClient | None = None,
        run: bool = True,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        if isinstance(file_fields, str):
            raise TypeError("file_fields must be a list of names")
        self._client = client or AsyncClient(max_retries=_MAX_RETRIES)
        self._owns_client = client is None
        self._group = group
        self._job = job
        self._fields = OutputFields(url_field, key_field, tuple(file_fields))
        self._on_error: Literal["fail", "skip"] = on_error
        self._others = storage_client or FileSystemStorageClient()
        self._runs = StorageRuns(self._client, group, labels, is_enabled=run)
        self._skipped: Counter[str] = Counter()
        limit_request_log()
        self.report = PushReport()
        """Number of items that were created, updated, unchanged and skipped, of all datasets."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._group!r}, {self._job!r})"

    async def __aenter__(self) -> Self:
        await self._runs.open(self._job)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._runs.close(error, self._skipped)
        finally:
            await self.close()

    async def finish(self, status: FinalRunStatus, message: str | None = None) -> None:
        """Finish the runs of the block now. Its end does not finish them again."""
        await self._runs.finish(status, message)

    async def close(self) -> None:
        """Close the connections to the service. Every pushed item is stored already."""
        if self._owns_client:
            await self._client.aclose()

    def get_storage_client_cache_key(self, configuration: Configuration) -> Hashable:
        """Return a key that no other client has: the same dataset may have another token."""
        return self, self._others.get_storage_client_cache_key(configuration)

    async def create_dataset_client(
        self,
        *,
        id: str | None = None,  # noqa: A002
        name: str | None = None,
        alias: str | None = None,
        configuration: Configuration | None = None,
    ) -> GleaneryDatasetClient:
        """Open a dataset. One without a name starts anew, if ``purge_on_start`` is set."""
        if id is not None:
            name = self._name_of(id)
        job = name or (alias if alias != _DEFAULT_ALIAS else None) or self._job
        store = DatasetJob(
            self._client,
            self._group,
            job,
            self._fields,
            self._on_error,
            self.report,
            self._runs,
            self._skipped,
        )
        client = GleaneryDatasetClient(store, f"{self._group}/{job}", name)
        configuration = configuration or Configuration.get_global_configuration()
        await self._purge_if_needed(client, configuration)
        return client

    def _name_of(self, dataset_id: str) -> str | None:
        """Return the name of the dataset with this id; None for the default dataset."""
        group, _, job = dataset_id.partition("/")
        if group != self._group or not job:
            raise ValueError(
                f"There is no dataset with the id {dataset_id!r}: an id is {self._group}/JOB"
            )
        return None if job == self._job else job

    async def create_kvs_client(
        self,
        *,
        id: str | None = None,  # noqa: A002
        name: str | None = None,
        alias: str | None = None,
        configuration: Configuration | None = None,
    ) -> KeyValueStoreClient:
        """Open a key-value store of the other storage client."""
        return await self._others.create_kvs_client(
            id=id, name=name, alias=alias, configuration=configuration
        )

    async def create_rq_client(
        self,
        *,
        id: str | None = None,  # noqa: A002
        name: str | None = None,
        alias: str | None = None,
        configuration: Configuration | None = None,
    ) -> RequestQueueClient:
        """Open a request queue of the other storage client."""
        queue = await self._others.create_rq_client(
            id=id, name=name, alias=alias, configuration=configuration
        )
        await self._runs.watch(queue)
        return queue
