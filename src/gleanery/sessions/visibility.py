"""The part of a session that a page sees: the rules of browsers for hosts, paths and schemes."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

from gleanery.sessions import hostnames
from gleanery.sessions.model import Cookie, InvalidSession, MissingUrl, SessionState, split_domain

# urlsplit rejects some hosts in brackets that the service can store.
_URL = re.compile(r"(https?)://(?:[^/?#]*@)?([^/?#@]+)([^?#]*)", re.IGNORECASE | re.ASCII)
_WEB_SOCKET = re.compile(r"\A\s*ws(?=s?://)", re.IGNORECASE | re.ASCII)


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
        origin = hostnames.normalize_origin(f"{scheme}://{host_and_port.removesuffix(':')}")
    except ValueError:
        raise InvalidSession("The URL is invalid: its host or its port is wrong") from None
    return Page(origin, hostnames.host_of_origin(origin), path or "/")


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
        tuple(
            entry for entry in state.local_storage if is_on(hostnames.host_of_origin(entry.origin))
        ),
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
    return (
        not cookie.host_only and host.endswith(f".{cookie.host}") and not hostnames.is_address(host)
    )


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
