"""The cookies that a browser has after a sequence of requests and responses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from gleanery.client.sessions import cookie_headers, lines, prefixes
from gleanery.client.sessions.errors import InvalidSession
from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import Cookie
from gleanery.client.sessions.visibility import Page, gets_cookie

_EXPIRED = "A cookie is left out, because it had expired when it was set"
_TOO_MANY_HEADERS = (
    f"The document has more than {lines.MAX_LINES} Set-Cookie headers: read less at a time"
)
_TOO_MANY_SENT = "The document has too many Cookie headers: read less at a time"
_MAX_SENT = 10 * lines.MAX_LINES
"""Cookies of all requests. A browser sends the same ones with each of its requests."""
_MAX_PATHS = 50
"""Cookies with the same name and host that are compared; keeps the time linear."""


class ReceivedCookies:
    """Stores and deletes cookies in the order of the requests and responses."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._headers = 0
        self._times_sent = 0
        self._known: dict[tuple[str, str], dict[tuple[object, ...], Cookie]] = {}
        self._sent: dict[tuple[str, str], Cookie] = {}

    def cookies(self) -> tuple[Cookie, ...]:
        known = (cookie for found in self._known.values() for cookie in found.values())
        return (*known, *self._sent.values())

    def set_by_header(self, value: str, page: Page, now: float) -> None:
        """Store the cookie of a Set-Cookie header that arrived from a page at this time.

        A cookie that has expired deletes the stored one.
        """
        self._headers += 1
        if self._headers > lines.MAX_LINES:
            raise InvalidSession(_TOO_MANY_HEADERS)
        cookie = cookie_headers.read_set_cookie(value, page, now, self._losses)
        if cookie is None:
            return
        guess = self._sent.pop((cookie.name, page.host), None)
        replaced = self._known.get((cookie.name, cookie.host), {}).pop(cookie.identity, guess)
        if cookie.expires is None or cookie.expires > now:
            self.store(cookie)
        elif replaced is None:
            self._losses.add("cookie", _EXPIRED)

    def store(self, cookie: Cookie) -> None:
        """Store a cookie of which everything is known."""
        self._known.setdefault((cookie.name, cookie.host), {})[cookie.identity] = cookie

    def note_sent(self, cookie: Cookie, page: Page) -> None:
        """Store a cookie that a page got, of which only the name and the value are known."""
        self._times_sent += 1
        if self._times_sent > _MAX_SENT or len(self._sent) > lines.MAX_LINES:
            raise InvalidSession(_TOO_MANY_SENT)
        known = max(self._sent_to(page, cookie.name), key=lambda one: len(one.path), default=None)
        if known is not None:
            self.store(replace(known, value=cookie.value))
            return
        complete = prefixes.with_implied_fields(cookie, ("secure", "http_only"))
        self._sent[cookie.name, page.host] = complete

    def _sent_to(self, page: Page, name: str) -> Iterator[Cookie]:
        host = page.host
        while host:
            found = self._known.get((name, host), {})
            for cookie in islice(found.values(), _MAX_PATHS):
                if gets_cookie(page, cookie):
                    yield cookie
            host = host.partition(".")[2]
