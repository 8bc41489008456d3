"""Headers: Set-Cookie, with which a page sets cookies, and Cookie, which a browser sends."""

from __future__ import annotations

import re
import time

from gleanery.sessions import cookie_headers
from gleanery.sessions.browser_rules import Page, page_of
from gleanery.sessions.cookie_headers import COOKIE, SET_COOKIE, ReceivedCookies
from gleanery.sessions.document import TEXT, Document, Format, numbered_lines
from gleanery.sessions.model import InvalidSession, Losses, SessionState

_SET_COOKIE_TITLE = "A Set-Cookie header"
_ATTRIBUTE = re.compile(
    r";[ \t]*(?:secure|httponly|partitioned|path=/[^;]*|domain=[^;]+|max-age=-?[0-9]+"
    r"|expires=[^;]*[0-9:]{5}[^;]*|samesite=(?:lax|strict|none))[ \t]*(?:;|\Z)",
    re.IGNORECASE | re.ASCII,
)
_SENT = "The cookies of a Cookie header are not read: read it with the format cookie"
_START = re.compile(r"[^\s;={}\[\]]+=")


def _are_set_cookie_headers(document: Document) -> bool:
    if document.is_json:
        return False
    return bool(SET_COOKIE.search(document.text)) or _is_bare(document.text)


def _is_bare(text: str) -> bool:
    """Return True if each line is a cookie with an attribute of a Set-Cookie header."""
    return all(_START.match(line) and _ATTRIBUTE.search(line) for _, line in numbered_lines(text))


def _read_set_cookie_headers(document: Document, losses: Losses, url: str | None) -> SessionState:
    page = page_of(url, _SET_COOKIE_TITLE)
    if document.is_json:
        raise InvalidSession("Expected the text of Set-Cookie headers, not JSON")
    losses.add("cookie", _SENT, "header", len(COOKIE.findall(document.text)))
    now = time.time()
    received = ReceivedCookies(losses)
    for value in cookie_headers.header_values(document.text, SET_COOKIE):
        if value.strip():
            received.set_by_header(value, page, now)
    return SessionState(received.cookies())


def _write_set_cookie_headers(state: SessionState, losses: Losses, url: str | None) -> str:
    page = page_of(url, _SET_COOKIE_TITLE)
    values = (cookie_headers.write_set_cookie(cookie, page, losses) for cookie in state.cookies)
    written = "".join(f"Set-Cookie: {value}\n" for value in values if value is not None)
    return written or "Set-Cookie:\n"  # nobody can read an empty document again


SET_COOKIE_FORMAT = Format(
    name="set-cookie",
    title=_SET_COOKIE_TITLE,
    description="`Set-Cookie` headers of the page at `url`, one per line",
    media_type=TEXT,
    file_name="set-cookie.txt",
    carries=frozenset(("host_only", "path", "expires", "secure", "http_only", "same_site")),
    detect=_are_set_cookie_headers,
    read=_read_set_cookie_headers,
    write=_write_set_cookie_headers,
    needs_url=True,
)


_COOKIE_TITLE = "A Cookie header"
# One line of pairs whose names are tokens, as servers should choose them.
_PAIR = r"[\w!#%&'*+.^`|~-]+=[^;\t\r\n]*"
_BARE = re.compile(rf"{_PAIR}(?:; ?{_PAIR})*;?\s*\Z", re.ASCII)


def _is_cookie_header(document: Document) -> bool:
    if document.is_json or _are_set_cookie_headers(document):
        return False
    return bool(COOKIE.search(document.text) or _BARE.match(document.text))


def _read_cookie_header(document: Document, losses: Losses, url: str | None) -> SessionState:
    page = page_of(url, _COOKIE_TITLE)
    if document.is_json:
        raise InvalidSession("Expected the text of a Cookie header, not JSON")
    values = cookie_headers.header_values(document.text, COOKIE)
    return SessionState(tuple(cookie_headers.read_cookie_header(values, page, losses)))


def _cookie_pages(document: Document, url: str | None) -> tuple[Page]:
    return (page_of(url, _COOKIE_TITLE),)


def _write_cookie_header(state: SessionState, losses: Losses, url: str | None) -> str:
    page = page_of(url, _COOKIE_TITLE)
    return f"Cookie: {cookie_headers.write_cookie_header(state.cookies, page, losses)}\n"


COOKIE_FORMAT = Format(
    name="cookie",
    title=_COOKIE_TITLE,
    description="`Cookie` header of the page at `url`",
    other_names=("header", "cookie-header"),
    media_type=TEXT,
    file_name="cookie.txt",
    carries=frozenset(),
    detect=_is_cookie_header,
    read=_read_cookie_header,
    write=_write_cookie_header,
    pages=_cookie_pages,
    needs_url=True,
)
