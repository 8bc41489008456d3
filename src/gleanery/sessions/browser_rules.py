"""The rules of browsers: which cookies they accept, and which part of a session a page sees.

A tool that sets many cookies fails if one breaks a rule of browsers. The rules of name prefixes,
such as ``__Host-``, are those of RFC 6265bis. Some tools send every cookie to subdomains, so they
cannot keep a cookie for one host. What a page sees follows from hosts, paths and schemes.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from gleanery.sessions.model import (
    Cookie,
    InvalidSession,
    Losses,
    MissingUrl,
    SessionState,
    host_of_origin,
    is_address,
    is_valid_in_browsers,
    normalize_origin,
    split_domain,
)

_CONTROLS = "\x00-\x1f\x7f"
_NAME = re.compile(rf"(?! )[^;={_CONTROLS}]*(?<! )\Z")
_VALUE = re.compile(rf"(?! )[^;{_CONTROLS}]*(?<! )\Z")
_MAX_BYTES = 4096
_MAX_PATH_BYTES = 1024
_INVALID = "A cookie is left out, because browsers reject its name, value, host or path"
_PARTITION_RULE = "A cookie is left out, because browsers reject its partition"
_SAME_SITE_RULE = "SameSite None is omitted, because browsers reject it without Secure"
_PREFIX_RULE = "A cookie is left out, because browsers reject it: {rule}"
_COLLISION = "A cookie for one host is left out, because another one is for its subdomains, too"
# urlsplit rejects some hosts in brackets that the service can store.
_URL = re.compile(r"(https?)://(?:[^/?#]*@)?([^/?#@]+)([^?#]*)", re.IGNORECASE | re.ASCII)
_WEB_SOCKET = re.compile(r"\A\s*ws(?=s?://)", re.IGNORECASE | re.ASCII)


# --- names, values and flags --------------------------------------------------------------------


def accepted(cookies: Iterable[Cookie], losses: Losses) -> Iterator[Cookie]:
    """Yield the cookies in a form that browsers accept; count the differences as losses.

    The rules of name prefixes are checked before.
    """
    for cookie in cookies:
        if not _is_valid(cookie):
            losses.add("cookie", _INVALID)
        elif not _has_valid_partition(cookie):
            losses.add("cookie", _PARTITION_RULE)
        else:
            yield _with_valid_same_site(cookie, losses)


def _is_valid(cookie: Cookie) -> bool:
    return (
        _NAME.match(cookie.name) is not None
        and _VALUE.match(cookie.value) is not None
        and (cookie.name != "" or "=" not in cookie.value)
        and len(cookie.name.encode()) + len(cookie.value.encode()) <= _MAX_BYTES
        and is_valid_in_browsers(cookie.host)
        and cookie.path.startswith("/")
        and ";" not in cookie.path
        and len(quote(cookie.path)) <= _MAX_PATH_BYTES
    )


def _has_valid_partition(cookie: Cookie) -> bool:
    """Return True if there is none, or one of a valid site. A partition requires Secure."""
    if cookie.partition_key is None:
        return True
    host = cookie.partition_key.top_level_site.partition("://")[2]
    return cookie.secure and is_valid_in_browsers(host)


def _with_valid_same_site(cookie: Cookie, losses: Losses) -> Cookie:
    if cookie.same_site != "None" or cookie.secure:
        return cookie
    losses.add("same_site", _SAME_SITE_RULE)
    return replace(cookie, same_site=None)


# --- prefixes of names --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    prefix: str
    sentence: str
    is_for_host: bool
    is_http_only: bool

    def is_met_by(self, cookie: Cookie) -> bool:
        # Servers take a cookie without a name, which is sent as its value, for one with a name.
        return (
            bool(cookie.name)
            and cookie.secure
            and (cookie.http_only or not self.is_http_only)
            and (not self.is_for_host or (cookie.host_only and cookie.path == "/"))
        )


# The first rule that matches counts, so the longest prefix is first.
_RULES = (
    _Rule(
        "__host-http-",
        "__Host-Http- requires a name, Secure, HttpOnly, the path / and no domain",
        is_for_host=True,
        is_http_only=True,
    ),
    _Rule(
        "__host-",
        "__Host- requires a name, Secure, the path / and no domain",
        is_for_host=True,
        is_http_only=False,
    ),
    _Rule(
        "__http-",
        "__Http- requires a name, Secure and HttpOnly",
        is_for_host=False,
        is_http_only=True,
    ),
    _Rule(
        "__secure-",
        "__Secure- requires a name and Secure",
        is_for_host=False,
        is_http_only=False,
    ),
)
_LONGEST = max(len(rule.prefix) for rule in _RULES)


def without_violations(cookies: Iterable[Cookie], losses: Losses) -> Iterator[Cookie]:
    """Yield the cookies that browsers accept; count the others as losses."""
    for cookie in cookies:
        rule = _rule_of(cookie)
        if rule is None or rule.is_met_by(cookie):
            yield cookie
        else:
            losses.add("cookie", _PREFIX_RULE.format(rule=rule.sentence))


def with_implied_fields(cookie: Cookie, missing: Collection[str]) -> Cookie:
    """Add the flags that a format does not say, and that the name of the cookie requires."""
    rule = _rule_of(cookie)
    if rule is None:
        return cookie
    return replace(
        cookie,
        secure=cookie.secure or "secure" in missing,
        http_only=cookie.http_only or (rule.is_http_only and "http_only" in missing),
    )


def _rule_of(cookie: Cookie) -> _Rule | None:
    start = (cookie.name or cookie.value)[:_LONGEST].lower()  # browsers accept any case
    return next((rule for rule in _RULES if start.startswith(rule.prefix)), None)


# --- tools that send every cookie to subdomains -------------------------------------------------


def without_host_only(
    cookies: Sequence[Cookie], is_kept: Callable[[Cookie], bool], reason: str, losses: Losses
) -> Iterator[Cookie]:
    """Yield a domain cookie instead of each host-only cookie that the tool cannot keep.

    Count it as a loss with this reason.
    """
    identities = {cookie.identity for cookie in cookies}
    for cookie in cookies:
        if not cookie.host_only or is_kept(cookie):
            yield cookie
            continue
        wider = replace(cookie, host_only=False)
        if wider.identity in identities:
            losses.add("cookie", _COLLISION)
        else:
            losses.add("host_only", reason)
            yield wider


# --- what a page sees ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page:
    """The address of a page, in the parts that decide what it sees."""

    origin: str
    host: str
    path: str

    @property
    def is_secure(self) -> bool:
        """True for https and for this computer, where browsers send Secure cookies, too."""
        return self.origin.startswith("https:") or _is_loopback(self.host)


def parse_url(url: str) -> Page:
    """Return the page at a URL with http or https. Raise InvalidSession."""
    found = _URL.match(url.strip())
    if found is None:
        raise InvalidSession("Expected a URL such as https://shop.example/account")
    scheme, host_and_port, path = found.groups()
    try:
        origin = normalize_origin(f"{scheme}://{host_and_port.removesuffix(':')}")
    except ValueError:
        raise InvalidSession("The URL is invalid: its host or its port is wrong") from None
    return Page(origin, host_of_origin(origin), path or "/")


def parse_request_url(url: str) -> Page:
    """Return the page at the URL of a request, which may be that of a WebSocket."""
    return parse_url(_WEB_SOCKET.sub("http", url, count=1))


def page_of(url: str | None, title: str) -> Page:
    """Return the page of a document that does not say it. ``title`` names the document."""
    if url is None:
        raise MissingUrl(f"{title} does not say which page it belongs to: add the parameter url")
    return parse_url(url)


def without_expired(state: SessionState, now: float) -> SessionState:
    """Leaves out the cookies that have expired at this time, in seconds since 1970."""
    kept = (one for one in state.cookies if one.expires is None or one.expires > now)
    return replace(state, cookies=tuple(kept))


def of_page(state: SessionState, page: Page) -> SessionState:
    """Return what a page sees: its origin's local storage, and the cookies that it gets."""
    return SessionState(
        tuple(cookie for cookie in state.cookies if gets_cookie(page, cookie)),
        tuple(entry for entry in state.local_storage if entry.origin == page.origin),
    )


