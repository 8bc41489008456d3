"""The HTTP library: the only module of the client that knows httpx2."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from gleanery.client.configuration import is_loopback
from gleanery.client.errors import ConnectionFailed, InvalidResponse, NotConfigured, TimedOut
from gleanery.client.requests import Request
from gleanery.client.responses import Response

if TYPE_CHECKING:
    import httpx2


class AsyncBody(Protocol):
    """Response whose body is read in pieces."""

    status: int
    headers: Mapping[str, str]

    def pieces(self) -> AsyncIterator[bytes]: ...
    async def read(self) -> bytes: ...


class AsyncTransport:
    """Sends requests with httpx2, which is imported with the first request."""

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        timeout: float,
        connect_timeout: float,
        http_client: httpx2.AsyncClient | None,
    ) -> None:
        self._base_url = base_url
        self._headers = dict(headers)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._client = http_client
        self._is_own_client = http_client is None
        self._is_closed = False
        self._lock = threading.Lock()

    async def send(self, request: Request) -> Response:
        """Send a request, and read the whole response."""
        async with self.stream(request) as body:
            content = await body.read()
            return Response(body.status, body.headers, content)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncBody]:
        """Send a request. Its response is read in the context.

        Raise ConnectionFailed or TimedOut, also for errors while the body is read.
        """
        import httpx2

        try:
            async with self._open().stream(
                request.method,
                self._base_url + request.target,
                headers=self._headers | request.headers,
                content=request.body,
                timeout=httpx2.Timeout(
                    self._timeout,
                    read=self._timeout + request.extra_seconds,
                    connect=self._connect_timeout,
                ),
                follow_redirects=False,
            ) as response:
                yield _Body(response)
        except httpx2.TimeoutException:
            raise TimedOut(f"{self._base_url} did not respond in time") from None
        except httpx2.DecodingError:
            raise InvalidResponse(f"{self._base_url} sent a damaged compressed response") from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError):
            raise NotConfigured(
                f"{self._base_url} or a header cannot be sent: check the address and the token"
            ) from None
        except httpx2.TransportError as error:
            raise ConnectionFailed(
                f"{self._base_url} cannot be reached, or the connection broke: {error}"
            ) from None

    async def aclose(self) -> None:
        """Close the connections. An HTTP client that the caller has given stays open."""
        self._is_closed = True
        if self._client is not None and self._is_own_client:
            await self._client.aclose()

    def _open(self) -> httpx2.AsyncClient:
        with self._lock:  # threads can share a client
            if self._is_closed:
                raise NotConfigured("The client is closed: create a new one")
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def _new_client(self) -> httpx2.AsyncClient:
        import ssl  # takes 10 ms

        import httpx2

        certificates: Any = True
        if self._base_url.startswith("http:"):  # loading the system's certificates takes 90 ms
            certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client = httpx2.AsyncClient(verify=certificates)
        if is_loopback(self._base_url):  # compression costs more time than it saves
            client.headers["accept-encoding"] = "identity"
        return client


class _Body:
    """Body of a response of httpx2."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response

    def pieces(self) -> AsyncIterator[bytes]:
        return self._response.aiter_bytes()

    async def read(self) -> bytes:
        return await self._response.aread()
