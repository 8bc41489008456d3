"""Groups and their jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gleanery.client._async.pager import AsyncPager
from gleanery.client._async.requester import AsyncRequester
from gleanery.client.pages import ArrayPages
from gleanery.client.requests import Request, json_request, path
from gleanery.client.responses import Response

if TYPE_CHECKING:
    from gleanery.client.models import Fields, Group

_MAX_JOBS = 1000


class AsyncGroups:
    """Methods of the client for groups."""

    _requester: AsyncRequester

    def groups(
        self, *, cursor: int = 0, page_size: int = 100, limit: int | None = None
    ) -> AsyncPager[Group]:
        """Return the groups in the order of their creation, each with its first 100 jobs."""
        from gleanery.client.models import Group

        async def read_page(position: int, size: int) -> Response:
            parameters = {"cursor": position, "limit": size}
            return await self._requester.send(Request("GET", path("groups"), parameters))

        return AsyncPager(
            read_page, ArrayPages(Group), cursor=cursor, page_size=page_size, limit=limit
        )

    async def group(self, group: str) -> Group:
        """Return one group with all its jobs."""
        from msgspec.structs import replace

        page = await self._read_group(group, 0)
        jobs = page.jobs
        while page.metadata.next_cursor is not None:
            page = await self._read_group(group, page.metadata.next_cursor)
            jobs += page.jobs
        return replace(page, jobs=jobs)

    async def fields(self, group: str, job_id: str | None = None) -> Fields:
        """Return how often each field is filled, and with which values, with a schema for them."""
        from gleanery.client.models import Fields

        request = Request("GET", path("groups", group, "fields"), {"job_id": job_id})
        return await self._requester.fetch(request, Fields)

    async def set_group(
        self,
        group: str,
        *,
        display_name: str | None = None,
        key_fields: Sequence[str] | None = None,
        schema: Mapping[str, Any] | None = None,
        retain_days: int | None = None,
        keep_versions: int | None = None,
        keep_days: int | None = None,
    ) -> Group:
        """Replace the settings of a group, or create it. A setting that is missing is reset."""
        from gleanery.client.models import Group

        settings = {
            "display_name": display_name,
            "key_fields": key_fields,
            "schema": schema,
            "retain_days": retain_days,
            "keep_versions": keep_versions,
            "keep_days": keep_days,
        }
        request = json_request("PUT", path("groups", group), settings)
        return await self._requester.fetch(request, Group)

    async def delete_group(self, group: str) -> int:
        """Delete a group with all its records. Return the number of deleted outputs."""
        return await self._requester.delete(path("groups", group))

    async def delete_job(self, group: str, job_id: str) -> int:
        """Delete a job with its outputs and reviews. Return the number of deleted outputs."""
        return await self._requester.delete(path("groups", group, "jobs", job_id))

    async def _read_group(self, group: str, cursor: int) -> Group:
        from gleanery.client.models import Group

        parameters = {"cursor": cursor, "limit": _MAX_JOBS}
        return await self._requester.fetch(Request("GET", path("groups", group), parameters), Group)
