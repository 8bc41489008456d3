"""Runs of a storage client of Crawlee: one for each job, from the start to the end of its block.

Crawlee does not tell its storages how a crawl has ended, but its request queues know it. A request
that has failed is marked as handled in the state ERROR. A request that is left was not scraped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crawlee._request import RequestState

from gleanery.client import AsyncClient, ClientError, Conflict
from gleanery.client.runs import describe_error, run_of_environment, shorten_message

if TYPE_CHECKING:
    from crawlee import Request
    from crawlee.storage_clients._base import RequestQueueClient

    from gleanery.client.models import FinalRunStatus

_log = logging.getLogger("gleanery.integrations")
_STOP_SECONDS = 10.0
"""Longest wait for the end of a run, while the program is being stopped."""


class StorageRuns:
    """The runs of the jobs that a storage client stores, and what goes wrong in them."""

    def __init__(
        self, client: AsyncClient, group: str, labels: Mapping[str, str] | None, *, is_enabled: bool
    ) -> None:
        self._client = client
        self._group = group
        self._labels = labels
        self._is_enabled = is_enabled
        self._is_open = False
        self._has_ended = False
        self._runs: dict[str, str | None] = {}
        """Id of the run of each job; None if it has ended."""
        self._given: set[str] = set()
        """Jobs whose run somebody else has started, and will finish."""
        self._starting = asyncio.Lock()
        self._queues: list[RequestQueueClient] = []
        self._failed = 0
        self._is_continued = False

    async def open(self, job: str) -> None:
        """Start the run of the storage client's job. From now on, other jobs get runs as well."""
        self._is_open = self._is_enabled
        await self.run_of(job)

    async def run_of(self, job: str) -> str | None:
        """Return the run of a job, which starts if there is none yet; None without runs.

        Without a block, it is only the run in which ``gleanery run exec`` has started this process.
        """
        if not self._is_enabled or self._has_ended:
            return None
        async with self._starting:
            if job not in self._runs:
                await self._begin(job)
        return self._runs.get(job)

    async def _begin(self, job: str) -> None:
        given = run_of_environment(self._group, job)
        if given is not None:
            self._given.add(job)
            self._runs[job] = given
        elif self._is_open:
            started = await self._client.start_run(self._group, job, self._labels)
            self._runs[job] = started.run_id

    def note_end(self, job: str, error: Exception | None) -> None:
        """Note that the service takes no items of the run of this job any more."""
        _log.warning("Items are stored without the run %s: %s", self._runs[job], error)
        self._runs[job] = None

    async def watch(self, queue: RequestQueueClient) -> None:
        """Count the requests of a queue that fail."""
        if not self._is_enabled or queue in self._queues:
            return
        self._queues.append(queue)
        if (await queue.get_metadata()).handled_request_count:
            self._is_continued = True
        mark = queue.mark_request_as_handled

        async def count_and_mark(request: Request) -> Any:
            if request.state == RequestState.ERROR:
                self._failed += 1
            return await mark(request)

        queue.mark_request_as_handled = count_and_mark  # type: ignore[method-assign]

    async def close(self, error: BaseException | None, skipped: Mapping[str, int]) -> None:
        """Finish the runs: as complete, unless something went wrong. Log if that fails."""
        if not self._is_open:
            return
        self._is_open, self._has_ended = False, True
        problems = [] if error is not None else await self._problems()
        for job in self._runs:
            if error is not None:
                await self._finish(job, "failed", describe_error(error), is_hasty=_is_stop(error))
                continue
            message = ", ".join([*problems, *_describe_skipped(skipped.get(job, 0))])
            if message:
                await self._finish(job, "partial", message[:1].upper() + message[1:])
            elif job not in self._given:
                await self._finish(job, "complete", None)

    async def finish(self, status: FinalRunStatus, message: str | None) -> None:
        """Finish all runs now. Raise an exception if that fails."""
        self._is_open, self._has_ended = False, True
        shown = None if message is None else shorten_message(message)
        for run_id in filter(None, self._runs.values()):
            await self._client.finish_run(self._group, run_id, status, shown)

    async def _problems(self) -> list[str]:
        problems = ["the crawl continues an earlier one"] if self._is_continued else []
        if self._failed:
            noun = "request" if self._failed == 1 else "requests"
            problems.append(f"{self._failed} {noun} failed")
        left = sum([(await queue.get_metadata()).pending_request_count for queue in self._queues])
        if left:
            problems.append("1 request is left" if left == 1 else f"{left} requests are left")
        return problems

    async def _finish(
        self, job: str, status: FinalRunStatus, message: str | None, *, is_hasty: bool = False
    ) -> None:
        run_id = self._runs[job]
        if run_id is None:
            return
        shown = None if message is None else shorten_message(message)
        try:
            async with asyncio.timeout(_STOP_SECONDS if is_hasty else None):
                await self._client.finish_run(self._group, run_id, status, shown)
        except Conflict as conflict:  # somebody has finished it, or it was abandoned
            _log.warning("The run %s is not %s: %s", run_id, status, conflict)
        except (ClientError, TimeoutError) as failure:
            _log.error("The run %s is not finished, and will be abandoned: %s", run_id, failure)


def _is_stop(error: BaseException) -> bool:
    """Return True if the program is being stopped, for example with Ctrl-C."""
    return not isinstance(error, Exception)


def _describe_skipped(skipped: int) -> list[str]:
    if not skipped:
        return []
    return ["1 item was not stored" if skipped == 1 else f"{skipped} items were not stored"]