def of_domain(state: SessionState, domain: str) -> SessionState:
    """Return what the pages on a host see, with any scheme, port and path.

    A leading dot of the domain includes the pages on its subdomains.
    """
    host, is_one_host = split_domain(domain)

    def is_on(other: str) -> bool:
        return other == host or (not is_one_host and other.endswith(f".{host}"))

    return SessionState(
        tuple(one for one in state.cookies if is_on(one.host) or matches_host(one, host)),
        tuple(entry for entry in state.local_storage if is_on(host_of_origin(entry.origin))),
    )


def gets_cookie(page: Page, cookie: Cookie) -> bool:
    """Return True if a browser sends the cookie to the page, opened in a tab of its own."""
    return (
        matches_host(cookie, page.host)
        and _matches_path(cookie.path, page.path)
        and (page.is_secure or not cookie.secure)
        and _matches_partition(cookie, page)
    )


def matches_host(cookie: Cookie, host: str) -> bool:
    """Return True if the cookie is for this host (RFC 6265, domain-match)."""
    if cookie.host == host:
        return True
    return not cookie.host_only and host.endswith(f".{cookie.host}") and not is_address(host)


def _matches_path(cookie_path: str, path: str) -> bool:
    if not path.startswith(cookie_path):
        return False
    return cookie_path.endswith("/") or path[len(cookie_path) :][:1] in ("", "/")


def _matches_partition(cookie: Cookie, page: Page) -> bool:
    """Return True if the cookie has no partition, or that of the page's own site."""
    if cookie.partition_key is None:
        return True
    scheme, _, site = cookie.partition_key.top_level_site.partition("://")
    is_same_site = page.host == site or page.host.endswith(f".{site}")
    return (
        is_same_site
        and page.origin.startswith(f"{scheme}://")
        and not cookie.partition_key.has_cross_site_ancestor  # the page is not in a frame
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
