"""The headers Cookie and Set-Cookie, by the rules of browsers (RFC 6265bis).

``ReceivedCookies`` are the cookies that a browser has after a sequence of requests and responses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from gleanery.sessions import browser_rules, cookie_dates, records
from gleanery.sessions.browser_rules import Page, gets_cookie, matches_host
from gleanery.sessions.document import MAX_LINES, limited, numbered_lines
from gleanery.sessions.model import MAX_EXPIRES, Cookie, InvalidSession, Losses, split_domain

_PART = re.compile(r"[^;]+")
_WHITESPACE = " \t"
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
# Libraries join the headers of a response with commas. The date of Expires has no "=" after one.
_JOINED = re.compile(r",[ \t]*[\w!#$%&'*+.^`|~-]+=", re.ASCII)
_KNOWN_ATTRIBUTES = frozenset(
    (
        *("", "domain", "expires", "httponly", "max-age", "partitioned", "path", "samesite"),
        *("secure", "comment", "priority", "sameparty", "version"),
    )
)
_SEVERAL = "Only the first of several Set-Cookie headers in one line is read: read one per line"
_UNKNOWN_ATTRIBUTE = "An attribute of a Set-Cookie header is ignored, because it is unknown"
_START_LINE = re.compile(r"\s*(?:[A-Z]{1,20} [^ \r\n]+ )?HTTP/[0-9]")
_MAX_AGE = re.compile(r"-?[0-9]+\Z")
_MAX_PAIR_BYTES = 4096
_MAX_ATTRIBUTE_BYTES = 1024
_LEFT_OUT = "A cookie is left out, because browsers reject it: {reason}"
_PARTITION = "The partition (CHIPS) is lost: a Set-Cookie header does not name its site"
_DUPLICATE = "A cookie is left out: a Cookie header has another one of its name before it"


def _header_pattern(name: str) -> re.Pattern[str]:
    pattern = rf"^[ \t]*(?:[<>] )?{name}[ \t]*:"  # curl -v adds < or >
    return re.compile(pattern, re.IGNORECASE | re.ASCII | re.MULTILINE)


COOKIE = _header_pattern("Cookie")
"""The start of a line with a Cookie header."""
SET_COOKIE = _header_pattern("Set-Cookie")
"""The start of a line with a Set-Cookie header."""


def header_values(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield the values of a header, one per line; its name may be missing in all of them.

    If a line has the name, the others are ignored: they are other headers, a body, or progress.
    """
    is_named = bool(pattern.search(text) or _START_LINE.match(text))
    for number, line in _header_lines(text):
        with records.at(f"line {number}"):
            _reject_nul(line)
        start = pattern.match(line)
        if start or not is_named:
            yield line[start.end() if start else 0 :]


