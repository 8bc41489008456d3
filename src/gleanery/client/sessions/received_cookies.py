"""The cookies that a browser has after a sequence of responses."""

from __future__ import annotations

from gleanery.client.sessions import cookie_headers
from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import Cookie
from gleanery.client.sessions.visibility import Page

_EXPIRED = "A cookie is left out, because it had expired when it was set"


class ReceivedCookies:
    """Stores and deletes cookies in the order of the responses."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._cookies: dict[tuple[object, ...], Cookie] = {}

    def cookies(self) -> tuple[Cookie, ...]:
        return tuple(self._cookies.values())

    def set_by_header(self, value: str, page: Page, now: float) -> None:
        """Stores the cookie of a Set-Cookie header that arrived from a page at this time."""
        cookie = cookie_headers.read_set_cookie(value, page, now, self._losses)
        if cookie is not None:
            self.store(cookie, now)

    def store(self, cookie: Cookie, now: float) -> None:
        """Stores a cookie. One that has expired deletes the stored one."""
        replaced = self._cookies.pop(cookie.identity, None)
        if cookie.expires is None or cookie.expires > now:
            self._cookies[cookie.identity] = cookie
        elif replaced is None:
            self._losses.add("cookie", _EXPIRED)
