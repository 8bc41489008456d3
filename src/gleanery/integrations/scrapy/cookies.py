"""The cookies middleware: it logs in with stored sessions, and stores the cookies of the site."""

from __future__ import annotations

import logging
from collections import defaultdict
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from scrapy import signals
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.http.cookies import CookieJar
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from twisted.internet.defer import Deferred, DeferredLock

from gleanery.client import ClientError, Conflict, LeaseLost
from gleanery.integrations.scrapy.coroutines import (
    CoroutineRunner,
    Timer,
    call_later,
    close_spider,
    start,
)
from gleanery.integrations.scrapy.sessions import SiteSession
from gleanery.integrations.scrapy.settings import GleanerySettings
from gleanery.integrations.scrapy.sites import session_domain

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

_MAX_RETRIES = 12  # requests wait for a service that is down, for about 50 seconds
_JAR_PREFIX = "gleanery:"
_UNAVAILABLE = "gleanery_session_unavailable"
_LEASE_LOST = "gleanery_lease_lost"

_log = logging.getLogger(__name__)


class SessionUnavailable(IgnoreRequest):
    """The session of a request cannot be used. The log says why, and the spider is closed."""


class SessionSettings(NamedTuple):
    """Settings of the middleware."""

    profile: str = "default"
    has_lease: bool = False
    lease_seconds: int = 300
    lease_wait: float = 600.0
    store_seconds: float = 60.0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> SessionSettings:
        settings = crawler.settings
        return cls(
            profile=settings.get("GLEANERY_PROFILE") or "default",
            has_lease=settings.getbool("GLEANERY_LEASE"),
            lease_seconds=settings.getint("GLEANERY_LEASE_SECONDS", 300),
            lease_wait=settings.getfloat("GLEANERY_LEASE_WAIT", 600.0),
            store_seconds=settings.getfloat("GLEANERY_SESSION_SECONDS", 60.0),
        )


class _Key(NamedTuple):
    """Identification of a session in the crawl."""

    profile: str
    domain: str