def _header_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines without the bodies of HTTP messages. A blank line ends the headers."""
    has_bodies, is_header, next_number = bool(_START_LINE.match(text)), True, 1
    for number, line in numbered_lines(text):
        if has_bodies and number > next_number:
            is_header = bool(_START_LINE.match(line))
        next_number = number + 1
        if is_header:
            yield number, line


def read_cookie_header(values: Iterable[str], page: Page, losses: Losses) -> Iterator[Cookie]:
    """Yield the cookies of a Cookie header. The first of one name is the most specific one."""
    names: set[str] = set()
    parts = (match[0] for value in values for match in _PART.finditer(value))
    for part in limited(parts, "cookies"):
        _reject_nul(part)
        name, value = _split_pair(part)
        if not name and not value:
            continue
        if name in names:
            losses.add("cookie", _DUPLICATE)
        elif _CONTROLS.search(part):
            _reject("it contains control characters or half a surrogate pair", losses)
        else:
            names.add(name)
            yield Cookie(name, value, page.host)


def write_cookie_header(cookies: Iterable[Cookie], page: Page, losses: Losses) -> str:
    """Return the value of a Cookie header, without the cookies that it cannot carry."""
    return "; ".join(
        _pair(cookie) for cookie in cookies if _survives_in_cookie_header(cookie, page, losses)
    )


def _survives_in_cookie_header(cookie: Cookie, page: Page, losses: Losses) -> bool:
    found = list(read_cookie_header([_pair(cookie)], page, Losses()))
    survives = [(one.name, one.value) for one in found] == [(cookie.name, cookie.value)]
    if not survives:
        losses.add("cookie", "A cookie is left out: a Cookie header cannot carry its characters")
    return survives


def read_set_cookie(value: str, page: Page, now: float, losses: Losses) -> Cookie | None:
    """Return the cookie that a page sets, or None if browsers reject it.

    A cookie whose expiry is not after ``now`` deletes the cookie with the same identity.
    """
    _reject_nul(value)
    pair, _, rest = value.partition(";")
    name, content = _split_pair(pair)
    attributes = dict(_attributes(rest))
    reason = _reason_to_reject(name, content, value, attributes, page)
    if reason is not None:
        _reject(reason, losses)
        return None
    _count_ignored(rest, attributes, losses)
    return _build(name, content, attributes, page, now, losses)


def write_set_cookie(cookie: Cookie, page: Page, losses: Losses) -> str | None:
    """Return the value of a Set-Cookie header, or None if browsers read another cookie from it."""
    value = "; ".join((_pair(cookie), *_written_attributes(cookie)))
    found = read_set_cookie(value, page, 0, Losses())
    if found == cookie:
        return value
    losses.add("cookie", "A cookie is left out: a Set-Cookie header cannot carry it")
    return None


def _written_attributes(cookie: Cookie) -> Iterator[str]:
    if not cookie.host_only:
        yield f"Domain={cookie.host}"
    yield f"Path={cookie.path}"
    if cookie.expires is not None:
        yield f"Expires={cookie_dates.write(cookie.expires)}"
    if cookie.secure:
        yield "Secure"
    if cookie.http_only:
        yield "HttpOnly"
    if cookie.same_site is not None:
        yield f"SameSite={cookie.same_site}"


def _pair(cookie: Cookie) -> str:
    return f"{cookie.name}={cookie.value}" if cookie.name else cookie.value


def _reject_nul(text: str) -> None:
    if "\0" in text:
        raise InvalidSession("A header must not contain NUL")


def _split_pair(text: str) -> tuple[str, str]:
    """Return name and value; text without ``=`` is a value without a name."""
    name, separator, value = text.partition("=")
    if not separator:
        name, value = "", name
    return name.strip(_WHITESPACE), value.strip(_WHITESPACE)


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    """Yield the attributes with names in lower case; browsers ignore values that are too long."""
    for match in _PART.finditer(text):
        name, _, content = match[0].partition("=")
        if len(content.encode(errors="replace")) <= _MAX_ATTRIBUTE_BYTES:
            yield name.strip(_WHITESPACE).lower(), content.strip(_WHITESPACE)


def _count_ignored(text: str, attributes: dict[str, str], losses: Losses) -> None:
    """Count what browsers ignore, because it may be a cookie."""
    if _JOINED.search(text):
        losses.add("cookie", _SEVERAL, "header")
    elif not _KNOWN_ATTRIBUTES.issuperset(attributes):
        losses.add("member", _UNKNOWN_ATTRIBUTE)
    if attributes.get("priority", "").lower() in ("low", "high"):
        losses.add("priority", records.LOST_PRIORITY)


def _reason_to_reject(
    name: str, content: str, value: str, attributes: dict[str, str], page: Page
) -> str | None:
    if not name and not content:
        return "it has neither name nor value"
    if _CONTROLS.search(value):
        return "it contains control characters or half a surrogate pair"
    if len((name + content).encode(errors="replace")) > _MAX_PAIR_BYTES:
        return f"its name and value have more than {_MAX_PAIR_BYTES} bytes"
    if "secure" in attributes and not page.is_secure:
        return "a page without https cannot set Secure"
    if "partitioned" in attributes and "secure" not in attributes:
        return "Partitioned requires Secure"
    if not _may_set_domain(attributes.get("domain", ""), page):
        return "its domain is not the page's"
    return None


def _may_set_domain(domain: str, page: Page) -> bool:
    """Return True if the domain is the page's host or a parent of it that has a dot."""
    if not domain.removeprefix("."):
        return True
    try:
        host, _ = split_domain(domain)
    except InvalidSession:
        return False
    return host == page.host or (
        "." in host and matches_host(Cookie("n", "", host, False), page.host)
    )


