# Generated from _async by checks/sync_client.py: edit that package, and run make client.
"""The client: its options, and the methods of every resource."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gleanery.client._sync.changes import Changes
from gleanery.client._sync.exports import Exports
from gleanery.client._sync.files import Files
from gleanery.client._sync.groups import Groups, Reviews
from gleanery.client._sync.monitors import Monitors
from gleanery.client._sync.outputs import Outputs
from gleanery.client._sync.requester import Requester
from gleanery.client._sync.runs import Runs
from gleanery.client._sync.sessions import Cookies, LocalStorage, Sessions
from gleanery.client._sync.webhooks import Webhooks
from gleanery.client.configuration import resolve
from gleanery.client.errors import Forbidden
from gleanery.client.requests import Request, path
from gleanery.client.retries import RetryPolicy

if TYPE_CHECKING:
    import httpx2


class Client(
    Changes,
    Cookies,
    Exports,
    Files,
    Groups,
    LocalStorage,
    Monitors,
    Outputs,
    Reviews,
    Runs,
    Sessions,
    Webhooks,
):
    """Client of a Gleanery service.

    Without arguments, it uses ``GLEANERY_URL`` and ``GLEANERY_TOKEN``, or the login of
    ``gleanery login``. It connects with the first request. Close it, or use it in a context:

        with Client() as client:
            for output in client.outputs("shop-prices"):
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
        http_client: httpx2.Client | None = None,
    ) -> None:
        self._requester = Requester(
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def check(self) -> None:
        """Raise ClientError if the service cannot be reached, or does not accept the token."""
        request = Request("GET", path("groups"), {"limit": 1})
        try:
            self._requester.fetch(request, list)
        except Forbidden as error:
            if not error.is_explained:  # a proxy has rejected the request
                raise
            # the token is valid, and has other scopes

    def close(self) -> None:
        """Close the connections."""
        self._requester.close()
