"""Sending of requests: the token, retries and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from gleanery.client import retries
from gleanery.client._async.concurrency import head_of, sleep
from gleanery.client._async.transport import AsyncBody, AsyncTransport
from gleanery.client.configuration import Credentials
from gleanery.client.errors import ClientError, ConnectionFailed, NotFound
from gleanery.client.requests import Request
from gleanery.client.responses import Response, decode, find_page

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class AsyncRequester:
    """Sends requests to one service with one token, and retries temporary failures."""

    def __init__(
        self,
        credentials: Credentials,
        policy: retries.RetryPolicy,
        headers: Mapping[str, str],
        timeout: float,
        connect_timeout: float,
        http_client: httpx2.AsyncClient | None,
    ) -> None:
        self.base_url = credentials.url
        self._policy = policy
        self._transport = AsyncTransport(
            credentials, headers, timeout, connect_timeout, http_client
        )

    async def send(self, request: Request) -> Response:
        """Send a request until it succeeds. Raise ClientError if it fails for good."""
        request.retries = 0
        while True:
            result = await self._attempt(request)
            if isinstance(result, Response) and result.status < 300:
                return result
            await self._wait_for_retry(request, result)

    async def receive(
        self,
        next_request: Callable[[], Request],
        read: Callable[[AsyncBody], Awaitable[None]],
    ) -> None:
        """Send requests until the whole body of a response is read.

        The request of each attempt can continue where the last one stopped. Then it has other
        headers, and the number of retries begins again.
        """
        request = next_request()
        while (failure := await self._attempt_to_read(request, read)) is not None:
            following = next_request()
            following.retries = request.retries if following.headers == request.headers else 0
            request = following
            await self._wait_for_retry(request, failure)

    async def _wait_for_retry(self, request: Request, failure: Response | ClientError) -> None:
        """Wait before the next attempt. Raise ClientError if there is none."""
        may_repeat = retries.may_repeat(request, failure)
        delay = self._policy.delay(failure, request.retries) if may_repeat else None
        if delay is None:
            raise retries.as_error(failure, request.retries + 1, request.path)
        request.retries += 1
        reason = retries.as_error(failure, request.retries, request.path)
        _log_retry(reason, request.retries, delay)
        await sleep(delay)

    async def fetch(self, request: Request, kind: type[T]) -> T:
        """Send a request, and decode its response."""
        return decode(await self.send(request), kind)

    async def delete(self, path: str) -> int:
        """Delete a record, and return the number of deleted ones.

        If only a later attempt does not find the record, an earlier one has deleted it, and its
        response was lost. The number is then 0.
        """
        from gleanery.client.models import Deleted

        try:
            return (await self.fetch(Request("DELETE", path), Deleted)).deleted
        except NotFound as error:
            if error.attempts == 1 or not error.is_explained:
                raise
            return 0

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _attempt(self, request: Request) -> Response | ClientError:
        try:
            response = await self._transport.send(request)
            return find_page(response) or response
        except ClientError as error:
            error.__context__ = None  # an error of the HTTP library can contain headers
            failure = error
        return await self._read_rejection(request, failure) or failure

    async def _read_rejection(self, request: Request, failure: ClientError) -> Response | None:
        """Return the response that has rejected a request before its end, if it was lost."""
        head = head_of(request) if isinstance(failure, ConnectionFailed) else None
        if head is None:
            return None
        with suppress(ClientError):
            response = await self._transport.send(head)
            return response if response.status >= 300 else None
        return None

    async def _attempt_to_read(
        self, request: Request, read: Callable[[AsyncBody], Awaitable[None]]
    ) -> Response | ClientError | None:
        try:
            async with self._transport.stream(request) as body:
                if body.status >= 300:
                    return Response(body.status, body.headers, await body.read())
                await read(body)
                return None
        except ClientError as error:
            error.__context__ = None  # an error of the HTTP library can contain headers
            return error


def _log_retry(reason: ClientError, retry: int, delay: float) -> None:
    import logging  # takes 10 ms

    logging.getLogger("gleanery.client").info("%s: retry %d in %.1f s", reason, retry, delay)
