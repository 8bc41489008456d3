"""The cookies middleware: it logs in with stored sessions, and stores the cookies of the site."""

from __future__ import annotations

from collections import defaultdict
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Self

from scrapy import signals
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http.cookies import CookieJar
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from gleanery.integrations.scrapy.crawl_sessions import CrawlSessions, SessionKey
from gleanery.integrations.scrapy.sites import SiteSession, session_domain

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

_MIDDLEWARES = "DOWNLOADER_MIDDLEWARES"
_PREFIX = "gleanery:"
_CONTEXT = "playwright_context"
_CONTEXT_OPTIONS = "playwright_context_kwargs"
_STATE = "storage_state"


class GleaneryCookiesMiddleware(CookiesMiddleware):
    """Cookies middleware with sessions of the service. It replaces Scrapy's own.

    The first request to a site loads the site's cookies into the jar of the profile. Scrapy
    handles them as usual. Changes are stored once per minute, and when the spider closes.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler.settings.getbool("COOKIES_DEBUG"))
        self.crawler = crawler
        self.jars = defaultdict(_new_jar)
        self._sessions = CrawlSessions(crawler, self._jar_of)
        self._profile = self._sessions.settings.profile

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        _check(crawler.settings, cls)
        middleware = cls(crawler)
        crawler.signals.connect(middleware.spider_closed, signals.spider_closed)
        return middleware

    async def process_request(  # type: ignore[override]
        self, request: Request, spider: Spider | None = None
    ) -> Request | Response | None:
        """Load the session of the site, and add its cookies to the request."""
        key = self._key_of(request)
        if key is not None:
            session = await self._sessions.require(key)
            self._choose_jar(request, key.profile)
            if request.meta.get("playwright"):
                _prepare_browser(request, key, session)
                if not request.cookies:
                    return None  # the browser sends its own cookies, which may be newer
        return super().process_request(request, *_arguments(spider))

    def process_response(
        self, request: Request, response: Response, spider: Spider | None = None
    ) -> Request | Response:
        """Take the cookies of the response, which are stored later."""
        _forget_state(request)
        if "playwright" in response.flags:
            _split_set_cookie(response)
        result = super().process_response(request, response, *_arguments(spider))
        if "Set-Cookie" in response.headers:
            self._sessions.store_later()
        return result

    def process_exception(
        self, request: Request, exception: Exception, spider: Spider | None = None
    ) -> None:
        """Remove the session from the request, which may be written to disk for another try."""
        _forget_state(request)

    async def spider_closed(self) -> None:
        """Store the changes, and return the leases."""
        await self._sessions.close()

    def _key_of(self, request: Request) -> SessionKey | None:
        """Return the session of a request; None if it has none."""
        url = urlparse_cached(request)
        if request.meta.get("dont_merge_cookies") or url.scheme not in ("http", "https"):
            return None
        domain, profile = session_domain(url.hostname or ""), self._profile_of(request)
        return None if domain is None or profile is None else SessionKey(profile, domain)

    def _profile_of(self, request: Request) -> str | None:
        """Return the profile; None if the spider uses a cookie jar of its own."""
        profile: str | None = request.meta.get("gleanery_profile")
        jar = request.meta.get("cookiejar")
        if profile is not None or jar is None:
            return profile or self._profile
        is_ours = isinstance(jar, str) and jar.startswith(_PREFIX)
        return jar.removeprefix(_PREFIX) if is_ours else None

    def _choose_jar(self, request: Request, profile: str) -> None:
        """Set the jar of the profile, even if the request has another one from its response."""
        jar = self._jar_key(profile)
        if jar is None:
            request.meta.pop("cookiejar", None)
        else:
            request.meta["cookiejar"] = jar

    def _jar_of(self, profile: str) -> CookieJar:
        return self.jars[self._jar_key(profile)]

    def _jar_key(self, profile: str) -> str | None:
        """Return the key of a profile's jar. The profile of the settings has Scrapy's default."""
        return None if profile == self._profile else f"{_PREFIX}{profile}"


def _check(settings: BaseSettings, middleware: type) -> None:
    """Raise ValueError if requests would be sent without the cookies of this middleware."""
    if not settings.getbool("COOKIES_ENABLED"):
        raise ValueError(
            "COOKIES_ENABLED is False, but sessions need cookies: set it to True, or leave out "
            "GLEANERY_SESSIONS"
        )
    places = {load_object(key): at for key, at in settings.getwithbase(_MIDDLEWARES).items()}
    for other, place in places.items():
        is_cookies = isinstance(other, type) and issubclass(other, CookiesMiddleware)
        if is_cookies and place is not None and other is not middleware:
            name = global_object_name(other)
            raise ValueError(
                f"{name} removes the cookies of {middleware.__name__}: set {_MIDDLEWARES} = "
                f'{{"{name}": None}}'
            )


def _new_jar() -> CookieJar:
    """Return a jar that sends a host's own cookie to this host only, as browsers do."""
    policy = DefaultCookiePolicy(strict_ns_domain=DefaultCookiePolicy.DomainStrictNonDomain)
    return CookieJar(policy)


def _arguments(spider: Spider | None) -> tuple[Any, ...]:
    """Return the further arguments of Scrapy's middleware, which differ before version 2.14."""
    return () if spider is None else (spider,)


def _prepare_browser(request: Request, key: SessionKey, session: SiteSession) -> None:
    """Give the session to the browser context of scrapy-playwright, when that is created."""
    if str(request.meta.get(_CONTEXT, _PREFIX)).startswith(_PREFIX):  # not one of the spider
        request.meta[_CONTEXT] = f"{_PREFIX}{key.profile}:{key.domain}"
    options = request.meta.get(_CONTEXT_OPTIONS) or {}
    if "user_data_dir" not in options:
        state = _BrowserState(session.state)
        request.meta[_CONTEXT_OPTIONS] = {_STATE: state, **options}


class _BrowserState(dict[str, Any]):
    """State that this middleware has added to a request. Its values are never shown."""

    def __repr__(self) -> str:
        return "<session state>"


def _forget_state(request: Request) -> None:
    options = request.meta.get(_CONTEXT_OPTIONS)
    if options and isinstance(options.get(_STATE), _BrowserState):
        request.meta[_CONTEXT_OPTIONS] = {k: v for k, v in options.items() if k != _STATE}


def _split_set_cookie(response: Response) -> None:
    """Separate cookies that Playwright joins in one header, with line breaks between them."""
    lines = b"\n".join(response.headers.getlist("Set-Cookie")).splitlines()
    if lines:
        response.headers.setlist("Set-Cookie", lines)
