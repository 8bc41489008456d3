# Generated from _async by checks/sync_client.py: edit that package, and run make client.
"""Sending of requests: the token, retries and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from gleanery.client import retries
from gleanery.client._sync.concurrency import sleep
from gleanery.client._sync.transport import Transport
from gleanery.client.configuration import Credentials
from gleanery.client.errors import ClientError
from gleanery.client.requests import Request
from gleanery.client.responses import Response, decode

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class Requester:
    """Sends requests to one service with one token, and retries temporary failures."""

    def __init__(
        self,
        credentials: Credentials,
        policy: retries.RetryPolicy,
        headers: Mapping[str, str],
        timeout: float,
        connect_timeout: float,
        http_client: httpx2.Client | None,
    ) -> None:
        self.base_url = credentials.url
        self._policy = policy
        self._transport = Transport(credentials, headers, timeout, connect_timeout, http_client)

    def send(self, request: Request) -> Response:
        """Send a request until it succeeds. Raise ClientError if it fails for good."""
        retry = 0
        while True:
            result = self._attempt(request)
            if isinstance(result, Response) and result.status < 300:
                return result
            delay = self._policy.delay(result, retry) if request.is_retried else None
            if delay is None:
                raise retries.as_error(result, attempts=retry + 1)
            retry += 1
            request.retries = retry
            _log_retry(retries.as_error(result, attempts=retry), retry, delay)
            sleep(delay)

    def fetch(self, request: Request, kind: type[T]) -> T:
        """Send a request, and decode its response."""
        return decode(self.send(request), kind)

    def close(self) -> None:
        self._transport.close()

    def _attempt(self, request: Request) -> Response | ClientError:
        try:
            return self._transport.send(request)
        except ClientError as error:
            error.__context__ = None  # an error of the HTTP library can contain headers
            return error


def _log_retry(reason: ClientError, retry: int, delay: float) -> None:
    import logging  # takes 10 ms

    logging.getLogger("gleanery.client").info("%s: retry %d in %.1f s", reason, retry, delay)
