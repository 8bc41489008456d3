"""Set-Cookie headers, with which a page sets cookies, one per line."""

from __future__ import annotations

import re
import time

from gleanery.client.sessions import cookie_headers, lines
from gleanery.client.sessions.cookie_headers import COOKIE, SET_COOKIE
from gleanery.client.sessions.document import Document
from gleanery.client.sessions.errors import InvalidSession
from gleanery.client.sessions.format import TEXT, Format
from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import SessionState
from gleanery.client.sessions.received_cookies import ReceivedCookies
from gleanery.client.sessions.visibility import page_of

_TITLE = "A Set-Cookie header"
_ATTRIBUTE = re.compile(
    r";[ \t]*(?:secure|httponly|partitioned|path=/[^;]*|domain=[^;]+|max-age=-?[0-9]+"
    r"|expires=[^;]*[0-9:]{5}[^;]*|samesite=(?:lax|strict|none))[ \t]*(?:;|\Z)",
    re.IGNORECASE | re.ASCII,
)
_SENT = "The cookies of a Cookie header are not read: read it with the format cookie"
_START = re.compile(r"[^\s;={}\[\]]+=")


def _detect(document: Document) -> bool:
    if document.is_json:
        return False
    return bool(SET_COOKIE.search(document.text)) or _is_bare(document.text)


def _is_bare(text: str) -> bool:
    """Return True if each line is a cookie with an attribute of a Set-Cookie header."""
    return all(_START.match(line) and _ATTRIBUTE.search(line) for _, line in lines.numbered(text))


def _read(document: Document, losses: Losses, url: str | None) -> SessionState:
    page = page_of(url, _TITLE)
    if document.is_json:
        raise InvalidSession("Expected the text of Set-Cookie headers, not JSON")
    losses.add("cookie", _SENT, "header", len(COOKIE.findall(document.text)))
    now = time.time()
    received = ReceivedCookies(losses)
    for value in cookie_headers.header_values(document.text, SET_COOKIE):
        if value.strip():
            received.set_by_header(value, page, now)
    return SessionState(received.cookies())


def _write(state: SessionState, losses: Losses, url: str | None) -> str:
    page = page_of(url, _TITLE)
    values = (cookie_headers.write_set_cookie(cookie, page, losses) for cookie in state.cookies)
    written = "".join(f"Set-Cookie: {value}\n" for value in values if value is not None)
    return written or "Set-Cookie:\n"  # nobody can read an empty document again


FORMAT = Format(
    name="set-cookie",
    title=_TITLE,
    description="`Set-Cookie` headers of the page at `url`, one per line",
    media_type=TEXT,
    file_name="set-cookie.txt",
    carries=frozenset(("host_only", "path", "expires", "secure", "http_only", "same_site")),
    detect=_detect,
    read=_read,
    write=_write,
    needs_url=True,
)
