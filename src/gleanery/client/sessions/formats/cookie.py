"""The Cookie header, which a browser sends to one page."""

from __future__ import annotations

import re

from gleanery.client.sessions import cookie_headers
from gleanery.client.sessions.cookie_headers import COOKIE
from gleanery.client.sessions.document import Document
from gleanery.client.sessions.errors import InvalidSession
from gleanery.client.sessions.format import TEXT, Format
from gleanery.client.sessions.formats import set_cookie
from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import SessionState
from gleanery.client.sessions.visibility import Page, page_of

_TITLE = "A Cookie header"
# One line of pairs whose names are tokens, as servers should choose them.
_PAIR = r"[\w!#%&'*+.^`|~-]+=[^;\t\r\n]*"
_BARE = re.compile(rf"{_PAIR}(?:; ?{_PAIR})*;?\s*\Z", re.ASCII)


def _detect(document: Document) -> bool:
    if document.is_json or set_cookie.FORMAT.detect(document):
        return False
    return bool(COOKIE.search(document.text) or _BARE.match(document.text))


def _read(document: Document, losses: Losses, url: str | None) -> SessionState:
    page = page_of(url, _TITLE)
    if document.is_json:
        raise InvalidSession("Expected the text of a Cookie header, not JSON")
    values = cookie_headers.header_values(document.text, COOKIE)
    return SessionState(tuple(cookie_headers.read_cookie_header(values, page, losses)))


def _pages(document: Document, url: str | None) -> tuple[Page]:
    return (page_of(url, _TITLE),)


def _write(state: SessionState, losses: Losses, url: str | None) -> str:
    page = page_of(url, _TITLE)
    return f"Cookie: {cookie_headers.write_cookie_header(state.cookies, page, losses)}\n"


FORMAT = Format(
    name="cookie",
    title=_TITLE,
    description="`Cookie` header of the page at `url`",
    other_names=("header", "cookie-header"),
    media_type=TEXT,
    file_name="cookie.txt",
    carries=frozenset(),
    detect=_detect,
    read=_read,
    write=_write,
    pages=_pages,
    needs_url=True,
)
