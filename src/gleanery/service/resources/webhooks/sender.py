"""Sends one event to a webhook: the signed request, its connection, and what its response means.

Requests follow Standard Webhooks 1.0. The service never follows a redirect, reads at most 16 KiB of
a response, and gives an attempt 15 seconds in all.
"""

from __future__ import annotations

import base64
import hmac
import re
import ssl
import time
from asyncio import timeout
from collections.abc import Callable, Iterable, Sequence
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from httpcore2 import default_ssl_context

from gleanery.common.version import __version__
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.webhooks.connection import (
    MAX_RESPONSE_BYTES,
    ConnectionLost,
    InvalidResponse,
    ReceiverConnection,
    Response,
    ResponseTooLong,
    open_connection,
)
from gleanery.service.resources.webhooks.deliveries import Answer
from gleanery.service.resources.webhooks.endpoints import Target
from gleanery.service.resources.webhooks.models import MAX_HEADER_VALUE
from gleanery.service.resources.webhooks.targets import TargetRefused, Targets

TIMEOUT_SECONDS = 15.0
_MAX_SHOWN_BYTES = 1024
_MAX_ADDRESSES = 4  # of a host, to which a connection is tried
_IDLE_SECONDS = 30.0
_MAX_IDLE = 100
_PORTS = {"http": 80, "https": 443}
_UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_LINE_BREAKS = re.compile(rb"[\r\n\0]")
_DEFAULT_HEADERS = ((b"user-agent", f"Gleanery/{__version__}".encode()), (b"accept", b"*/*"))
"""Headers that a webhook may replace."""
_SECRET_WORDS = (re.compile(rb'[^\s"\\]{8,}'), re.compile(rb"[A-Za-z0-9._~-]{8,}"))
"""Whole words, and their parts that JSON, HTML and URLs never escape."""


class _Request(NamedTuple):
    url: str
    text: bytes
    secret_words: Sequence[bytes]
    """Parts of the values of headers. They are hidden if the response repeats them."""


class _Idle(NamedTuple):
    """A connection that may be used again, until a time of the monotonic clock."""

    connection: ReceiverConnection
    until: float


