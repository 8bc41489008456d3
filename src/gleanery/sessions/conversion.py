"""Reads and writes session state in any of the formats, and reports what is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gleanery.sessions import browser_rules, document
from gleanery.sessions.browser_rules import Page
from gleanery.sessions.document import JSON, OPTIONAL_FIELDS, Document, Format
from gleanery.sessions.formats import FORMATS
from gleanery.sessions.model import Cookie, InvalidSession, Loss, Losses, SessionState, StorageEntry

AUTO = "auto"
_EXPIRED = "A cookie is left out, because it has expired"
_LOST_HOST = "The host is lost: the cookie is kept as one of the page's host"
_NOT_SENT = "A cookie is left out, because browsers do not send it to the page"
_FIELD_NAMES = {
    "host_only": "Whether a cookie is for one host only",
    "path": "The path",
    "expires": "The expiry",
    "secure": "Secure",
    "http_only": "HttpOnly",
    "same_site": "SameSite",
    "partition_key": "The partition (CHIPS)",
}
_DEFAULTS: dict[str, Any] = {
    name: Cookie.__dataclass_fields__[name].default for name in OPTIONAL_FIELDS
}

Record = TypeVar("Record", Cookie, StorageEntry)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What was read, in which format, and what could not be kept."""

    state: SessionState
    format: str
    losses: tuple[Loss, ...]
    pages: tuple[Page, ...] = ()
    """The pages that the cookies were sent to, if the format does not say domain and path.

    Such a cookie has the page's host, but it can be one of a parent domain or of another path.
    """


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What was written, and what the format cannot carry."""

    content: Any = field(repr=False)
    """A text, the JSON value that the tool takes, or a cookie jar."""
    losses: tuple[Loss, ...]

    @property
    def text(self) -> str:
        """The content as text, for a file."""
        if isinstance(self.content, str):
            return self.content
        return json.dumps(self.content, ensure_ascii=False, indent=2) + "\n"


def read(content: Any, format: str = AUTO, url: str | None = None) -> ReadResult:  # noqa: A002
    """Read a text, its bytes, a JSON value that is parsed already, a Path, or an open file.

    ``url`` is the page that the cookies belong to, for formats that do not say it. Raise
    InvalidSession, whose message never contains a value. ``auto`` recognises the format:

    - ``playwright``: Playwright: ``context.storage_state()``
    - ``cdp``: Chrome DevTools Protocol: ``Network.getCookies``, ``Storage.getCookies``
    - ``puppeteer``: Puppeteer: ``browserContext.cookies()``
    - ``selenium``: Selenium, WebDriver: ``driver.get_cookies()``
    - ``extension``: JSON of browser extensions, such as Cookie-Editor and EditThisCookie
    - ``scrapy``: Scrapy: the list of ``Request(cookies=[…])``, or its dictionary with ``url``
    - ``har``: HAR file of a browser's developer tools
    - ``netscape``: ``cookies.txt`` of curl, wget, yt-dlp and browser extensions
    - ``curl``: "Copy as cURL" of a browser's developer tools. Reads "Copy as PowerShell", too
    - ``set-cookie``: ``Set-Cookie`` headers of the page at ``url``, one per line
    - ``cookie``: ``Cookie`` header of the page at ``url``
    """
    source = document.parse(content)
    return read_as(_detect(source) if format == AUTO else _by_name(format), source, url)


def read_as(chosen: Format, source: Document, url: str | None) -> ReadResult:
    """Read a document in this format."""
    if chosen.media_type == JSON:
        source.require_json()
    losses = Losses()
    found = chosen.read(source, losses, url)
    missing = _missing_fields(chosen)
    complete = (browser_rules.with_implied_fields(cookie, missing) for cookie in found.cookies)
    cookies = browser_rules.without_violations(_last_of_each(complete), losses)
    state = SessionState(tuple(cookies), tuple(_last_of_each(found.local_storage)))
    pages = tuple(dict.fromkeys(chosen.pages(source, url)))
    return ReadResult(state, chosen.name, losses.found(), pages)


def write(
    state: SessionState | ReadResult,
    format: str,  # noqa: A002
    url: str | None = None,
) -> WriteResult:
    """Write the state, or that of a result of ``read``. Raise InvalidSession.

    The ``content`` of the result is the JSON value of ``playwright``, ``cdp``, ``puppeteer``,
    ``selenium``, ``extension``, ``scrapy`` and ``har``, and the text of ``netscape``, ``curl``,
    ``set-cookie`` and ``cookie``. The last three have the cookies of one page: it is ``url``.
    """
    return write_as(_by_name(format), state, url)


def write_as(chosen: Format, state: SessionState | ReadResult, url: str | None) -> WriteResult:
    """Write the state in this format."""
    state, losses = _state_of(state), Losses()
    if chosen.needs_url:
        page = browser_rules.page_of(url, chosen.title)
        state = _of_page(state, page, losses)
        if _is_request(chosen):
            state = _as_sent(state, page, losses)
    content = chosen.write(_reduce(state, chosen, losses), losses, url)
    return WriteResult(content, losses.found())


def _state_of(value: SessionState | ReadResult) -> SessionState:
    state = value.state if isinstance(value, ReadResult) else value
    if not isinstance(state, SessionState):
        raise TypeError("Expected a SessionState, or what read() returns")
    return state


def _detect(source: Document) -> Format:
    for candidate in FORMATS.values():
        if candidate.detect(source):
            return candidate
    source.reject_file_name()
    if source.looks_like_json:
        source.require_json()
    raise InvalidSession(
        f"The format is not known: expected one of {', '.join(FORMATS)}. Name it, if you know it"
    )


def _by_name(name: str) -> Format:
    if name not in FORMATS:
        raise InvalidSession(f"There is no such format: expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


def _last_of_each(records: Iterable[Record]) -> list[Record]:
    """Return the records without those that a later one replaces."""
    return list({record.identity: record for record in records}.values())


def _of_page(state: SessionState, page: Page, losses: Losses) -> SessionState:
    """Return the cookies that the page gets; count the others as losses."""
    current = browser_rules.without_expired(state, time.time()).cookies
    losses.add("cookie", _EXPIRED, count=len(state.cookies) - len(current))
    visible = tuple(cookie for cookie in current if browser_rules.gets_cookie(page, cookie))
    losses.add("cookie", _NOT_SENT, count=len(current) - len(visible))
    return replace(state, cookies=visible)


def _is_request(chosen: Format) -> bool:
    """Return True if a document is one request, which has names and values only."""
    return chosen.needs_url and "host_only" not in chosen.carries


def _as_sent(state: SessionState, page: Page, losses: Losses) -> SessionState:
    """Return the cookies as browsers send them: the longest path first, without their hosts.

    Some servers read the first of two cookies with one name, others the last. Who reads the
    document keeps the first, and counts the others as losses.
    """
    cookies = sorted(_last_of_each(state.cookies), key=lambda one: -len(one.path))
    losses.add("host", _LOST_HOST, count=sum(cookie.host != page.host for cookie in cookies))
    return replace(state, cookies=tuple(replace(one, host=page.host) for one in cookies))


def _missing_fields(chosen: Format) -> list[str]:
    return [name for name in OPTIONAL_FIELDS if name not in chosen.carries]


def _reduce(state: SessionState, chosen: Format, losses: Losses) -> SessionState:
    """Return what the format carries; count the rest as losses."""
    missing = _missing_fields(chosen)
    unique = state.cookies if _is_request(chosen) else _last_of_each(state.cookies)
    accepted = browser_rules.without_violations(unique, losses)
    pairs = [(one, _without_fields(one, missing, chosen, losses)) for one in accepted]
    if not _is_request(chosen):
        pairs = _without_collisions(pairs, chosen, losses)
    cookies = tuple(reduced for _, reduced in pairs)
    entries = tuple(_last_of_each(state.local_storage))
    if "local_storage" in chosen.carries:
        return SessionState(cookies, entries)
    reason = f"Local storage is left out: {chosen.title} has only cookies"
    losses.add("local_storage", reason, "entry", len(entries))
    return SessionState(cookies)


def _without_collisions(
    pairs: Iterable[tuple[Cookie, Cookie]], chosen: Format, losses: Losses
) -> list[tuple[Cookie, Cookie]]:
    """Return one of the cookies that have become equal when they were reduced; count the others.

    Prefers the cookie whose identity has not changed, then the last one.
    """
    kept: dict[tuple[object, ...], tuple[Cookie, Cookie]] = {}
    for pair in pairs:
        identity = pair[1].identity
        other = kept.setdefault(identity, pair)
        if other is not pair:
            reason = f"A cookie is left out: {chosen.title} cannot tell it from another one"
            losses.add("cookie", reason)
            if other[0].identity != identity:
                kept[identity] = pair
    return list(kept.values())


def _without_fields(
    cookie: Cookie, missing: Collection[str], chosen: Format, losses: Losses
) -> Cookie:
    """Return the cookie as it is read again; count the fields that differ."""
    changes = {n: _DEFAULTS[n] for n in missing if getattr(cookie, n) != _DEFAULTS[n]}
    reduced = browser_rules.with_implied_fields(replace(cookie, **changes), missing)
    for name in changes:
        if getattr(reduced, name) != getattr(cookie, name):
            losses.add(name, f"{_FIELD_NAMES[name]} is lost: {chosen.title} cannot say it")
    return reduced
