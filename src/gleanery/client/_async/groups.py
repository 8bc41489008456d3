"""Groups, and the reviews of their jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gleanery.client._async.pager import AsyncPager
from gleanery.client._async.requester import AsyncRequester
from gleanery.client.pages import ArrayPages
from gleanery.client.requests import Parameter, Request, json_request, path
from gleanery.client.responses import Response

if TYPE_CHECKING:
    from msgspec import Struct

    from gleanery.client.models import (
        Fields,
        Finding,
        Group,
        MissingSettings,
        Review,
        ReviewDetails,
        ReviewSample,
        ReviewStatus,
    )

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
        run_timeout_minutes: int | None = None,
        missing: MissingSettings | Mapping[str, Any] | None = None,
    ) -> Group:
        """Replace the settings of a group, or create it. A setting that is left out is reset.

        ``missing`` says when outputs are removed that complete runs do not send any more, such as
        ``{"after_runs": 3}``. ``run_timeout_minutes`` says how long a run may be silent.
        """
        from gleanery.client.models import Group

        settings = {
            "display_name": display_name,
            "key_fields": key_fields,
            "schema": schema,
            "retain_days": retain_days,
            "keep_versions": keep_versions,
            "keep_days": keep_days,
            "run_timeout_minutes": run_timeout_minutes,
            "missing": None if missing is None else _as_document(missing),
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


class AsyncReviews:
    """Methods of the client for reviews."""

    _requester: AsyncRequester

    def reviews(
        self,
        group: str,
        *,
        history: bool = False,
        cursor: int = 0,
        page_size: int = 1000,
        limit: int | None = None,
    ) -> AsyncPager[Review]:
        """Return the latest review of each job, or with ``history`` all reviews, newest first."""
        from gleanery.client.models import Review

        async def read_page(position: int, size: int) -> Response:
            parameters = {"history": history, "cursor": position or None, "limit": size}
            return await self._requester.send(Request("GET", path("reviews", group), parameters))

        return AsyncPager(
            read_page, ArrayPages(Review), cursor=cursor, page_size=page_size, limit=limit
        )

    async def review_details(self, group: str, review_id: str) -> ReviewDetails:
        """Return one review with its findings."""
        from gleanery.client.models import ReviewDetails

        request = Request("GET", path("reviews", group, review_id))
        return await self._requester.fetch(request, ReviewDetails)

    async def review_sample(
        self, group: str, job_id: str, *, size: int = 50, seed: str | None = None
    ) -> ReviewSample:
        """Return outputs of a job to look at. Its cursor is ``as_of`` of the review.

        While no output of the job changes, the same seed gives the same sample.
        """
        from gleanery.client.models import ReviewSample

        parameters: dict[str, Parameter] = {"job_id": job_id, "size": size, "seed": seed}
        request = Request("GET", path("reviews", group, "sample"), parameters)
        return await self._requester.fetch(request, ReviewSample)

    async def review(
        self,
        group: str,
        job_id: str,
        status: ReviewStatus,
        comment: str = "",
        *,
        as_of: int | None = None,
        output_ids: Sequence[str] | None = None,
        findings: Sequence[Finding | Mapping[str, Any]] = (),
    ) -> Review:
        """Add a review of a job. It is added once, even if the request is sent again.

        With ``as_of``, a cursor, it applies only to values that were stored until then. With
        ``output_ids`` it applies only to these outputs.
        """
        from gleanery.client.models import Review

        body = {
            "job_id": job_id,
            "status": status,
            "comment": comment,
            "as_of": as_of,
            "output_ids": None if output_ids is None else [*output_ids],
            "findings": [_finding_document(finding) for finding in findings],
        }
        request = json_request("POST", path("reviews", group), body, has_idempotency_key=True)
        return await self._requester.fetch(request, Review)

    async def approve(
        self,
        group: str,
        job_id: str,
        comment: str = "",
        *,
        as_of: int | None = None,
        output_ids: Sequence[str] | None = None,
        findings: Sequence[Finding | Mapping[str, Any]] = (),
    ) -> Review:
        """Approve the current outputs of a job, or some of them; see ``review``."""
        return await self.review(
            group,
            job_id,
            "approved",
            comment,
            as_of=as_of,
            output_ids=output_ids,
            findings=findings,
        )

    async def reject(
        self,
        group: str,
        job_id: str,
        comment: str = "",
        *,
        as_of: int | None = None,
        output_ids: Sequence[str] | None = None,
        findings: Sequence[Finding | Mapping[str, Any]] = (),
    ) -> Review:
        """Reject the current outputs of a job, or some of them; see ``review``.

        The approved view then has none of them, not even in an earlier approved version.
        """
        return await self.review(
            group,
            job_id,
            "rejected",
            comment,
            as_of=as_of,
            output_ids=output_ids,
            findings=findings,
        )


def _finding_document(finding: Finding | Mapping[str, Any]) -> dict[str, Any]:
    from gleanery.client.models import Finding

    if not isinstance(finding, Finding | Mapping):
        raise TypeError("each finding must be a Finding, or a dict with output_id, path and note")
    return _as_document(finding)


def _as_document(value: Struct | Mapping[str, Any]) -> dict[str, Any]:
    from msgspec.structs import asdict

    return dict(value) if isinstance(value, Mapping) else asdict(value)
