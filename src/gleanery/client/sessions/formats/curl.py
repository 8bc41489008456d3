"""A curl command, as browsers copy a request. Reads their PowerShell commands, too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby

from gleanery.client.sessions import cookie_headers, powershell, shell_words
from gleanery.client.sessions.cookie_headers import COOKIE
from gleanery.client.sessions.document import Document
from gleanery.client.sessions.errors import InvalidSession
from gleanery.client.sessions.format import TEXT, Format
from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import Cookie, SessionState
from gleanery.client.sessions.visibility import Page, page_of, parse_request_url

_START = re.compile(r"\s*(?:\$ )?curl(?:\.exe)?\s")
_PROGRAMS = ("curl", "curl.exe")
_TITLE = "A curl command"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE | re.ASCII)
_HEADERS = ("-H", "--header")
_COOKIES = ("-b", "--cookie")
_NEXT = ("-:", "--next")
_USER = ("-u", "--user")
_AUTHORIZATION = re.compile(r"\s*authorization\s*:", re.IGNORECASE)
_URL = "--url"
_SHORT_WITH_VALUE = frozenset("AbcCdDeEFHKmoPQrtTuUwxXyYz")
# The values of other long options have no scheme, so they are not taken for the URL.
_LONG_WITH_VALUE = frozenset(
    (
        *("--cookie", "--data", "--data-ascii", "--data-binary", "--data-raw", "--data-urlencode"),
        *("--doh-url", "--form", "--form-string", "--header", "--json", "--preproxy", "--proxy"),
        *("--proxy-header", "--referer", "--request", "--request-target", "--url", "--url-query"),
        *("--user", "--user-agent"),
    )
)
_COOKIE_FILE = "The cookies of a file are not read: the command has only the name of the file"


@dataclass(slots=True)
class _Request:
    urls: list[str] = field(default_factory=list)
    cookies: list[str] = field(default_factory=list)
    has_authorization: bool = False

    @property
    def url(self) -> str | None:
        """The first word with a scheme; otherwise the first, to which curl adds http."""
        found = (url for url in self.urls if _SCHEME.match(url))
        return next(found, f"http://{self.urls[0]}" if self.urls else None)


def _detect(document: Document) -> bool:
    if document.is_json:
        return False
    return bool(_START.match(document.text)) or powershell.is_command(document.text)


def _read(document: Document, losses: Losses, url: str | None) -> SessionState:
    if not _detect(document):
        raise InvalidSession("Expected a command that starts with curl")
    if powershell.is_command(document.text):
        return SessionState(tuple(powershell.read(document.text, losses)))
    cookies = (_read_request(one, losses, url) for one in _requests(document, losses))
    return SessionState(tuple(chain.from_iterable(cookies)))


def _pages(document: Document, url: str | None) -> Iterator[Page]:
    if not powershell.is_command(document.text):  # its cookies have domains and paths
        yield from (_page_of(one, url) for one in _requests(document, Losses()) if one.cookies)


def _requests(document: Document, losses: Losses) -> Iterator[_Request]:
    text = document.text.lstrip().removeprefix("$ ")
    commands = (words[1:] for words in shell_words.split(text) if words[0] in _PROGRAMS)
    for command in commands:
        yield from (_parse(words, losses) for words in _split_at_next(command))


def _split_at_next(words: list[str]) -> Iterator[list[str]]:
    """Yields the words of each request of a command."""
    for is_next, request in groupby(words, lambda word: word in _NEXT):
        if not is_next:
            yield list(request)


def _read_request(request: _Request, losses: Losses, url: str | None) -> Iterator[Cookie]:
    losses.add_authorization(request.has_authorization)
    if request.cookies:
        page = _page_of(request, url)
        yield from cookie_headers.read_cookie_header(request.cookies, page, losses)


def _page_of(request: _Request, url: str | None) -> Page:
    if request.url is None:
        return page_of(url, "A curl command without a URL")
    return parse_request_url(request.url)


def _parse(words: list[str], losses: Losses) -> _Request:
    request = _Request()
    for option, value in _options(words):
        if option in _HEADERS:
            header = COOKIE.match(value)
            if header:
                request.cookies.append(value[header.end() :])
            request.has_authorization |= bool(_AUTHORIZATION.match(value))
        elif option in _USER:
            request.has_authorization = True
        elif option in _COOKIES and "=" in value:
            request.cookies.append(value)
        elif option in _COOKIES:
            losses.add("cookie", _COOKIE_FILE, "file")
        elif option == _URL:
            request.urls.append(value)
    return request


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yields the options that have a value. A word without an option is the URL."""
    remaining = iter(words)
    for word in remaining:
        if not word.startswith("-"):
            yield _URL, word
        elif word.startswith("--"):
            if word in _LONG_WITH_VALUE:
                yield word, next(remaining, "")
        else:
            yield from _short_options(word, remaining)


def _short_options(word: str, remaining: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yields the last of several short options, such as ``-sb``, if it has a value."""
    for position, letter in enumerate(word[1:], start=1):
        if letter in _SHORT_WITH_VALUE:
            yield f"-{letter}", word[position + 1 :] or next(remaining, "")
            return


def _write(state: SessionState, losses: Losses, url: str | None) -> str:
    page = page_of(url, _TITLE)
    header = cookie_headers.write_cookie_header(state.cookies, page, losses)
    # Without --globoff, curl takes brackets in a URL for a pattern.
    words = ["curl", "--globoff", str(url)]
    if header:
        words += ["--header", f"Cookie: {header}"]
    return shlex.join(words) + "\n"


FORMAT = Format(
    name="curl",
    title=_TITLE,
    media_type=TEXT,
    file_name="curl.sh",
    carries=frozenset(),
    detect=_detect,
    read=_read,
    write=_write,
    pages=_pages,
    needs_url=True,
)
