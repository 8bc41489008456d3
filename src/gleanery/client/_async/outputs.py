"""Outputs of a group."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from gleanery.client._async.pager import AsyncOutputPager, AsyncPager
from gleanery.client._async.requester import AsyncRequester
from gleanery.client.pages import OutputPages, VersionPages
from gleanery.client.requests import Request, path
from gleanery.client.responses import Response

if TYPE_CHECKING:
    from gleanery.client.filters import View
    from gleanery.client.models import Output, Version

MAX_PAGE_SIZE = 1000
_VERSIONS_PER_PAGE = 100
_NEWEST = 2**63 - 1  # position after every version


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
        cursor: int = 0,
        page_size: int = MAX_PAGE_SIZE,
        limit: int | None = None,
    ) -> AsyncOutputPager:
        """Return the outputs of a group, oldest change first.

        ``created_after`` also returns outputs that were updated since then. ``limit`` is the
        largest number of outputs. An output that changes during the iteration comes again.

        ``approved`` keeps the outputs that are approved now, or the others. ``view="approved"``
        returns each output in its last approved version, also if it has a newer value.
        """
        filters = {
            "job_id": job_id,
            "created_after": created_after,
            "url": url,
            "country": country,
            "region": region,
            "approved": approved,
            "view": view,
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