def _build(
    name: str, content: str, attributes: dict[str, str], page: Page, now: float, losses: Losses
) -> Cookie:
    domain = attributes.get("domain", "").removeprefix(".")
    path = attributes.get("path", "")
    if "partitioned" in attributes:
        losses.add("partition_key", _PARTITION)
    return Cookie(
        name=name,
        value=content,
        host=split_domain(domain)[0] if domain else page.host,
        host_only=not domain,
        path=path if path.startswith("/") else _default_path(page.path),
        expires=_expires(attributes, now),
        secure="secure" in attributes,
        http_only="httponly" in attributes,
        same_site=records.same_site(attributes.get("samesite"), losses),
    )


def _default_path(path: str) -> str:
    """Return the folder of a page (RFC 6265, section 5.1.4)."""
    return path[: path.rfind("/")] or "/"


def _expires(attributes: dict[str, str], now: float) -> int | None:
    """Return the time of expiry. Max-Age has priority; an invalid attribute is ignored."""
    age = attributes.get("max-age", "")
    if _MAX_AGE.match(age):
        seconds: int | None = int(now) + int(age) if int(age) > 0 else 0
    else:
        seconds = cookie_dates.parse(attributes.get("expires", ""))
    return None if seconds is None else max(0, min(seconds, MAX_EXPIRES))


def _reject(reason: str, losses: Losses) -> None:
    losses.add("cookie", _LEFT_OUT.format(reason=reason))


_EXPIRED = "A cookie is left out, because it had expired when it was set"
_TOO_MANY_HEADERS = (
    f"The document has more than {MAX_LINES} Set-Cookie headers: read less at a time"
)
_TOO_MANY_SENT = "The document has too many Cookie headers: read less at a time"
_MAX_SENT = 10 * MAX_LINES
"""Cookies of all requests. A browser sends the same ones with each of its requests."""
_MAX_PATHS = 50
"""Cookies with the same name and host that are compared; keeps the time linear."""


class ReceivedCookies:
    """Stores and deletes cookies in the order of the requests and responses."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._headers = 0
        self._times_sent = 0
        self._known: dict[tuple[str, str], dict[tuple[object, ...], Cookie]] = {}
        self._sent: dict[tuple[str, str], Cookie] = {}

    def cookies(self) -> tuple[Cookie, ...]:
        known = (cookie for found in self._known.values() for cookie in found.values())
        return (*known, *self._sent.values())

    def set_by_header(self, value: str, page: Page, now: float) -> None:
        """Store the cookie of a Set-Cookie header that arrived from a page at this time.

        A cookie that has expired deletes the stored one.
        """
        self._headers += 1
        if self._headers > MAX_LINES:
            raise InvalidSession(_TOO_MANY_HEADERS)
        cookie = read_set_cookie(value, page, now, self._losses)
        if cookie is None:
            return
        guess = self._sent.pop((cookie.name, page.host), None)
        replaced = self._known.get((cookie.name, cookie.host), {}).pop(cookie.identity, guess)
        if cookie.expires is None or cookie.expires > now:
            self.store(cookie)
        elif replaced is None:
            self._losses.add("cookie", _EXPIRED)

    def store(self, cookie: Cookie) -> None:
        """Store a cookie of which everything is known."""
        self._known.setdefault((cookie.name, cookie.host), {})[cookie.identity] = cookie

    def note_sent(self, cookie: Cookie, page: Page) -> None:
        """Store a cookie that a page got, of which only the name and the value are known."""
        self._times_sent += 1
        if self._times_sent > _MAX_SENT or len(self._sent) > MAX_LINES:
            raise InvalidSession(_TOO_MANY_SENT)
        known = max(self._sent_to(page, cookie.name), key=lambda one: len(one.path), default=None)
        if known is not None:
            self.store(replace(known, value=cookie.value))
            return
        complete = browser_rules.with_implied_fields(cookie, ("secure", "http_only"))
        self._sent[cookie.name, page.host] = complete

    def _sent_to(self, page: Page, name: str) -> Iterator[Cookie]:
        host = page.host
        while host:
            found = self._known.get((name, host), {})
            for cookie in islice(found.values(), _MAX_PATHS):
                if gets_cookie(page, cookie):
                    yield cookie
            host = host.partition(".")[2]
