"""Runs: one execution of a job, from its start to its end, with what it has stored."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from gleanery.client import runs
from gleanery.client._async.concurrency import Items
from gleanery.client._async.outputs import MAX_BATCH_BYTES, MAX_BATCH_SIZE, AsyncPush
from gleanery.client._async.pager import AsyncPager
from gleanery.client.errors import ClientError, Forbidden, NotFound
from gleanery.client.pages import RunPages
from gleanery.client.requests import Parameter, Request, json_request, path
from gleanery.client.responses import Response

if TYPE_CHECKING:
    from gleanery.client.models import FinalRunStatus, RunRecord, RunStatus
    from gleanery.client.pushes import ProgressCallback, PushReport

_NEWEST = 2**63 - 1  # position before every run
_STOP_SECONDS = 10.0
"""Longest wait for the end of a run, while the program is being stopped."""


class AsyncRuns(AsyncPush):
    """Methods of the client for runs, and the push into them."""

    def run(self, group: str, *, job_id: str, labels: Mapping[str, str] | None = None) -> AsyncRun:
        """Return a run of a job, for an ``async with`` statement.

        Entering it starts the run. Leaving it finishes the run as complete, or after an exception
        as failed. ``labels`` are arguments of the run, such as a country.

        In a program of ``gleanery run exec`` for the same group and job, it is the run of that
        command. Then leaving it does not finish the run as complete: the command does. If that run
        has ended, a new run is started, which ends as partial: it is only a part of the execution.
        """
        return AsyncRun(self, group, job_id, labels)

    async def start_run(
        self, group: str, job_id: str, labels: Mapping[str, str] | None = None
    ) -> RunRecord:
        """Start a run of a job. It is started once, even if the request is sent again.

        Push its outputs with ``run_id``, from as many processes as you like, and finish it.
        """
        from gleanery.client.models import RunRecord

        body = {"job_id": job_id, "labels": None if labels is None else dict(labels)}
        request = json_request("POST", path("runs", group), body, has_idempotency_key=True)
        return await self._requester.fetch(request, RunRecord)

    async def finish_run(
        self, group: str, run_id: str, status: FinalRunStatus, message: str | None = None
    ) -> RunRecord:
        """Finish a run. To repeat it is harmless, but another status raises Conflict.

        Only a complete run makes outputs missing: those of its job that no run has sent since its
        start. If the job has at most 10,000 outputs, the counts are final. Otherwise
        ``comparison`` is ``pending``, and ``get_run`` has them later.
        """
        return await self._finish_run(group, run_id, status, message)

    async def _finish_run(
        self,
        group: str,
        run_id: str,
        status: FinalRunStatus,
        message: str | None,
        *,
        max_timeout: float | None = None,
    ) -> RunRecord:
        """Finish a run. With a timeout, there is only one attempt."""
        from gleanery.client.models import RunRecord

        target = path("runs", group, run_id, "finish")
        request = json_request("POST", target, {"status": status, "message": message})
        request.max_timeout = max_timeout
        request.is_retried = max_timeout is None
        return await self._requester.fetch(request, RunRecord)

    def runs(
        self,
        group: str,
        *,
        job_id: str | None = None,
        status: RunStatus | None = None,
        cursor: int = _NEWEST,
        page_size: int = 100,
        limit: int | None = None,
    ) -> AsyncPager[RunRecord]:
        """Return the runs of a group or job, newest first. A job keeps its last 1,000 runs."""
        filters: dict[str, Parameter] = {"job_id": job_id, "status": status}

        async def read_page(position: int, size: int) -> Response:
            parameters = {**filters, "cursor": position, "limit": size}
            return await self._requester.send(Request("GET", path("runs", group), parameters))

        return AsyncPager(read_page, RunPages(), cursor=cursor, page_size=page_size, limit=limit)

    async def get_run(self, group: str, run_id: str) -> RunRecord:
        """Return one run, with its counts."""
        from gleanery.client.models import RunRecord

        return await self._requester.fetch(Request("GET", path("runs", group, run_id)), RunRecord)

    async def decide_removal(
        self, group: str, run_id: str, decision: Literal["remove", "keep"]
    ) -> RunRecord:
        """Remove the missing outputs of a run whose ``removal`` is ``held``, or keep them.

        To repeat the decision is harmless. The token needs the scope ``reviews:write``.
        """
        from gleanery.client.models import RunRecord

        target = path("runs", group, run_id, "removal")
        request = json_request("POST", target, {"decision": decision})
        return await self._requester.fetch(request, RunRecord)


class AsyncRun:
    """Run of a job, which is started and finished by its context.

        async with client.run("prices", job_id="shop") as run:
            await run.push(items)

    Leaving the context without an exception finishes the run as complete, or as partial if invalid
    items were left out. An exception finishes it as failed, with the type and the text of the
    exception as the message, and is raised again. ``finish`` ends the run before, for example as
    partial; then leaving does nothing.

    Finish it as complete only if it has sent all outputs that the job has now: the others of the
    job are missing then. If the process dies, the run is abandoned after some hours.
    """

    def __init__(
        self, client: AsyncRuns, group: str, job_id: str, labels: Mapping[str, str] | None
    ) -> None:
        self._client = client
        self.group = group
        self.job_id = job_id
        self._labels = labels
        self._record: RunRecord | None = None
        self._is_given = False
        """True if the run is that of ``gleanery run exec``, which finishes it."""
        self._follows_ended_run = False
        """True if the run of ``gleanery run exec`` ended before this one started."""
        self._is_finished = False
        self._skipped = 0
        """Items that were left out, because they are not valid."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.group!r}, job_id={self.job_id!r})"

    @property
    def run_id(self) -> str:
        """Id of the run, with which other processes can push into it."""
        return self.record.run_id

    @property
    def record(self) -> RunRecord:
        """The run as the service has last described it: at its start, or at its end."""
        if self._record is None:
            raise RuntimeError("The run is not started: use it in a with statement")
        return self._record

    async def __aenter__(self) -> Self:
        if self._record is not None:
            raise RuntimeError("A run is used once: call run() again")
        given = await self._find_given()
        self._is_given = given is not None and given.status == "running"
        self._follows_ended_run = given is not None and given.status != "running"
        if self._is_given:
            self._record = given
            return self
        self._record = await self._client.start_run(self.group, self.job_id, self._labels)
        if given is not None:
            reason = f"The run {given.run_id} of gleanery run exec has ended"
            runs.warn(f"{reason}, so the run {self.run_id} will end as partial")
        return self

    async def _find_given(self) -> RunRecord | None:
        """Return the run in which this program was started, if it is of this job.

        With a run in that run, one execution would count as two complete runs. Outputs would be
        removed too early.
        """
        run_id = runs.run_of_environment(self.group, self.job_id)
        if run_id is None:
            return None
        try:
            record = await self._client.get_run(self.group, run_id)
        except (Forbidden, NotFound):  # the token can only write, or belongs to another service
            return None
        return record if record.job_id == self.job_id else None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_finished:
            return
        if error is None and self._skipped:
            await self.finish("partial", runs.describe_skipped(self._skipped))
        elif error is None and self._is_given:
            with suppress(ClientError):  # the items are stored, and only the counts are old
                self._record = await self._client.get_run(self.group, self.run_id)
        elif error is None:
            await self.finish("complete")
        else:
            await self._fail(error)

    async def push(
        self,
        items: Items,
        *,
        url_field: str | None = None,
        key_field: str | None = None,
        batch_size: int = MAX_BATCH_SIZE,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        on_error: Literal["fail", "skip"] = "fail",
        on_progress: ProgressCallback | None = None,
    ) -> PushReport:
        """Store items of the run's job, each the ``data`` of an output; see ``push`` of the client.

        For items that are whole outputs, call that method with ``run_id``. If an item is skipped,
        the run ends as partial: its output would be missing although the job still has it.
        """
        report = await self._client.push(
            self.group,
            items,
            job_id=self.job_id,
            url_field=url_field,
            key_field=key_field,
            batch_size=batch_size,
            max_batch_bytes=max_batch_bytes,
            on_error=on_error,
            on_progress=on_progress,
            run_id=self.run_id,
        )
        self._skipped += report.skipped
        return report

    async def finish(
        self, status: FinalRunStatus = "complete", message: str | None = None
    ) -> RunRecord:
        """Finish the run now, and return it with its counts. A long message is shortened.

        A run is not complete if that of ``gleanery run exec`` ended before: it ends as partial.
        """
        if status == "complete" and self._follows_ended_run:
            status, message = "partial", message or runs.AFTER_ENDED_RUN
        if message is not None:
            message = runs.shorten_message(message)
        self._record = await self._client.finish_run(self.group, self.run_id, status, message)
        self._is_finished = True
        return self._record

    async def _fail(self, error: BaseException) -> None:
        """Finish the run as failed. If that fails, the error of the caller is still raised.

        A program that is being stopped, for example with Ctrl-C, does not wait for retries.
        """
        timeout = None if isinstance(error, Exception) else _STOP_SECONDS
        message = runs.describe_error(error)
        try:
            self._record = await self._client._finish_run(
                self.group, self.run_id, "failed", message, max_timeout=timeout
            )
        except Exception as failure:
            runs.warn(f"The run {self.run_id} is not finished, and will be abandoned: {failure}")
        self._is_finished = True
