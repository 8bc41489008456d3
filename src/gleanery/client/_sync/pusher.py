# Generated from _async by checks/sync_client.py: edit that package, and run make client.
"""The work of a push: encoding items, and sending their batches one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

from gleanery.client import pushes, runs
from gleanery.client._sync.concurrency import Items, iterate, run_in_thread
from gleanery.client._sync.requester import Requester
from gleanery.client.configuration import is_loopback
from gleanery.client.errors import ClientError, TooLarge
from gleanery.client.items import FLUSH, InvalidItem, encode_item, encode_plain
from gleanery.client.models import BatchResult
from gleanery.client.pushes import Batch, ItemError, ProgressCallback, PushFailed, PushReport
from gleanery.client.requests import Request
from gleanery.client.responses import decode
from gleanery.client.runs import PushRun


class Pusher:
    """One push."""

    def __init__(
        self,
        requester: Requester,
        request: Request,
        run: PushRun,
        max_items: int,
        max_bytes: int,
        skips_invalid: bool,
        on_progress: ProgressCallback | None,
    ) -> None:
        self._requester = requester
        self._path = request.path
        self._parameters = {**request.parameters, "on_error": "skip" if skips_invalid else None}
        self._run = run
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._skips_invalid = skips_invalid
        self._on_progress = on_progress
        self._compresses = not is_loopback(requester.base_url)
        self._report = PushReport()
        self._batch = Batch()

    def push(self, items: Items) -> PushReport:
        if type(items) is list:  # its items do not change while they are sent
            self._add_list(items)
        else:
            for item in self._read(items):
                if item is FLUSH:
                    self._flush_rest()
                else:
                    self._add(item)
        self._flush_rest()
        return self._report

    def _add_list(self, items: list[Any]) -> None:
        """Encode as many items at once as a batch has, if they are plain dicts."""
        for start in range(0, len(items), self._max_items):
            part = items[start : start + self._max_items]
            lines = encode_plain(part)
            if lines is None or self._batch.lines or len(lines) > self._max_bytes:
                for item in part if lines is None else lines.splitlines():
                    self._add(item)
            else:
                self._batch.add_all(lines)
                self._flush_if_full()

    def _read(self, items: Items) -> Iterator[Any]:
        """Iterate over the items. If their source fails, those before the failure are stored."""
        try:
            yield from iterate(items)
        except (Exception, KeyboardInterrupt) as error:
            self._flush_rest()
            error.add_note(f"{pushes.describe_stored(self._report)}.")
            raise

    def _flush_rest(self) -> None:
        if self._batch.end > self._report.items:
            self._flush()

    def _add(self, item: Any) -> None:
        index = self._batch.end
        try:
            line = encode_item(item)
        except InvalidItem as error:
            self._batch.invalid.append(ItemError(index, error.loc, str(error), "json"))
        else:
            if line:
                if not self._batch.has_room(line, self._max_bytes):
                    self._flush()
                self._batch.add(index, line)
        self._batch.end = index + 1
        self._flush_if_full()

    def _flush_if_full(self) -> None:
        if self._batch.is_full(self._max_items):  # now: the next item may take long
            self._flush()

    def _flush(self) -> None:
        batch = self._batch
        if batch.invalid and not self._skips_invalid:
            raise PushFailed(self._report, batch.invalid, None)
        if batch.lines:
            for part in self._divide(batch):
                self._store(part)
        else:
            pushes.add_skipped(self._report, batch, [])
        self._batch = Batch(end=batch.end)
        if self._on_progress is not None:
            self._on_progress(self._report)

    def _divide(self, batch: Batch) -> Iterable[Batch]:
        """Return the items of other jobs and those of the run: they need two requests."""
        if self._run.run_id is None or self._run.job is None:
            return (batch,)
        return pushes.divide(batch, self._run.job, self._report.items)

    def _store(self, batch: Batch) -> None:
        """Send a batch, or its halves if it is too large."""
        try:
            self._send(batch)
        except ClientError as error:
            if self._can_leave_run(error, batch):
                self._store(batch)
            elif self._can_split(error, batch):
                for half in batch.split():
                    self._store(half)
            elif self._skips_invalid and pushes.concerns_items(error, batch):
                self._skip(batch, error)
            else:
                failed = pushes.find_errors(batch, error)
                raise PushFailed(self._report, failed, error) from error

    def _can_leave_run(self, error: ClientError, batch: Batch) -> bool:
        """Return True if the items are stored without the run, which the caller did not choose."""
        run, problem = self._run, runs.describe_problem(error)
        if problem is None or not (run.is_default and run.run_id and batch.is_in_run):
            return False
        runs.warn(f"Items are stored without the run {run.run_id}: {problem}")
        self._run = run._replace(run_id=None)
        return True

    def _can_split(self, error: ClientError, batch: Batch) -> bool:
        if len(batch.lines) == 1:
            return False
        if isinstance(error, TooLarge):  # a limit of a proxy: the next batches are smaller
            self._max_bytes = min(self._max_bytes, max(batch.size // 2, 1))
            return True
        return self._skips_invalid and pushes.concerns_items(error, batch)

    def _send(self, batch: Batch) -> None:
        # The key lasts for all attempts, so that a repeated batch is counted as the first was.
        headers = {"content-type": "application/x-ndjson", "idempotency-key": uuid4().hex}
        body = batch.body
        if self._compresses:
            compressed = run_in_thread(pushes.compress, body)
            if compressed is not body:
                headers["content-encoding"] = "gzip"
            body = compressed
        run_id = self._run.run_id if batch.is_in_run else None
        parameters = {**self._parameters, "run_id": run_id}
        request = Request("POST", self._path, parameters, headers, body)
        try:
            result = decode(self._requester.send(request), BatchResult)
        finally:
            self._report.retries += request.retries
        pushes.add_result(self._report, batch, result)

    def _skip(self, batch: Batch, error: ClientError) -> None:
        """Skip the only item of a batch, which is beyond a limit of the service."""
        self._report.skipped += 1
        pushes.add_skipped(self._report, batch, pushes.find_errors(batch, error))