class GleaneryCookiesMiddleware(CookiesMiddleware):
    """Cookies middleware with sessions of the service. It replaces Scrapy's own.

    The first request to a site loads the site's cookies into the jar of the profile. Scrapy
    handles them as usual. Changes are stored once per minute, and when the spider closes.
    """

    def __init__(self, crawler: Crawler, settings: GleanerySettings) -> None:
        super().__init__(crawler.settings.getbool("COOKIES_DEBUG"))
        self.crawler = crawler
        self.jars = defaultdict(_new_jar)
        self._settings = SessionSettings.from_crawler(crawler)
        self._runner = CoroutineRunner()
        retries = max(settings.max_retries, _MAX_RETRIES)
        self._client = settings.async_client(max_retries=retries)
        self._sessions: dict[_Key, SiteSession] = {}
        self._loading: dict[_Key, list[Deferred[None]]] = {}
        self._timer: Timer | None = None
        self._store_lock = DeferredLock()
        self._failed = ""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if not crawler.settings.getbool("COOKIES_ENABLED"):
            raise NotConfigured("COOKIES_ENABLED is False")
        middleware = cls(crawler, GleanerySettings.from_crawler(crawler))
        crawler.signals.connect(middleware.spider_closed, signals.spider_closed)
        return middleware

    async def process_request(  # type: ignore[override]
        self, request: Request, spider: Spider | None = None
    ) -> Request | Response | None:
        """Load the session of the site, and add its cookies to the request."""
        key = self._key_of(request)
        if key is not None:
            session = await self._require_session(key)
            self._select_jar(request, key.profile)
            if request.meta.get("playwright") and not request.cookies:
                _prepare_browser(request, key, session)
                return None  # the browser has its own cookies, which may be newer
        return super().process_request(request, *_arguments(spider))

    def process_response(
        self, request: Request, response: Response, spider: Spider | None = None
    ) -> Request | Response:
        """Take the cookies of the response, which are stored later."""
        if "playwright" in response.flags:
            _split_set_cookie(response)
        result = super().process_response(request, response, *_arguments(spider))
        if self._sessions and "Set-Cookie" in response.headers and self._timer is None:
            self._timer = call_later(self._settings.store_seconds, self._start_storing)
        return result

    async def spider_closed(self) -> None:
        """Store the changes, return the leases, and close the connections to the service."""
        if self._timer is not None:
            self._timer.cancel()
        await self._store_changes(is_last=True)
        for session in self._sessions.values():
            await self._release(session)
        await self._runner.run(self._client.aclose())
        self._runner.close()

    # --- which session a request uses ---------------------------------------------------------

    def _key_of(self, request: Request) -> _Key | None:
        """Return the session of a request; None if it has none."""
        meta, url = request.meta, urlparse_cached(request)
        if meta.get("dont_merge_cookies") or url.scheme not in ("http", "https"):
            return None
        domain = session_domain(url.hostname or "")
        profile = self._profile_of(request)
        return None if domain is None or profile is None else _Key(profile, domain)

    def _profile_of(self, request: Request) -> str | None:
        """Return the profile; None if the spider uses a cookie jar of its own."""
        profile: str | None = request.meta.get("gleanery_profile")
        jar = request.meta.get("cookiejar")
        if profile is not None or jar is None:
            return profile or self._settings.profile
        is_ours = isinstance(jar, str) and jar.startswith(_JAR_PREFIX)
        return jar.removeprefix(_JAR_PREFIX) if is_ours else None

    def _select_jar(self, request: Request, profile: str) -> None:
        key = self._jar_key(profile)
        if key is not None:
            request.meta["cookiejar"] = key

    def _jar_key(self, profile: str) -> str | None:
        """Return the key of the profile's jar. That of the default profile is Scrapy's default."""
        return None if profile == self._settings.profile else f"{_JAR_PREFIX}{profile}"

    # --- loading ------------------------------------------------------------------------------

    async def _require_session(self, key: _Key) -> SiteSession:
        """Return a session that can be used. Requests to the same site wait for one load."""
        while key in self._loading:
            waiting: Deferred[None] = Deferred()
            self._loading[key].append(waiting)
            await maybe_deferred_to_future(waiting)
        if not self._failed and key not in self._sessions:
            self._loading[key] = []
            try:
                await self._load(key)
            finally:
                for waiting in self._loading.pop(key):
                    waiting.callback(None)
        session = self._sessions.get(key)
        if session is not None and not session.is_usable:
            self._fail(f"The lease of the session of {key.domain} has ended", _LEASE_LOST)
        if self._failed or session is None:
            self._count("gleanery/session_requests_ignored")
            raise SessionUnavailable(self._failed)
        return session

    async def _load(self, key: _Key) -> None:
        session = SiteSession(self._client, key.domain, key.profile)
        try:
            cookies = await self._runner.run(self._obtain(session))
        except ClientError as error:
            what = "The lease" if isinstance(error, Conflict) else "The session"
            self._fail(f"{what} of {key.domain} is not available: {error}", _UNAVAILABLE)
            return
        for cookie in cookies:
            self.jars[self._jar_key(key.profile)].set_cookie(cookie)
        self._sessions[key] = session
        self._count("gleanery/sessions")
        _log.info("Loaded %d cookies of the session of %s", len(cookies), key.domain)

    async def _obtain(self, session: SiteSession) -> list[Any]:
        chosen = self._settings
        if not chosen.has_lease:
            return await session.load()
        return await session.acquire(
            chosen.lease_seconds, chosen.lease_wait, lambda: bool(self.crawler.crawling)
        )

    def _fail(self, message: str, reason: str) -> None:
        """Say why the session is not used, and close the spider. Later requests are ignored."""
        if not self._failed:
            self._failed = message
            _log.error("%s. The spider is closed, so that it does not work without it", message)
            self._count(reason.replace("gleanery_", "gleanery/"))
            close_spider(self.crawler, reason)

    # --- storing ------------------------------------------------------------------------------

    def _start_storing(self) -> None:
        self._timer = None
        start(self._store_changes())

    async def _store_changes(self, is_last: bool = False) -> None:
        await maybe_deferred_to_future(self._store_lock.acquire())
        try:
            for key, session in list(self._sessions.items()):
                await self._store_session(key, session, is_last)
        finally:
            self._store_lock.release()

    async def _store_session(self, key: _Key, session: SiteSession, is_last: bool) -> None:
        changed = session.changes(self.jars[self._jar_key(key.profile)])
        if not changed:
            return
        try:
            rejected = await self._runner.run(session.store(changed))
        except LeaseLost as error:
            self._count("gleanery/session_store_errors")
            self._fail(
                f"{len(changed)} cookies of {key.domain} are not stored: {error}", _LEASE_LOST
            )
        except ClientError as error:
            self._count("gleanery/session_store_errors")
            lasting = "" if is_last else ", and will be tried again"
            _log.error(
                "%d cookies of %s are not stored%s: %s", len(changed), key.domain, lasting, error
            )
            if not is_last and self._timer is None:
                self._timer = call_later(self._settings.store_seconds, self._start_storing)
        else:
            self._count("gleanery/session_cookies_stored", len(changed) - rejected)

    async def _release(self, session: SiteSession) -> None:
        try:
            await self._runner.run(session.release())
        except LeaseLost as error:
            _log.error("%s", error)
            self._count("gleanery/lease_lost")
        except ClientError as error:
            _log.warning("The lease of %s ends by itself: %s", session.domain, error)

    def _count(self, name: str, number: int = 1) -> None:
        if self.crawler.stats is not None:
            self.crawler.stats.inc_value(name, number)


def _new_jar() -> CookieJar:
    """Return a jar that sends a host's own cookie to this host only, as browsers do."""
    policy = DefaultCookiePolicy(strict_ns_domain=DefaultCookiePolicy.DomainStrictNonDomain)
    return CookieJar(policy)


def _arguments(spider: Spider | None) -> tuple[Any, ...]:
    """Return the further arguments of Scrapy's middleware, which differ before version 2.14."""
    return () if spider is None else (spider,)


def _prepare_browser(request: Request, key: _Key, session: SiteSession) -> None:
    """Give the session to the browser context of scrapy-playwright, when it creates it."""
    request.meta.setdefault("playwright_context", f"{_JAR_PREFIX}{key.profile}:{key.domain}")
    options = request.meta.get("playwright_context_kwargs") or {}
    if "user_data_dir" not in options:
        request.meta["playwright_context_kwargs"] = {"storage_state": session.state, **options}


def _split_set_cookie(response: Response) -> None:
    """Separate cookies that Playwright joins in one header, with line breaks between them."""
    lines = b"\n".join(response.headers.getlist("Set-Cookie")).splitlines()
    if lines:
        response.headers.setlist("Set-Cookie", lines)
