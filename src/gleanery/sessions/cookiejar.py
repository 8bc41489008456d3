"""Cookie jars of Python: http.cookiejar, and requests and httpx, which use it."""

from __future__ import annotations

import math
from http import cookiejar
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

from gleanery.sessions import conversion, cookie_dates, records
from gleanery.sessions.browser_rules import parse_url
from gleanery.sessions.conversion import ReadResult, WriteResult
from gleanery.sessions.document import Document, Format
from gleanery.sessions.model import (
    Cookie,
    InvalidSession,
    Losses,
    MissingUrl,
    SessionState,
    split_domain,
)

_TITLE = "A cookie jar"
_NO_JAR = (
    "Expected a cookie jar of http.cookiejar, requests or httpx. Read a dictionary with "
    'read(…, "scrapy", url)'
)
_HTTP_ONLY = ("HttpOnly", "httponly", "httpOnly", "HTTPOnly")
_SAME_SITE = ("SameSite", "samesite", "sameSite")
_LOCAL = ".local"
_LOST_PORT = "The port is lost: browsers send a cookie to all ports of its host"
_LOST_HOST = "A host without a dot gets the end .local, as http.cookiejar has it"
_YEAR_1970 = "A cookie is left out: a cookie jar takes its expiry 0 for a session cookie"
_COLLISION = "A cookie is left out: a cookie jar cannot tell it from another one"


def from_cookiejar(jar: Any, url: str | None = None) -> ReadResult:
    """Read a CookieJar, or the ``cookies`` of a session of requests or of a client of httpx.

    ``url`` is the page of the cookies that have no domain, such as those that a program has set.
    """
    return conversion.read_as(_FORMAT, Document("", getattr(jar, "jar", jar)), url)


def to_cookiejar(state: SessionState | ReadResult) -> WriteResult:
    """Write a CookieJar for urllib, requests and httpx. It is the ``content`` of the result."""
    return conversion.write_as(_FORMAT, state, None)


def _read(document: Document, losses: Losses, url: str | None) -> SessionState:
    if not isinstance(document.value, CookieJar):
        raise InvalidSession(_NO_JAR)
    host = None if url is None else parse_url(url).host
    cookies = []
    for index, found in enumerate(document.value):
        with records.at(f"cookies[{index}]"):
            cookies.append(_read_cookie(found, host, losses))
    return SessionState(tuple(cookies))


def _read_cookie(found: cookiejar.Cookie, page_host: str | None, losses: Losses) -> Cookie:
    # A cookie that is sent without "=" has its text as name, and no value.
    name, value = (found.name, found.value) if found.value is not None else ("", found.name)
    if found.port_specified:
        losses.add("host", _LOST_PORT)
    return Cookie(
        name=name,
        value=value,
        host=host_of(found.domain, page_host),
        host_only=not (found.domain_specified or found.domain.startswith(".")),
        path=found.path or "/",
        expires=_read_expires(found.expires),
        secure=bool(found.secure),
        http_only=any(_has_attribute(found, attribute) for attribute in _HTTP_ONLY),
        same_site=records.same_site(_same_site(found), losses),
    )


def host_of(domain: str, page_host: str | None = None) -> str:
    """Return the host of a cookie in a jar, which has its own forms of some domains."""
    if not domain:
        if page_host is None:
            raise MissingUrl("The cookie has no domain: add the parameter url with its page")
        return page_host
    host = domain.removeprefix(".")
    short = host.removesuffix(_LOCAL)
    # "intranet.local" is not changed, because a host may have that name.
    return split_domain(short if _is_always_local(short) else host)[0]


def _is_always_local(host: str) -> bool:
    """Return True for a host without a dot that has no other host with the end .local."""
    return host == "localhost" or (host.startswith("[") and "." not in host)


def _read_expires(expires: float | None) -> int | None:
    """Return None for a session cookie. Jars that were read from cookies.txt have 0 for it."""
    if expires is None or math.isnan(expires) or expires <= 0:
        return None
    return cookie_dates.from_number(expires)


def _has_attribute(found: cookiejar.Cookie, name: str) -> bool:
    value: Any = found.get_nonstandard_attr(name)  # None and "" mean that it is set
    return found.has_nonstandard_attr(name) and value is not False


def _same_site(found: cookiejar.Cookie) -> str | None:
    values = (found.get_nonstandard_attr(name) for name in _SAME_SITE)
    return next((value for value in values if value), None)


def _write(state: SessionState, losses: Losses, url: str | None) -> CookieJar:
    # Without this policy, the jar sends a cookie for one host to the subdomains as well.
    policy = DefaultCookiePolicy(strict_ns_domain=DefaultCookiePolicy.DomainStrictNonDomain)
    jar = CookieJar(policy)
    written: dict[tuple[str, str, str], cookiejar.Cookie] = {}
    for cookie in state.cookies:
        if cookie.expires == 0:
            losses.add("cookie", _YEAR_1970)
            continue
        made = _write_cookie(cookie, losses)
        if written.setdefault((made.domain, made.path, made.name), made) is made:
            jar.set_cookie(made)
        else:
            losses.add("cookie", _COLLISION)
    return jar


def _write_cookie(cookie: Cookie, losses: Losses) -> cookiejar.Cookie:
    attributes: dict[str, Any] = {"HttpOnly": None} if cookie.http_only else {}
    if cookie.same_site is not None:
        attributes["SameSite"] = cookie.same_site
    return cookiejar.Cookie(
        version=0,
        name=cookie.name or cookie.value,
        value=cookie.value if cookie.name else None,
        port=None,
        port_specified=False,
        domain=_write_domain(cookie, losses),
        domain_specified=not cookie.host_only,
        domain_initial_dot=not cookie.host_only,
        path=cookie.path,
        path_specified=True,
        secure=cookie.secure,
        expires=cookie.expires,
        discard=cookie.expires is None,
        comment=None,
        comment_url=None,
        rest=attributes,
    )


def _write_domain(cookie: Cookie, losses: Losses) -> str:
    """Return the domain that http.cookiejar compares: a host without a dot ends with .local."""
    if "." in cookie.host:
        return cookie.domain
    if not _is_always_local(cookie.host):
        losses.add("host", _LOST_HOST)
    return cookie.domain + _LOCAL


_FORMAT = Format(
    name="cookiejar",
    title=_TITLE,
    description="Cookie jar of Python",
    media_type="",  # it exists only as a Python object
    file_name="",
    carries=frozenset(("host_only", "path", "expires", "secure", "http_only", "same_site")),
    detect=lambda document: isinstance(document.value, CookieJar),
    read=_read,
    write=_write,
)
