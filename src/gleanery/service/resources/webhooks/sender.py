"""Sends one event to a webhook: the signed request, its connection, and what its response means.

Requests follow Standard Webhooks 1.0. The service never follows a redirect, reads at most 16 KiB of
a response, and gives an attempt 15 seconds in all.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import re
import ssl
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpcore2
from httpcore2 import (
    URL,
    AnyIOBackend,
    AsyncHTTPConnection,
    AsyncNetworkBackend,
    AsyncNetworkStream,
)

from gleanery.common.version import __version__
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.webhooks.deliveries import Answer
from gleanery.service.resources.webhooks.endpoints import Target
from gleanery.service.resources.webhooks.models import MAX_HEADER_VALUE
from gleanery.service.resources.webhooks.targets import TargetRefused, Targets

TIMEOUT_SECONDS = 15.0
_MAX_RESPONSE_BYTES = 16 * 1024  # with its head, and the lengths of its chunks
_LEAST_BYTES = 64  # as which each piece of a response counts
_MAX_CHUNKS = 200
_MAX_SHOWN_BYTES = 1024
_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 30.0
_MAX_IDLE = 100
_UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_CLOSED = (httpcore2.RemoteProtocolError, httpcore2.ReadError, httpcore2.WriteError)
"""Errors of a connection that the receiver has closed."""
_DEFAULT_HEADERS = ((b"user-agent", f"Gleanery/{__version__}".encode()), (b"accept", b"*/*"))
"""Headers that a webhook may replace."""
_SECRET_WORDS = (re.compile(rb'[^\s"\\]{8,}'), re.compile(rb"[A-Za-z0-9._~-]{8,}"))
"""Whole words, and their parts that JSON, HTML and URLs never escape."""


class _Request(NamedTuple):
    url: str
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    secret_words: Sequence[bytes]
    """Parts of the values of headers. They are hidden if the response repeats them."""


class _ResponseTooLong(Exception):
    """The receiver sends more than the service reads."""


class Sender:
    """The connections to all webhooks.

    A webhook gets one event at a time, so it has at most one connection. A pool of connections
    would look at all of them for each request.
    """

    def __init__(self, targets: Targets, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._ssl_context = httpcore2.default_ssl_context()
        self._backends = {
            scheme: _CheckedBackend(targets, is_encrypted=scheme == "https")
            for scheme in ("http", "https")
        }
        self._idle: dict[str, AsyncHTTPConnection] = {}
        """Connections that may be used again, by URL; the one that was used last is the last."""

    async def close(self) -> None:
        while self._idle:
            await self._close_first()

    async def _close_first(self) -> None:
        await self._idle.pop(next(iter(self._idle))).aclose()

    async def send(self, target: Target, delivery_id: str, body: bytes) -> Answer:
        """Send a request. A failure is a part of the answer."""
        if not target.keys:
            return Answer(error="the secret of the webhook cannot be decrypted: rotate it")
        if target.lost_header is not None:
            name = target.lost_header
            return Answer(error=f"the value of the header {name} cannot be decrypted: set it again")
        timestamp = self._clock() // timestamps.SECOND
        own = [
            (b"host", urlsplit(target.url).netloc.encode()),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *signed_headers(delivery_id, timestamp, body, target.keys),
        ]
        given = [(name.encode(), value.encode()) for name, value in target.headers]
        names = {name.lower() for name, _ in given}
        defaults = [header for header in _DEFAULT_HEADERS if header[0] not in names]
        values = b" ".join(value for _, value in given)
        words = {word for pattern in _SECRET_WORDS for word in pattern.findall(values)}
        request = _Request(
            target.url, [*own, *defaults, *given], body, sorted(words, key=len, reverse=True)
        )
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await self._send(request)
        except (TimeoutError, httpcore2.TimeoutException):
            return Answer(error=f"no complete response within {TIMEOUT_SECONDS:.0f} seconds")
        except TargetRefused as error:
            return Answer(error=f"refused: {error}")
        except _ResponseTooLong:
            kilobytes = _MAX_RESPONSE_BYTES // 1024
            return Answer(error=f"the response has more than {kilobytes} KB before its body")
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
            return Answer(error=_describe(error))

    async def _send(self, request: _Request) -> Answer:
        """Send a request with the idle connection of its URL, or with a new one."""
        idle = self._idle.pop(request.url, None)
        if idle is not None and not idle.has_expired():
            with suppress(*_CLOSED):  # the receiver may close it at this moment
                return await self._exchange(idle, request)
        elif idle is not None:
            await idle.aclose()
        return await self._exchange(self._new_connection(request.url), request)

    async def _exchange(self, connection: AsyncHTTPConnection, request: _Request) -> Answer:
        url, headers, body, _ = request
        try:
            async with connection.stream("POST", url, headers=headers, content=body) as response:
                content = await _read_start(response.aiter_stream())
        except BaseException:
            await connection.aclose()
            raise
        if connection.is_available() and url not in self._idle:
            self._idle[url] = connection
            if len(self._idle) > _MAX_IDLE:
                await self._close_first()
        else:
            await connection.aclose()
        status = response.status
        for word in request.secret_words:
            content = content.replace(word, b"*" * len(word))
        shown = content[:_MAX_SHOWN_BYTES].decode("utf-8", "replace")
        shown = _UNREADABLE.sub("\ufffd", shown)
        if 200 <= status <= 299:
            return Answer(status, shown)
        error = f"the response has the status {status}, not one from 200 to 299"
        if 300 <= status <= 399:
            error = f"the response is a redirect ({status}), which is not followed"
        return Answer(status, shown, error, self._retry_after(response.headers))

    def _new_connection(self, url: str) -> AsyncHTTPConnection:
        """Return a connection that the request will open."""
        return AsyncHTTPConnection(
            URL(url).origin,
            ssl_context=self._ssl_context,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=self._backends[urlsplit(url).scheme],
        )

    def _retry_after(self, headers: Iterable[tuple[bytes, bytes]]) -> int | None:
        """Return the seconds of a Retry-After header, which is a number or a date."""
        text = next((value for name, value in headers if name.lower() == b"retry-after"), b"")
        if re.fullmatch(rb"[0-9]{1,9}", text):
            return int(text)
        try:
            date = parsedate_to_datetime(text.decode("ascii", "replace"))
            return max(int(date.timestamp()) - self._clock() // timestamps.SECOND, 0)
        except (ValueError, OverflowError):
            return None


async def _read_start(chunks: AsyncIterable[bytes]) -> bytes:
    """Return the start of a body: what is shown, with the end of a secret word that begins there.

    A chunk of one byte costs as much as a large one, so their number is limited. If the body was
    not read to its end, the connection has to be closed.
    """
    content, left, needed = bytearray(), _MAX_CHUNKS, _MAX_SHOWN_BYTES + MAX_HEADER_VALUE
    with suppress(_ResponseTooLong):
        async for chunk in chunks:
            content += chunk
            left -= 1
            if not left:
                break
        else:
            return bytes(content[:needed])
    if len(content) < needed:  # without the last word, which may be the start of a secret one
        del content[max(content.rfind(end) for end in b'\t\n\r "\\') + 1 :]
    return bytes(content[:needed])


def signed_headers(
    delivery_id: str, timestamp: int, body: bytes, keys: Iterable[bytes]
) -> list[tuple[bytes, bytes]]:
    """Return the headers of Standard Webhooks, with a signature for each key."""
    content = b"%s.%d.%s" % (delivery_id.encode(), timestamp, body)
    signatures = [b"v1," + base64.b64encode(hmac.digest(key, content, "sha256")) for key in keys]
    return [
        (b"webhook-id", delivery_id.encode()),
        (b"webhook-timestamp", b"%d" % timestamp),
        (b"webhook-signature", b" ".join(signatures)),
    ]


def _describe(error: Exception) -> str:
    """Return what went wrong, without addresses, which can be internal."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate is not valid: {cause.verify_message}"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpcore2.ConnectError | OSError):
        return "no connection: the host was not found, or does not respond"
    if isinstance(error, httpcore2.ProtocolError):
        return "the response is not valid HTTP, or the connection was closed before its end"
    return "the connection was lost"


