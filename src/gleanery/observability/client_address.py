"""The client address of a request, as the log shows it."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from gleanery.http import Request, parse_address
from gleanery.settings import Settings

FindClient = Callable[[Request], bytes]
"""Returns the address of the client that sent a request."""


def client_address_finder(settings: Settings) -> FindClient:
    """Return the rule: behind a proxy the address that the proxy reports, else the socket's."""
    return _forwarded_address if settings.behind_proxy else attrgetter("client_address")


def _forwarded_address(request: Request) -> bytes:
    """Return the last address of X-Forwarded-For; the proxy's own if it is missing or invalid.

    A proxy appends the address of its client. A client can send the other entries itself.
    """
    header = request.headers.get(b"x-forwarded-for")
    if header is None:
        return request.client_address
    last = header.rpartition(b",")[2].strip().decode("ascii", "replace")
    return parse_address(last) or request.client_address
