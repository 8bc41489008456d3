"""Reviews of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleanery.client._async.pager import AsyncPager
from gleanery.client._async.requester import AsyncRequester
from gleanery.client.pages import ArrayPages
from gleanery.client.requests import Request, json_request, path
from gleanery.client.responses import Response

if TYPE_CHECKING:
    from gleanery.client.models import Review, ReviewStatus


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

    async def review(
        self, group: str, job_id: str, status: ReviewStatus, comment: str = ""
    ) -> Review:
        """Add a review of a job. It is added once, also if the request is sent again."""
        from gleanery.client.models import Review

        body = {"job_id": job_id, "status": status, "comment": comment}
        request = json_request("POST", path("reviews", group), body, has_idempotency_key=True)
        return await self._requester.fetch(request, Review)

    async def approve(self, group: str, job_id: str, comment: str = "") -> Review:
        """Approve the current outputs of a job."""
        return await self.review(group, job_id, "approved", comment)
