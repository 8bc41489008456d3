"""The sessions of a crawl: their settings, which sites have one, and when each is stored.

Each session is loaded once, and its changes are stored from time to time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from http.cookiejar import Cookie
from typing import TYPE_CHECKING, NamedTuple

from scrapy.exceptions import IgnoreRequest
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred, DeferredLock

from gleanery.client import AsyncClient, ClientError, Conflict, LeaseLost
from gleanery.client.retries import is_temporary
from gleanery.integrations.scrapy.coroutines import (
    CoroutineRunner,
    Timer,
    call_later,
    close_spider,
    is_closing,
    start,
    within,
)
from gleanery.integrations.scrapy.settings import GleanerySettings, patient_retries
from gleanery.integrations.scrapy.sites import SiteSession, group_by_site, session_domain
from gleanery.sessions import Cookie as SessionCookie

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http.cookies import CookieJar
    from scrapy.settings import BaseSettings

_DOMAINS = "GLEANERY_SESSION_DOMAINS"
_UNAVAILABLE = "gleanery_session_unavailable"
_LEASE_LOST = "gleanery_lease_lost"
_LEAST_SECONDS = 5.0  # for an attempt, even if the end of the crawl must not wait
_RELEASE_SECONDS = 1.0  # after everything else has taken all the time

_log = logging.getLogger(__name__)


class SessionSettings(NamedTuple):
    """Settings of sessions."""

    profile: str
    domains: frozenset[str]
    """Sites that have a session; empty for those whose session the service has."""
    has_lease: bool
    lease_seconds: int
    lease_wait: float
    store_seconds: float

    @classmethod
    def from_scrapy(cls, settings: BaseSettings) -> SessionSettings:
        read = cls(
            profile=settings.get("GLEANERY_PROFILE") or "default",
            domains=frozenset(_chosen_site(name) for name in settings.getlist(_DOMAINS)),
            has_lease=settings.getbool("GLEANERY_LEASE"),
            lease_seconds=settings.getint("GLEANERY_LEASE_SECONDS", 300),
            lease_wait=settings.getfloat("GLEANERY_LEASE_WAIT", 600.0),
            store_seconds=settings.getfloat("GLEANERY_SESSION_SECONDS", 60.0),
        )
        if not 1 <= read.lease_seconds <= 3600:
            raise ValueError("GLEANERY_LEASE_SECONDS must be between 1 and 3600")
        if read.lease_wait < 0 or read.store_seconds <= 0:
            raise ValueError(
                "GLEANERY_LEASE_WAIT must not be negative, and GLEANERY_SESSION_SECONDS "
                "must be more than 0"
            )
        return read


def _chosen_site(name: str) -> str:
    site = session_domain(name.strip().removeprefix("."))
    if site is None:
        raise ValueError(f"{_DOMAINS} has {name!r}: expected a domain such as shop.example")
    return site


class SessionUnavailable(IgnoreRequest):
    """The session of a request cannot be used. The log says why, and the spider is closed."""


class SessionKey(NamedTuple):
    """Identification of a session in the crawl."""

    profile: str
    domain: str


class CrawlSessions:
    """Sessions of a crawl, by profile and site. ``jar_of`` returns the cookie jar of a profile."""

    def __init__(self, crawler: Crawler, jar_of: Callable[[str], CookieJar]) -> None:
        settings = GleanerySettings.from_crawler(crawler)
        self.settings = SessionSettings.from_scrapy(crawler.settings)
        self._crawler = crawler
        self._jar_of = jar_of
        self._runner = CoroutineRunner()
        self._client = settings.async_client(max_retries=patient_retries(crawler.settings))
        self._sites = _StoredSites(self._client, self.settings.domains)
        self._sessions: dict[SessionKey, SiteSession] = {}
        self._loading: dict[SessionKey, list[Deferred[None]]] = {}
        self._timer: Timer | None = None
        self._store_lock = DeferredLock()
        self._failure = ""
        self._outage: ClientError | None = None
        """Reason why the service does not respond, while changes are stored."""
        self._close_seconds = max(settings.close_seconds, _LEAST_SECONDS)
        self._closes_at: float | None = None

    async def require(self, key: SessionKey) -> SiteSession:
        """Return a session whose cookies are in its jar. Raise SessionUnavailable.

        The first request to a site loads it, and the others wait for that.
        """
        if key not in self._sessions:
            for each in self._loaded_with(key):
                await self._load_once(each)
        session = self._sessions.get(key)
        if session is not None and not session.is_usable:
            self._fail(f"The lease of the session of {key.domain} has ended", _LEASE_LOST)
        if self._failure or session is None:
            self._count("gleanery/session_requests_ignored")
            raise SessionUnavailable(self._failure)
        return session

    def store_later(self) -> None:
        """Store the changes of the jars soon, together with those that come meanwhile."""
        if self._timer is None and self._sessions:
            self._timer = call_later(self.settings.store_seconds, self._start_storing)

    async def close(self) -> None:
        """Store the changes, return the leases, and close the connections to the service."""
        if self._timer is not None:
            self._timer.cancel()
        self._closes_at = time.monotonic() + self._close_seconds
        await self._store_changes()
        await self._release_all()
        await self._runner.run(self._client.aclose())
        self._runner.close()

    def _loaded_with(self, key: SessionKey) -> list[SessionKey]:
        """Return the sessions to load for a request.

        All crawls lease the sites of the settings in the same order, so that two of them never
        wait for each other.
        """
        chosen = self.settings
        if not chosen.has_lease or key.domain not in chosen.domains:
            return [key]
        return [SessionKey(key.profile, domain) for domain in sorted(chosen.domains)]

    async def _load_once(self, key: SessionKey) -> None:
        while key in self._loading:
            waiting: Deferred[None] = Deferred()
            self._loading[key].append(waiting)
            await maybe_deferred_to_future(waiting)
        if not self._failure and key not in self._sessions:
            await self._load(key)

    async def _load(self, key: SessionKey) -> None:
        self._loading[key] = []
        session = SiteSession(self._client, key.domain, key.profile)
        try:
            cookies = await self._runner.run(self._obtain(session))
        except ClientError as error:
            what = "The lease" if isinstance(error, Conflict) else "The session"
            self._fail(f"{what} of {key.domain} is not available: {error}", _UNAVAILABLE)
        else:
            for cookie in cookies:
                self._jar_of(key.profile).set_cookie(cookie)
            self._sessions[key] = session
            if session.is_kept:
                self._count("gleanery/sessions")
                _log.info("Loaded %d cookies of the session of %s", len(cookies), key.domain)
        finally:
            for waiting in self._loading.pop(key):
                waiting.callback(None)

    async def _obtain(self, session: SiteSession) -> list[Cookie]:
        chosen = self.settings
        if not await self._sites.has(session.domain, session.profile):
            return []
        if not chosen.has_lease:
            return await session.load()
        return await session.acquire(
            chosen.lease_seconds, chosen.lease_wait, lambda: not is_closing(self._crawler)
        )

    def _fail(self, message: str, reason: str) -> None:
        """Say why the session is not used, and close the spider. Later requests are ignored."""
        if not self._failure:
            self._failure = message
            _log.error("%s. The spider is closed, because it must not work without it", message)
            self._count(reason.replace("_", "/", 1))
            close_spider(self._crawler, reason)

    def _start_storing(self) -> None:
        self._timer = None
        start(self._store_changes())

    async def _store_changes(self) -> None:
        await maybe_deferred_to_future(self._store_lock.acquire())
        self._outage = None
        try:
            profiles = {key.profile for key in self._sessions}
            sites = {profile: group_by_site(self._jar_of(profile)) for profile in profiles}
            for key, session in list(self._sessions.items()):
                changed = session.changes(sites[key.profile].get(key.domain, []))
                if changed:
                    await self._store(session, changed)
        finally:
            self._store_lock.release()

    async def _store(self, session: SiteSession, changed: list[SessionCookie]) -> None:
        try:
            if self._outage is not None:  # the others would wait for the same service
                raise self._outage
            rejected = await self._runner.run(within(self._seconds_left, session.store(changed)))
        except ClientError as error:
            self._outage = error if is_temporary(error) else None
            self._count("gleanery/session_store_errors")
            _log.error("%d cookies of %s are not stored: %s", len(changed), session.domain, error)
            if isinstance(error, LeaseLost):
                self._fail(str(error), _LEASE_LOST)
            elif self._closes_at is None:
                self.store_later()
        else:
            self._count("gleanery/session_cookies_stored", len(changed) - rejected)

    @property
    def _seconds_left(self) -> float:
        """Seconds for a call. While the crawl runs, a call ends before the crawl must end."""
        if self._closes_at is None:
            return self._close_seconds
        return max(self._closes_at - time.monotonic(), _RELEASE_SECONDS)

    async def _release_all(self) -> None:
        sessions, seconds = list(self._sessions.values()), self._seconds_left
        errors = await self._runner.run(_release_together(sessions, seconds))
        for session, error in zip(sessions, errors, strict=True):
            if isinstance(error, LeaseLost) and not self._failure:
                _log.error("%s", error)
                self._count("gleanery/lease_lost")
            elif error is not None and not isinstance(error, LeaseLost):
                _log.warning("The lease of %s ends by itself: %s", session.domain, error)

    def _count(self, name: str, number: int = 1) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(name, number)


async def _release_together(
    sessions: list[SiteSession], seconds: float
) -> list[BaseException | None]:
    """Return the leases, and the error of each: one must not keep another from being returned."""
    released = (within(seconds, session.release()) for session in sessions)
    return await asyncio.gather(*released, return_exceptions=True)


class _StoredSites:
    """Sites of the settings, or else those whose session the service has.

    The list of the service is read once for each profile, so that other sites cost no requests.
    """

    def __init__(self, client: AsyncClient, chosen: frozenset[str]) -> None:
        self._client = client
        self._chosen = chosen
        self._stored: dict[str, frozenset[str | None]] = {}
        self._lock = asyncio.Lock()

    async def has(self, site: str, profile: str) -> bool:
        """Return True if the crawl uses the session of a site and profile."""
        if self._chosen:
            return site in self._chosen
        async with self._lock:
            if profile not in self._stored:
                self._stored[profile] = await self._list(profile)
        return site in self._stored[profile]

    async def _list(self, profile: str) -> frozenset[str | None]:
        summaries = await self._client.sessions(profile=profile)
        if not summaries:
            _log.warning(
                "There is no session of the profile %r, so requests have no login. To store the "
                "cookies of a site, name it in GLEANERY_SESSION_DOMAINS",
                profile,
            )
        return frozenset(session_domain(summary.domain) for summary in summaries)
