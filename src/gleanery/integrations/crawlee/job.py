"""A job at the service, as the storage of one dataset: items become outputs, and outputs items."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from gleanery.client import AsyncClient, ClientError, NotFound, PushFailed, PushReport
from gleanery.client.items import InvalidItem
from gleanery.client.runs import concerns_run
from gleanery.integrations.crawlee.runs import StorageRuns

_log = logging.getLogger("gleanery.integrations")

Item = Mapping[str, Any]


class OutputFields(NamedTuple):
    """Members of an item that are the URL, the key and the files of its output."""

    url: str
    key: str | None
    files: tuple[str, ...]

    def to_output(self, job: str, item: Item) -> dict[str, Any] | InvalidItem:
        """Return an item as an output with references to its files, or what is wrong with it."""
        try:
            output: dict[str, Any] = {"job_id": job, "source_url": self._url_of(item), "data": item}
            if self.key is not None:
                output["key"] = self._key_of(item)
            output["files"] = [
                reference for field in self.files for reference in _references(item, field)
            ]
        except InvalidItem as error:
            return error
        return output

    def _url_of(self, item: Item) -> str:
        url = item.get(self.url)
        if not isinstance(url, str) or not url:
            raise InvalidItem(f"{self.url}: must be a text that is not empty")
        return url

    def _key_of(self, item: Item) -> str:
        """Return the key as the service does for the parameter ``key_field``."""
        key = item.get(self.key or "")
        if not isinstance(key, str | int) or isinstance(key, bool) or key == "":
            raise InvalidItem(f"{self.key}: must be a text that is not empty, or an integer")
        return str(key)

    def describe(self, item: Item) -> str:
        """Return what identifies an item in a message: its URL, and its key."""
        names = [self.url] if self.key is None else [self.url, self.key]
        known = [f"{name} {item[name]!r}" for name in names if item.get(name) not in (None, "")]
        return ", ".join(known) or f"with the members {', '.join(map(str, item))}"


def _references(item: Item, field: str) -> Iterator[dict[str, str]]:
    """Yield references to the files whose ids a member has: one id, a list of them, or none."""
    value = item.get(field)
    if value is None:
        return
    if isinstance(value, str):
        yield {"field": field, "id": value}
        return
    if not isinstance(value, list) or not all(isinstance(file_id, str) for file_id in value):
        raise InvalidItem(f"{field}: must be the id of a stored file, or a list of ids")
    for index, file_id in enumerate(value):
        yield {"field": f"{field}[{index}]", "id": file_id}


class DatasetJob:
    """Job that stores the items of a dataset as outputs.

    After ``start_anew``, reading returns only what is stored from then on: the service keeps the
    outputs of earlier runs. Its time of the first valid item, which is stored alone, is the start
    of this run.
    """

    def __init__(
        self,
        client: AsyncClient,
        group: str,
        job: str,
        fields: OutputFields,
        on_error: Literal["fail", "skip"],
        totals: PushReport,
        runs: StorageRuns,
        skipped: Counter[str],
    ) -> None:
        self._client = client
        self.group = group
        self.job = job
        self._fields = fields
        self._on_error = on_error
        self._totals = totals
        self._runs = runs
        self._skipped = skipped
        self.stored = 0
        """Number of items that were stored since the start."""
        self._is_new = False
        self._start: datetime | ClientError | None = None

    def start_anew(self) -> None:
        """Forget what is stored; the service keeps it."""
        self.stored = 0
        self._is_new = True
        self._start = None

    @property
    def _needs_start(self) -> bool:
        return self._is_new and self._start is None

    async def store(self, items: list[Item]) -> None:
        """Store items. Log those that are invalid, or raise PushFailed."""
        done, size = 0, 1
        while done < len(items):
            if not self._needs_start:
                size = len(items)
            part = items[done : done + size]
            if await self._store_part(part) and self._needs_start:
                await self._begin(part)
            done, size = done + size, 2 * size  # not a request for each of many invalid items

    async def _store_part(self, items: list[Item]) -> int:
        """Store items, log those that are invalid, and return how many are stored."""
        report = await self._push(items)
        stored = report.created + report.updated + report.unchanged
        self.stored += stored
        _add(self._totals, report)
        self._skipped[self.job] += report.skipped
        for error in report.errors:
            reason = f"{'.'.join(error.loc)}: {error.msg}" if error.loc else error.msg
            _log.error("The item %s is not stored: %s", self._describe(items[error.index]), reason)
        unnamed = report.skipped - len({error.index for error in report.errors})
        if unnamed > 0:
            _log.error("Not stored: %s further items", unnamed)
        return stored

    async def _begin(self, first: list[Item]) -> None:
        """Let this run start now, with the items that were stored first.

        They are sent again: another crawler may have stored items of the job meanwhile, and then
        the start is later than their date.
        """
        self._start = await self._find_start()
        if isinstance(self._start, datetime):
            await self._push(first)

    async def _push(self, items: list[Item]) -> PushReport:
        """Store items in the run of the job; if it has ended, without it."""
        run_id = await self._runs.run_of(self.job)
        try:
            return await self._push_into(run_id, items)
        except PushFailed as error:
            if run_id is None or not concerns_run(error.cause):
                raise
            self._runs.note_end(self.job, error.cause)
        return await self._push_into(None, items)

    async def _push_into(self, run_id: str | None, items: list[Item]) -> PushReport:
        fields = self._fields
        if not fields.files:
            return await self._client.push(
                self.group,
                items,
                job_id=self.job,
                url_field=fields.url,
                key_field=fields.key,
                on_error=self._on_error,
                run_id=run_id,
            )
        outputs = [self._to_output(item) for item in items]
        return await self._client.push(self.group, outputs, on_error=self._on_error, run_id=run_id)

    def _to_output(self, item: Item) -> dict[str, Any] | InvalidItem:
        return self._fields.to_output(self.job, item)

    def _describe(self, item: Item) -> str:
        return self._fields.describe(item) if hasattr(item, "items") else type(item).__name__

    async def _find_start(self) -> datetime | ClientError:
        """Return the time at which the service has last stored an item of the job.

        An error is raised when the dataset is read: to store items, reading is not necessary.
        """
        try:
            runs = (await self._client.fields(self.group, self.job)).runs
        except ClientError as error:
            return error
        if not runs:  # somebody has deleted the job
            return ClientError(f"The job {self.job} was deleted while its dataset was stored")
        newest = max(run.last_date for run in runs)
        return newest.replace(microsecond=0)  # the dates of outputs have whole seconds

    async def read(self) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the data of the outputs, oldest change first."""
        if self._is_new and not self.stored:
            return
        if isinstance(self._start, ClientError):
            raise self._start
        try:
            async for output in self._client.outputs(self.group, job_id=self.job):
                if self._start is None or output.last_scraped_date >= self._start:
                    yield output.data
        except NotFound as error:
            if not error.is_explained:  # the address is wrong, or a proxy has rejected the request
                raise


def _add(totals: PushReport, report: PushReport) -> None:
    totals.items += report.items
    totals.created += report.created
    totals.updated += report.updated
    totals.unchanged += report.unchanged
    totals.skipped += report.skipped
    totals.batches += report.batches
    totals.retries += report.retries
    totals.errors += report.errors[: 100 - len(totals.errors)]
