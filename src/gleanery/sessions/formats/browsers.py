"""Cookies as JSON of browsers: DevTools Protocol (CDP), Puppeteer, and browser extensions.

CDP has an object with "cookies": the result of Network.getCookies and Storage.getCookies, and the
parameters of setCookies. Puppeteer, which uses it, has the array alone, and another name in the
partition. Extensions, such as Cookie-Editor and EditThisCookie, have the records of
``chrome.cookies``, the interface of browsers for extensions.
"""

from __future__ import annotations

from typing import Any

from gleanery.sessions import browser_rules, cookie_records
from gleanery.sessions.document import JSON, OPTIONAL_FIELDS, Format
from gleanery.sessions.model import Cookie, Losses, SessionState

_CDP = "cdp"
_PUPPETEER = "puppeteer"
_NO_EXPIRY = -1


def _write_cdp(state: SessionState, losses: Losses, url: str | None) -> dict[str, Any]:
    accepted = browser_rules.accepted(state.cookies, losses)
    return {"cookies": [_write_cookie(cookie, "topLevelSite") for cookie in accepted]}


def _write_puppeteer(state: SessionState, losses: Losses, url: str | None) -> list[dict[str, Any]]:
    return [
        # Puppeteer's type of a cookie requires these two members.
        _write_cookie(cookie, "sourceOrigin")
        | {"session": cookie.expires is None, "size": len(f"{cookie.name}{cookie.value}".encode())}
        for cookie in browser_rules.accepted(state.cookies, losses)
    ]


def _write_cookie(cookie: Cookie, site_member: str) -> dict[str, Any]:
    written = cookie_records.write_members(cookie)
    written["expires"] = _NO_EXPIRY if cookie.expires is None else cookie.expires
    if cookie.partition_key is not None:
        written["partitionKey"] = {
            site_member: cookie.partition_key.top_level_site,
            "hasCrossSiteAncestor": cookie.partition_key.has_cross_site_ancestor,
        }
    return written


CDP = Format(
    name=_CDP,
    title="The Chrome DevTools Protocol",
    description="Chrome DevTools Protocol: `Network.getCookies`, `Storage.getCookies`",
    other_names=("devtools", "chrome-devtools"),
    media_type=JSON,
    file_name="cookies.cdp.json",
    carries=frozenset(OPTIONAL_FIELDS),
    detect=cookie_records.detector(_CDP),
    read=cookie_records.read_state,
    write=_write_cdp,
)

PUPPETEER = Format(
    name=_PUPPETEER,
    title="Puppeteer",
    description="Puppeteer: `browserContext.cookies()`",
    media_type=JSON,
    file_name="cookies.puppeteer.json",
    carries=frozenset(OPTIONAL_FIELDS),
    detect=cookie_records.detector(_PUPPETEER),
    read=cookie_records.read_state,
    write=_write_puppeteer,
)


_EXTENSION = "extension"
_EXTENSION_SAME_SITE = {"Strict": "strict", "Lax": "lax", "None": "no_restriction"}


def _write_extension(state: SessionState, losses: Losses, url: str | None) -> list[dict[str, Any]]:
    return [
        _write_extension_cookie(cookie) for cookie in browser_rules.accepted(state.cookies, losses)
    ]


def _write_extension_cookie(cookie: Cookie) -> dict[str, Any]:
    written = cookie_records.write_members(cookie)
    # EditThisCookie makes a URL of the domain, which Chromium rejects with a leading dot.
    written |= {"domain": cookie.host, "hostOnly": cookie.host_only}
    written["session"] = cookie.expires is None
    if cookie.expires is not None:
        written["expirationDate"] = cookie.expires
    if cookie.same_site is not None:
        written["sameSite"] = _EXTENSION_SAME_SITE[cookie.same_site]
    if cookie.partition_key is not None:
        written["partitionKey"] = {
            "topLevelSite": cookie.partition_key.top_level_site,
            "hasCrossSiteAncestor": cookie.partition_key.has_cross_site_ancestor,
        }
    return written


EXTENSION = Format(
    name=_EXTENSION,
    title="A browser extension",
    description="JSON of browser extensions, such as Cookie-Editor and EditThisCookie",
    other_names=("cookie-editor", "editthiscookie", "chrome"),
    media_type=JSON,
    file_name="cookies.json",
    carries=frozenset(OPTIONAL_FIELDS),
    detect=cookie_records.detector(_EXTENSION),
    read=cookie_records.read_state,
    write=_write_extension,
)