class _CheckedBackend(AsyncNetworkBackend):
    """Opens connections to checked addresses only."""

    def __init__(self, targets: Targets, *, is_encrypted: bool) -> None:
        self._targets = targets
        self._is_encrypted = is_encrypted
        self._backend = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to one of the addresses of the host, in their order."""
        addresses = await self._targets.addresses(host, port, is_encrypted=self._is_encrypted)
        failure: Exception = httpcore2.ConnectError()
        for address in addresses[:4]:
            try:
                stream = await self._backend.connect_tcp(
                    address, port, _CONNECT_SECONDS / 2, local_address, socket_options
                )
                return _LimitedStream(stream)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class _LimitedStream(AsyncNetworkStream):
    """Reads a limited number of bytes after each request, in a limited number of pieces.

    The work for a response depends on its parts. Without the limits, a receiver could keep this
    process busy with responses before the response, many headers, or chunks of one byte.
    """

    def __init__(self, stream: AsyncNetworkStream) -> None:
        self._stream = stream
        self._left = _MAX_RESPONSE_BYTES

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        if self._left <= 0:
            raise _ResponseTooLong
        data = await self._stream.read(min(max_bytes, self._left), timeout)
        self._left -= max(len(data), _LEAST_BYTES)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._left = _MAX_RESPONSE_BYTES
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> AsyncNetworkStream:
        return _LimitedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
