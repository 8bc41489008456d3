"""Cookies of browser extensions, such as Cookie-Editor and EditThisCookie.

The records are those of the browsers' own interface for extensions, ``chrome.cookies``.
"""

from __future__ import annotations

from typing import Any

from gleanery.client.sessions import browser_rules, cookie_records
from gleanery.client.sessions.format import JSON, OPTIONAL_FIELDS, Format
from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import Cookie, SessionState

_NAME = "extension"
_SAME_SITE = {"Strict": "strict", "Lax": "lax", "None": "no_restriction"}


def _write(state: SessionState, losses: Losses, url: str | None) -> list[dict[str, Any]]:
    return [_write_cookie(cookie) for cookie in browser_rules.accepted(state.cookies, losses)]


def _write_cookie(cookie: Cookie) -> dict[str, Any]:
    written = cookie_records.write_members(cookie)
    # EditThisCookie makes a URL of the domain, which Chromium rejects with a leading dot.
    written |= {"domain": cookie.host, "hostOnly": cookie.host_only}
    written["session"] = cookie.expires is None
    if cookie.expires is not None:
        written["expirationDate"] = cookie.expires
    if cookie.same_site is not None:
        written["sameSite"] = _SAME_SITE[cookie.same_site]
    if cookie.partition_key is not None:
        written["partitionKey"] = {
            "topLevelSite": cookie.partition_key.top_level_site,
            "hasCrossSiteAncestor": cookie.partition_key.has_cross_site_ancestor,
        }
    return written


FORMAT = Format(
    name=_NAME,
    title="A browser extension",
    description="JSON of browser extensions, such as Cookie-Editor and EditThisCookie",
    other_names=("cookie-editor", "editthiscookie", "chrome"),
    media_type=JSON,
    file_name="cookies.json",
    carries=frozenset(OPTIONAL_FIELDS),
    detect=cookie_records.detector(_NAME),
    read=cookie_records.read_state,
    write=_write,
)