class Sender:
    """The connections to all webhooks. A webhook gets one event at a time."""

    def __init__(self, targets: Targets, clock: Callable[[], int]) -> None:
        self._targets = targets
        self._clock = clock
        self._ssl_context = default_ssl_context()
        self._idle: dict[str, _Idle] = {}
        """By URL; the one that was used last is the last."""

    def close(self) -> None:
        while self._idle:
            self._close_first()

    def _close_first(self) -> None:
        self._idle.pop(next(iter(self._idle))).connection.close()

    async def send(self, target: Target, delivery_id: str, body: bytes) -> Answer:
        """Send a request. A failure is a part of the answer."""
        if not target.keys:
            return Answer(error="the secret of the webhook cannot be decrypted: rotate it")
        if target.lost_header is not None:
            name = target.lost_header
            return Answer(error=f"the value of the header {name} cannot be decrypted: set it again")
        timestamp = self._clock() // timestamps.SECOND
        parts = urlsplit(target.url)
        own = [
            (b"host", parts.netloc.encode()),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *signed_headers(delivery_id, timestamp, body, target.keys),
        ]
        given = [(name.encode(), value.encode()) for name, value in target.headers]
        names = {name.lower() for name, _ in given}
        defaults = [header for header in _DEFAULT_HEADERS if header[0] not in names]
        values = b" ".join(value for _, value in given)
        words = {word for pattern in _SECRET_WORDS for word in pattern.findall(values)}
        resource = f"{parts.path}?{parts.query}" if parts.query else parts.path
        head = b"POST %b HTTP/1.1" % resource.encode()
        text = _render(head, [*own, *defaults, *given], body)
        request = _Request(target.url, text, sorted(words, key=len, reverse=True))
        try:
            async with timeout(TIMEOUT_SECONDS):
                return self._to_answer(await self._send(request), request.secret_words)
        except TimeoutError:
            return Answer(error=f"no complete response within {TIMEOUT_SECONDS:.0f} seconds")
        except TargetRefused as error:
            return Answer(error=f"refused: {error}")
        except ResponseTooLong:
            kilobytes = MAX_RESPONSE_BYTES // 1024
            return Answer(error=f"the response has more than {kilobytes} KB before its body")
        except (ConnectionLost, InvalidResponse):
            return Answer(error=_INVALID)
        except OSError as error:
            return Answer(error=_describe(error))

    async def _send(self, request: _Request) -> Response:
        """Send a request with the idle connection of its URL, or with a new one."""
        idle = self._idle.pop(request.url, None)
        if idle is not None:
            if idle.connection.is_open and time.monotonic() < idle.until:
                try:
                    return await self._exchange(idle.connection, request)
                except ConnectionLost as lost:  # the receiver may close it at this moment
                    if not lost.before_response:
                        raise
            idle.connection.close()
        return await self._exchange(await self._connect(request.url), request)

    async def _connect(self, url: str) -> ReceiverConnection:
        """Connect to one of the addresses of the host, which are checked."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        context = self._ssl_context if parts.scheme == "https" else None
        addresses = await self._targets.addresses(host, port, is_encrypted=context is not None)
        return await open_connection(addresses[:_MAX_ADDRESSES], port, context, host)

    async def _exchange(self, connection: ReceiverConnection, request: _Request) -> Response:
        response = await connection.exchange(request.text)
        if connection.is_open:
            until = time.monotonic() + _IDLE_SECONDS
            if (other := self._idle.pop(request.url, None)) is not None:
                other.connection.close()
            self._idle[request.url] = _Idle(connection, until)
            if len(self._idle) > _MAX_IDLE:
                self._close_first()
        return response

    def _to_answer(self, response: Response, secret_words: Sequence[bytes]) -> Answer:
        """Return what a response means, and its beginning without secrets."""
        status, content = response.status, _readable_start(response)
        for word in secret_words:
            content = content.replace(word, b"*" * len(word))
        shown = content[:_MAX_SHOWN_BYTES].decode("utf-8", "replace")
        shown = _UNREADABLE.sub("\ufffd", shown)
        if 200 <= status <= 299:
            return Answer(status, shown)
        error = f"the response has the status {status}, not one from 200 to 299"
        if 300 <= status <= 399:
            error = f"the response is a redirect ({status}), which is not followed"
        return Answer(status, shown, error, self._seconds(response.retry_after))

    def _seconds(self, retry_after: bytes) -> int | None:
        """Return the seconds of a Retry-After header, which is a number or a date."""
        if re.fullmatch(rb"[0-9]{1,9}", retry_after):
            return int(retry_after)
        try:
            date = parsedate_to_datetime(retry_after.decode("ascii", "replace"))
            return max(int(date.timestamp()) - self._clock() // timestamps.SECOND, 0)
        except (ValueError, OverflowError):
            return None


def _render(head: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    """Return the text of a request."""
    lines = [head, *(b"%b: %b" % header for header in headers)]
    if any(map(_LINE_BREAKS.search, lines)):
        raise ValueError("a line break in a header")
    return b"\r\n".join([*lines, b"", body])


def _readable_start(response: Response) -> bytes:
    """Return the start of a body: what is shown, with the end of a secret word that begins there.

    A body that was not read to its end can break off in a secret word, which is left out.
    """
    content, needed = response.content, _MAX_SHOWN_BYTES + MAX_HEADER_VALUE
    if not response.is_complete and len(content) < needed:
        content = content[: max(content.rfind(end) for end in b'\t\n\r "\\') + 1]
    return content[:needed]


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


_INVALID = "the response is not valid HTTP, or the connection was closed before its end"


def _describe(error: OSError) -> str:
    """Return why there is no connection, without addresses, which can be internal."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {error.verify_message}"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    return "no connection: the host was not found, or does not respond"
