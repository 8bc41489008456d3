"""Cookies of Scrapy: the list of ``Request(cookies=[...])``. Reads its dictionary as well.

Scrapy makes a ``Set-Cookie`` header of each record, and lets the standard library parse it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gleanery.sessions import browser_rules, cookie_records, records
from gleanery.sessions.browser_rules import page_of
from gleanery.sessions.document import JSON, Document, Format
from gleanery.sessions.model import Cookie, InvalidSession, Losses, SessionState, is_address

_NAME = "scrapy"
_OFTEN_MISSING = ("secure", "http_only")  # in lists that people write
_SUBDOMAINS = "Whether a cookie is for one host only is lost: Scrapy sends it to subdomains, too"
_INVALID = "A cookie is left out, because Scrapy would change its name, value or path"
_IPV6 = "A cookie is left out, because Scrapy has no cookies for IPv6 addresses"


def _detect(document: Document) -> bool:
    return cookie_records.format_name(document) == _NAME


def _read(document: Document, losses: Losses, url: str | None) -> SessionState:
    found = _read_pairs(document, url) or cookie_records.read_state(document, losses, url).cookies
    return SessionState(
        tuple(browser_rules.with_implied_fields(cookie, _OFTEN_MISSING) for cookie in found)
    )


def _read_pairs(document: Document, url: str | None) -> list[Cookie]:
    """Return the cookies of a dictionary with names and values; none of another document."""
    pairs = document.value
    if not isinstance(pairs, dict) or "cookies" in pairs or "origins" in pairs or not pairs:
        return []
    host = page_of(url, "A dictionary of Scrapy").host
    return [_read_pair(*pair, host, index) for index, pair in enumerate(pairs.items())]


def _read_pair(name: Any, value: Any, host: str, index: int) -> Cookie:
    with records.at(f"cookies[{index}]"):
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidSession("expected a string")
        return Cookie(name, value, host)


def _write(state: SessionState, losses: Losses, url: str | None) -> list[dict[str, Any]]:
    cookies = list(_accepted(state, losses))
    sendable = browser_rules.without_host_only(cookies, _has_no_subdomain, _SUBDOMAINS, losses)
    return [_write_cookie(cookie) for cookie in sendable]


def _accepted(state: SessionState, losses: Losses) -> Iterator[Cookie]:
    for cookie in state.cookies:
        if cookie.host.startswith("["):
            losses.add("cookie", _IPV6)
        elif not _is_kept(cookie):
            losses.add("cookie", _INVALID)
        else:
            yield cookie


def _is_kept(cookie: Cookie) -> bool:
    """Return True if the parser of the header returns the cookie as it is."""
    texts = (cookie.name, cookie.value, cookie.path)
    has_valid_name = cookie.name != "" and "=" not in cookie.name
    return has_valid_name and all(one == one.strip() and ";" not in one for one in texts)


def _has_no_subdomain(cookie: Cookie) -> bool:
    return "." not in cookie.host or is_address(cookie.host)


def _write_cookie(cookie: Cookie) -> dict[str, Any]:
    written = {
        "name": cookie.name,
        "value": cookie.value,
        "domain": cookie.domain,
        "path": cookie.path,
        "secure": cookie.secure,  # without it, Scrapy takes the scheme of the request
    }
    if "." not in cookie.host:
        # The parser knows localhost as localhost.local. "host" says the real host to readers.
        written |= {"domain": f"{cookie.domain}.local", "host": cookie.host}
    return written


FORMAT = Format(
    name=_NAME,
    title="Scrapy",
    description="Scrapy: the list of `Request(cookies=[…])`, or its dictionary with `url`",
    media_type=JSON,
    file_name="cookies.scrapy.json",
    carries=frozenset(("host_only", "path", "secure")),
    detect=_detect,
    read=_read,
    write=_write,
)
