"""Cookies of Selenium: the list of get_cookies, whose elements add_cookie takes.

Drivers make a cookie for subdomains, too, of every cookie with "domain", and reject a name with
the prefix __Host- beside it. So a host-only cookie of the page has none. The additional member
"host", which drivers ignore, says the host to readers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gleanery.sessions import browser_rules, cookie_records
from gleanery.sessions.browser_rules import parse_url
from gleanery.sessions.document import JSON, OPTIONAL_FIELDS, Format
from gleanery.sessions.model import Cookie, Losses, SessionState, is_address

_NAME = "selenium"
_OTHER_HOST = (
    "Whether a cookie is for one host only is lost: Selenium can keep it for the page's host. "
    "Export each host alone"
)


def _write(state: SessionState, losses: Losses, url: str | None) -> list[dict[str, Any]]:
    cookies = list(browser_rules.accepted(state.cookies, losses))
    host = _page_host(cookies) if url is None else parse_url(url).host
    settable = browser_rules.without_host_only(
        cookies, lambda one: one.host == host or is_address(one.host), _OTHER_HOST, losses
    )
    return [_write_cookie(one, host) for one in browser_rules.without_violations(settable, losses)]


def _page_host(cookies: Iterable[Cookie]) -> str | None:
    """Return the host of the host-only cookies, if it is the same for all."""
    hosts = {one.host for one in cookies if one.host_only and not is_address(one.host)}
    return hosts.pop() if len(hosts) == 1 else None


def _write_cookie(cookie: Cookie, page_host: str | None) -> dict[str, Any]:
    written = cookie_records.write_members(cookie)
    if cookie.expires is not None:
        written["expiry"] = cookie.expires
    # Without "domain", a driver sets the cookie for any page. So only the page's own lack it.
    if cookie.host_only and cookie.host == page_host:
        written["host"] = written.pop("domain")
    return written


FORMAT = Format(
    name=_NAME,
    title="Selenium",
    description="Selenium, WebDriver: `driver.get_cookies()`",
    other_names=("webdriver",),
    media_type=JSON,
    file_name="cookies.selenium.json",
    carries=frozenset(OPTIONAL_FIELDS) - {"partition_key"},
    detect=cookie_records.detector(_NAME),
    read=cookie_records.read_state,
    write=_write,
)
