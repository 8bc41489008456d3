"""The HTTP library: the only module of the client that knows httpx2."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from gleanery.client._async.concurrency import connection_owner, is_ended, new_http_transport
from gleanery.client.configuration import Credentials, is_loopback
from gleanery.client.errors import (
    ClientError,
    ConnectionFailed,
    InvalidResponse,
    NotConfigured,
    TimedOut,
)
from gleanery.client.requests import Request
from gleanery.client.responses import Response

if TYPE_CHECKING:
    import httpx2


_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
"""Errors of OpenSSL if the other side does not speak TLS. A later attempt gets the same."""


class AsyncBody(Protocol):
    """Response whose body is read in pieces."""

    status: int
    headers: Mapping[str, str]

    def pieces(self) -> AsyncIterator[bytes]: ...
    async def read(self) -> bytes: ...


class AsyncTransport:
    """Sends requests with httpx2, which is imported with the first request.

    Of an HTTP client that the caller gives, it uses the connections. The base URL, the headers,
    the authentication and the parameters of that client would change requests of this service.
    """

    def __init__(
        self,
        credentials: Credentials,
        headers: Mapping[str, str],
        timeout: float,
        connect_timeout: float,
        http_client: httpx2.AsyncClient | None,
    ) -> None:
        self._credentials = credentials
        self._headers = dict(headers)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._given_client = _require_kind(http_client)
        self._own_clients: dict[Any, httpx2.AsyncClient] = {}
        self._is_closed = False

    async def send(self, request: Request) -> Response:
        """Send a request, and read the whole response."""
        async with self.stream(request) as body:
            content = await body.read()
            return Response(body.status, body.headers, content)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncBody]:
        """Send a request. Its response is read in the context.

        Raise ConnectionFailed or TimedOut, including for errors while the body is read.
        """
        import httpx2

        try:
            client = self._open()
            response = await client.send(
                self._to_http(request, client), stream=True, auth=None, follow_redirects=False
            )
            try:
                yield _Body(response)
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeEncodeError) as error:
            failure = self._translate(error)
            if isinstance(failure, ConnectionFailed | TimedOut):
                failure.was_connected = not isinstance(
                    error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout
                )
            raise failure from None

    async def aclose(self) -> None:
        """Close the connections. An HTTP client that the caller has given stays open."""
        self._is_closed = True
        client = self._own_clients.pop(connection_owner(), None)
        if client is not None:
            await client.aclose()

    def _to_http(self, request: Request, client: httpx2.AsyncClient) -> httpx2.Request:
        import httpx2

        headers = httpx2.Headers(self._headers)
        headers.setdefault("user-agent", "gleanery-python")
        headers.setdefault("accept-encoding", client.headers.get("accept-encoding", "identity"))
        headers.update(request.headers)
        headers["authorization"] = f"Bearer {self._credentials.token}"
        return httpx2.Request(
            request.method,
            self._credentials.url + request.target,
            headers=headers,
            content=request.body,
            extensions={"timeout": self._timeouts(request)},
        )

    def _timeouts(self, request: Request) -> dict[str, float]:
        timeouts = {
            "connect": self._connect_timeout,
            "read": self._timeout + request.extra_seconds,
            "write": self._timeout,
            "pool": self._timeout,
        }
        if request.max_timeout is not None:
            timeouts = {name: min(value, request.max_timeout) for name, value in timeouts.items()}
        return timeouts

    def _translate(self, error: Exception) -> ClientError:
        """Return the error of this library. It leaves out texts that can contain headers."""
        import httpx2

        url = self._credentials.url
        if isinstance(error, httpx2.TimeoutException):
            return TimedOut(f"{url} did not respond in time")
        if isinstance(error, httpx2.DecodingError):
            return InvalidResponse(f"{url} sent a damaged compressed response")
        if isinstance(error, httpx2.NetworkError | httpx2.ProxyError):
            return _connection_error(url, str(error))
        if isinstance(error, httpx2.RemoteProtocolError):
            return ConnectionFailed(f"{url} closed the connection early, or does not speak HTTP")
        return NotConfigured(f"A request to {url} cannot be sent: check the address and headers")

    def _open(self) -> httpx2.AsyncClient:
        if self._is_closed:
            raise ClientError("The client is closed: create a new one")
        if self._given_client is not None:
            if self._given_client.is_closed:
                raise ClientError("The HTTP client that was given is closed")
            return self._given_client
        owner = connection_owner()
        client = self._own_clients.get(owner)
        if client is None:  # threads can come here together, so the first one wins
            client = self._own_clients.setdefault(owner, self._new_client())
            self._drop_clients_of_ended_owners()
        return client

    def _new_client(self) -> httpx2.AsyncClient:
        """Return an HTTP client. It uses the proxy and the certificates of the environment."""
        try:
            return self._make_client()
        except ImportError as error:  # a proxy of a kind that needs another package
            raise NotConfigured(f"The proxy of ALL_PROXY cannot be used: {error}") from None
        except OSError as error:
            raise NotConfigured(
                f"The certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}"
            ) from None
        except ValueError:  # its message can have the password of the proxy
            raise NotConfigured(
                "The proxy of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY is not the URL of one"
            ) from None

    def _make_client(self) -> httpx2.AsyncClient:
        import ssl  # takes 10 ms

        import httpx2

        url = self._credentials.url
        if url.startswith("http:"):  # loading the system's certificates takes 90 ms
            certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        else:
            certificates = httpx2.create_ssl_context()
        client = httpx2.AsyncClient(
            verify=certificates, transport=new_http_transport(url, certificates)
        )
        if is_loopback(url):  # compression costs more time than it saves
            client.headers["accept-encoding"] = "identity"
        return client

    def _drop_clients_of_ended_owners(self) -> None:
        for owner in list(self._own_clients):
            if is_ended(owner):
                self._own_clients.pop(owner, None)


def _require_kind(http_client: httpx2.AsyncClient | None) -> httpx2.AsyncClient | None:
    if http_client is not None:
        import httpx2

        if not isinstance(http_client, httpx2.AsyncClient):
            raise TypeError("http_client must be an httpx2.AsyncClient")
    return http_client


def _connection_error(url: str, reason: str) -> ClientError:
    if "CERTIFICATE_VERIFY_FAILED" in reason:  # a later attempt gets the same certificate
        return NotConfigured(f"The certificate of {url} is not valid: {reason}")
    if any(sign in reason for sign in _NO_TLS):
        return NotConfigured(f"The port of {url} does not speak https: use http://, or its port")
    return ConnectionFailed(f"{url} cannot be reached, or the connection broke: {reason}")


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
