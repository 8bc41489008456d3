"""Outputs of a group: reading them, and storing the items of any iterable."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from gleanery.client._async.concurrency import Items
from gleanery.client._async.pager import AsyncOutputPager, AsyncPager
from gleanery.client._async.requester import AsyncRequester
from gleanery.client.pages import OutputPages, VersionPages
from gleanery.client.requests import Request, path
from gleanery.client.responses import Response
from gleanery.client.runs import DefaultRun, choose_run

if TYPE_CHECKING:
    from gleanery.client.models import Output, Version
    from gleanery.client.pushes import ProgressCallback, PushReport
    from gleanery.client.requests import View

MAX_PAGE_SIZE = 1000
_VERSIONS_PER_PAGE = 100
_NEWEST = 2**63 - 1  # position after every version
MAX_BATCH_SIZE = 1000
MAX_BATCH_BYTES = 1024 * 1024
"""The service stores so many lines of NDJSON, and so many bytes, in one transaction."""
_DEFAULT_URL_FIELD = "url"


class AsyncOutputs:
    """Methods of the client for outputs."""

    _requester: AsyncRequester

    def outputs(
        self,
        group: str,
        *,
        job_id: str | None = None,
        created_after: date | str | None = None,
        url: str | None = None,
        country: str | None = None,
        region: str | None = None,
        approved: bool | None = None,
        view: View | None = None,
        missing: Literal[True] | None = None,
        cursor: int = 0,
        page_size: int = MAX_PAGE_SIZE,
        limit: int | None = None,
    ) -> AsyncOutputPager:
        """Return the outputs of a group, oldest change first.

        ``created_after`` also returns outputs that were updated since then. ``limit`` is the
        largest number of outputs. An output that changes during the iteration comes again.

        ``approved`` keeps the outputs that are approved now, or the others. ``view="approved"``
        returns each output in its last approved version, even if it has a newer value.
        ``missing=True`` keeps the outputs that the last complete run of their job did not send.
        """
        filters = {
            "job_id": job_id,
            "created_after": created_after,
            "url": url,
            "country": country,
            "region": region,
            "approved": approved,
            "view": view,
            "missing": missing,
        }

        async def read_page(position: int, size: int) -> Response:
            parameters = {**filters, "cursor": position, "limit": size}
            return await self._requester.send(Request("GET", path("outputs", group), parameters))

        return AsyncOutputPager(
            read_page, OutputPages(), cursor=cursor, page_size=page_size, limit=limit
        )

    async def output(
        self, group: str, output_id: str, *, at: int | date | str | None = None
    ) -> Output:
        """Return one output; with ``at``, a cursor or a date, the output as it was then.

        If the output did not exist then, it raises NotFound. If that version is no longer kept, it
        raises CursorExpired.
        """
        from gleanery.client.models import Output

        request = Request("GET", path("outputs", group, output_id), {"at": at})
        return await self._requester.fetch(request, Output)

    def history(
        self,
        group: str,
        output_id: str,
        *,
        page_size: int = _VERSIONS_PER_PAGE,
        limit: int | None = None,
    ) -> AsyncPager[Version]:
        """Return the versions of an output, newest first, each with the fields that it changed."""

        async def read_page(position: int, size: int) -> Response:
            parameters = {"cursor": position, "limit": size}
            target = path("outputs", group, output_id, "history")
            return await self._requester.send(Request("GET", target, parameters))

        return AsyncPager(
            read_page, VersionPages(), cursor=_NEWEST, page_size=page_size, limit=limit
        )

    async def delete_output(self, group: str, output_id: str) -> None:
        """Delete one output. The change feed reports it."""
        await self._requester.delete(path("outputs", group, output_id))


class AsyncPush:
    """Methods of the client that store outputs."""

    _requester: AsyncRequester

    async def push(
        self,
        group: str,
        items: Items,
        *,
        job_id: str | None = None,
        url_field: str | None = None,
        key_field: str | None = None,
        batch_size: int = MAX_BATCH_SIZE,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        on_error: Literal["fail", "skip"] = "fail",
        on_progress: ProgressCallback | None = None,
        run_id: str | DefaultRun | None = DefaultRun.OF_PROCESS,
    ) -> PushReport:
        """Store items in a group, in their order. One batch is in memory.

        With ``job_id``, an item is the ``data`` of an output, and ``url_field`` (default: ``url``)
        names its URL. Without it, an item is an output: ``{"job_id", "source_url", "data", …}``.
        An item is a dict or another object with members; or one line of JSON, as text or bytes.

        Each batch is stored exactly once, even if it is sent several times. With
        ``on_error="skip"``, invalid items are left out, and the report lists them. Otherwise
        the first invalid item raises PushFailed, and its batch is not stored. An error of
        ``items`` itself, or Ctrl-C while it waits, is raised after the items before it are stored.
        A note of the error says how many.

        With ``run_id``, the items belong to that run; see ``run``. Without it, they belong to the
        run in which ``gleanery run exec`` has started this program, if their group and job are
        those of the run. All others, and all items with ``run_id=None``, belong to the implicit
        run of their job, which ends after a pause of 30 minutes.
        """
        from gleanery.client._async.pusher import AsyncPusher

        _check_push(items, batch_size, max_batch_bytes, on_error)
        if job_id is not None and url_field is None:
            url_field = _DEFAULT_URL_FIELD
        parameters = {
            "job_id": job_id,
            "url_field": url_field,
            "key_field": key_field,
        }
        pusher = AsyncPusher(
            self._requester,
            Request("POST", path("outputs", group), parameters),
            choose_run(run_id, group, job_id),
            batch_size,
            max_batch_bytes,
            on_error == "skip",
            on_progress,
        )
        return await pusher.push(items)


def _check_push(items: Any, batch_size: int, max_batch_bytes: int, on_error: str) -> None:
    if isinstance(items, str | bytes | dict):
        raise TypeError("items must be an iterable of items, such as a list or an open file")
    if not 1 <= batch_size <= MAX_BATCH_SIZE:
        raise ValueError(f"batch_size must be between 1 and {MAX_BATCH_SIZE}")
    if not 1 <= max_batch_bytes <= MAX_BATCH_BYTES:
        raise ValueError(f"max_batch_bytes must be between 1 and {MAX_BATCH_BYTES}")
    if on_error not in ("fail", "skip"):
        raise ValueError("on_error must be fail or skip")
