"""The client: its options, and the methods of every resource."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gleanery.client._async.changes import AsyncChanges
from gleanery.client._async.exports import AsyncExports
from gleanery.client._async.files import AsyncFiles
from gleanery.client._async.groups import AsyncGroups, AsyncReviews
from gleanery.client._async.monitors import AsyncMonitors
from gleanery.client._async.outputs import AsyncOutputs
from gleanery.client._async.requester import AsyncRequester
from gleanery.client._async.runs import AsyncRuns
from gleanery.client._async.sessions import AsyncCookies, AsyncLocalStorage, AsyncSessions
from gleanery.client._async.webhooks import AsyncWebhooks
from gleanery.client.configuration import resolve
from gleanery.client.errors import Forbidden
from gleanery.client.requests import Request, path
from gleanery.client.retries import RetryPolicy

if TYPE_CHECKING:
    import httpx2


class AsyncClient(
    AsyncChanges,
    AsyncCookies,
    AsyncExports,
    AsyncFiles,
    AsyncGroups,
    AsyncLocalStorage,
    AsyncMonitors,
    AsyncOutputs,
    AsyncReviews,
    AsyncRuns,
    AsyncSessions,
    AsyncWebhooks,
):
    """Client of a Gleanery service.

    Without arguments, it uses ``GLEANERY_URL`` and ``GLEANERY_TOKEN``, or the login of
    ``gleanery login``. It connects with the first request. Close it, or use it in a context:

        async with AsyncClient() as client:
            async for output in client.outputs("shop-prices"):
                print(output.data)
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        connect_timeout: float = 5.0,
        max_retries: int = 4,
        max_retry_after: float = 120.0,
        headers: Mapping[str, str] | None = None,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        self._requester = AsyncRequester(
            resolve(base_url, token),
            RetryPolicy(max_retries, max_retry_after),
            headers or {},
            timeout,
            connect_timeout,
            http_client,
        )

    @property
    def base_url(self) -> str:
        """Address of the service."""
        return self._requester.base_url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._requester.base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def check(self) -> None:
        """Raise ClientError if the service cannot be reached, or does not accept the token."""
        request = Request("GET", path("groups"), {"limit": 1})
        try:
            await self._requester.fetch(request, list)
        except Forbidden as error:
            if not error.is_explained:  # a proxy has rejected the request
                raise
            # the token is valid, and has other scopes

    async def aclose(self) -> None:
        """Close the connections."""
        await self._requester.aclose()
