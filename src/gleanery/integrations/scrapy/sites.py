"""Sites: the hosts that share a session, and the session of a site in a crawl.

The cookies of a session are loaded into a cookie jar, and their changes are stored again.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from http import cookiejar
from typing import TYPE_CHECKING, Any

from tldextract import TLDExtract

from gleanery.client import AsyncLease, Conflict, Invalid
from gleanery.sessions import (
    Cookie,
    InvalidSession,
    SessionState,
    from_cookiejar,
    read,
    to_cookiejar,
)
from gleanery.sessions.cookiejar import host_of
from gleanery.sessions.model import is_address, normalize_domain

if TYPE_CHECKING:
    from collections.abc import Callable

    from gleanery.client import AsyncClient

_PLAYWRIGHT = "playwright"
_LONG_AGO = 1  # second of 1970: the service removes expired cookies
_POLL_SECONDS = 2.0
_MAX_COOKIES = 1000  # in one request

_log = logging.getLogger(__name__)

Identity = tuple[object, ...]
Cookies = dict[Identity, Cookie]

# The list of public suffixes of the package: a download would block the reactor.
_split = TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)


@lru_cache(maxsize=10_000)
def session_domain(host: str) -> str | None:
    """Return the domain of the session that a host uses: its site, with a leading dot.

    Hosts of a site share cookies, so they share a session and its lease. An address, a host
    without a dot, and a public suffix such as ``github.io`` have one for themselves. An
    invalid host has none.
    """
    try:
        return f"[{ipaddress.IPv6Address(host)}]"
    except ValueError:
        pass
    try:
        normal = normalize_domain(host.rstrip("."))
    except ValueError:
        return None
    if "." not in normal or is_address(normal):
        return normal
    return _site(normal)


def _site(host: str) -> str:
    parts = _split(host)
    if not parts.suffix:  # a private top-level domain, such as corp
        return "." + ".".join(host.split(".")[-2:])
    return f".{parts.domain}.{parts.suffix}" if parts.domain else host


def group_by_site(jar: Iterable[cookiejar.Cookie]) -> dict[str, list[cookiejar.Cookie]]:
    """Return the cookies of a jar by the domain of the session that they belong to."""
    sites: defaultdict[str, list[cookiejar.Cookie]] = defaultdict(list)
    for cookie in jar:
        site = _site_of_cookie(cookie.domain)
        if site is not None:
            sites[site].append(cookie)
    return sites


@lru_cache(maxsize=10_000)
def _site_of_cookie(domain: str) -> str | None:
    try:
        return session_domain(host_of(domain))
    except InvalidSession:
        return None


class SiteSession:
    """Session of a site and a profile. Its cookies are in a jar, which Scrapy uses and changes."""

    def __init__(self, client: AsyncClient, domain: str, profile: str) -> None:
        self._session = client.session(domain, profile=profile)
        self._lease: AsyncLease | None = None
        self._stored: Cookies = {}
        """Cookies as the service has them."""
        self._rejected: set[Cookie] = set()
        self.domain = domain
        self.profile = profile
        self.is_kept = False
        """True if the session is loaded. Else the cookies of the site stay in the crawl."""
        self.state: dict[str, Any] = {"cookies": [], "origins": []}
        """State as it was loaded, in the format of Playwright."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session!r})"

    @property
    def is_usable(self) -> bool:
        """False if the session was leased, and the lease has ended."""
        return self._lease is None or self._lease.is_held

    async def load(self) -> list[cookiejar.Cookie]:
        """Return the cookies of the service for a jar."""
        return self._read((await self._session.export(_PLAYWRIGHT)).content)

    async def acquire(
        self, seconds: int, wait: float, is_needed: Callable[[], bool]
    ) -> list[cookiejar.Cookie]:
        """Lease the session, and return its cookies. Raise Conflict if others keep it too long.

        While it waits for another holder, it asks whether the lease is still needed.
        """
        deadline, poll_seconds = time.monotonic() + wait, 0.0
        while True:
            left = deadline - time.monotonic()
            lease = self._session.lease(seconds, wait=min(max(left, 0.0), poll_seconds))
            try:
                await lease.__aenter__()
            except Conflict:
                if left <= 0 or not is_needed():
                    raise
                if not poll_seconds:
                    _log.info("Waiting for the lease of %s, which another worker has", self.domain)
                poll_seconds = _POLL_SECONDS
            else:
                self._lease = lease
                return self._read(lease.playwright())

    async def release(self) -> None:
        """Return the lease, if there is one. Raise LeaseLost if it has ended before."""
        if self._lease is not None:
            await self._lease.release()

    def changes(self, cookies: Iterable[cookiejar.Cookie]) -> list[Cookie]:
        """Return what the service does not have of the site's cookies in a jar.

        A cookie that the site has deleted is among them, with an expiry in the past.
        """
        if not self.is_kept:
            return []
        now = time.time()
        found = {one.identity: one for one in _convert(cookies) if not _is_expired(one, now)}
        changed = [one for one in found.values() if self._stored.get(one.identity) != one]
        deleted = [
            replace(cookie, value="", expires=_LONG_AGO)
            for identity, cookie in self._stored.items()
            if identity not in found and cookie.name and not _is_expired(cookie, now)
        ]
        return [one for one in (*changed, *deleted) if one not in self._rejected]

    async def store(self, changed: list[Cookie]) -> int:
        """Store changes. Return the number of cookies that the service has rejected."""
        rejected = 0
        for start in range(0, len(changed), _MAX_COOKIES):
            part = changed[start : start + _MAX_COOKIES]
            try:
                await self._store(part)
            except Invalid:
                rejected += await self._store_one_by_one(part)
        return rejected

    async def _store_one_by_one(self, cookies: list[Cookie]) -> int:
        """Store what can be stored: one bad cookie must not cost the login."""
        rejected = 0
        for cookie in cookies:
            try:
                await self._store([cookie])
            except Invalid as error:
                _log.warning(
                    "The cookie %r of %s is not stored: %s", cookie.name, cookie.host, error
                )
                self._rejected.add(cookie)
                rejected += 1
        return rejected

    async def _store(self, cookies: list[Cookie]) -> None:
        holder = self._lease or self._session
        await holder.store(SessionState(tuple(cookies)))
        for cookie in cookies:
            if cookie.expires == _LONG_AGO:
                self._stored.pop(cookie.identity, None)
            else:
                self._stored[cookie.identity] = cookie

    def _read(self, state: dict[str, Any]) -> list[cookiejar.Cookie]:
        self.state, self.is_kept = state, True
        written = to_cookiejar(read(state, _PLAYWRIGHT))
        for loss in written.losses:
            _log.warning("The session of %s in Scrapy: %s", self.domain, loss)
        cookies = list(written.content)
        self._stored = {one.identity: one for one in _convert(cookies)}
        return cookies


def _is_expired(cookie: Cookie, now: float) -> bool:
    return cookie.expires is not None and cookie.expires <= now


def _convert(cookies: Iterable[cookiejar.Cookie]) -> Iterator[Cookie]:
    """Convert cookies one by one, because a site can send some that the service never stores."""
    for cookie in list(cookies):
        jar = cookiejar.CookieJar()
        jar.set_cookie(cookie)
        try:
            yield from from_cookiejar(jar).state.cookies
        except InvalidSession as error:
            _log.debug("The cookie %r of %s is not stored: %s", cookie.name, cookie.domain, error)
