"""Netscape's cookies.txt: one cookie per line, in fields that are separated by tabs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gleanery.sessions import browser_rules, cookie_dates, records
from gleanery.sessions.document import TEXT, Document, Format, numbered_lines
from gleanery.sessions.model import (
    Cookie,
    InvalidSession,
    Losses,
    SessionState,
    is_address,
    split_domain,
)

_HEADER = re.compile(r"#[ \t]*(Netscape )?HTTP Cookie File", re.IGNORECASE)
_HTTP_ONLY = "#HttpOnly_"
_FLAGS = {"TRUE": True, "FALSE": False}
_EXPIRES = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?\Z")
_PORT = re.compile(r":[0-9]{1,5}\Z")
_SEPARATORS = 6
_MAX_LINE = 4998
_SESSION = 0
_START = (
    "# Netscape HTTP Cookie File\n"
    "# An HttpOnly cookie has two lines. Tools that do not know #HttpOnly_ read the first.\n\n"
)
_LOST_PORT = "The port is lost: browsers send a cookie to all ports of its host"
_CANNOT_CARRY = "A cookie is left out, because cookies.txt cannot carry its {part}"
_NO_NAME = _CANNOT_CARRY.format(part="empty name")
_TAB = _CANNOT_CARRY.format(part="tab")
_YEAR_1970 = _CANNOT_CARRY.format(part="expiry: 0 means a session cookie")
_TOO_LONG = _CANNOT_CARRY.format(part=f"length: curl reads lines of up to {_MAX_LINE} bytes")


def _detect(document: Document) -> bool:
    if document.is_json:
        return False
    if _HEADER.match(document.text):
        return True
    first = next(_cookie_lines(document.text), None)
    return first is not None and _is_cookie(first[1].split("\t", _SEPARATORS))


def _is_cookie(fields: list[str]) -> bool:
    return len(fields) >= _SEPARATORS and {fields[1].upper(), fields[3].upper()} <= _FLAGS.keys()


def _read(document: Document, losses: Losses, url: str | None) -> SessionState:
    if document.is_json:
        raise InvalidSession("Expected the text of a cookies.txt, not JSON")
    return SessionState(tuple(_read_cookies(document.text, losses)))


def _read_cookies(text: str, losses: Losses) -> Iterator[Cookie]:
    for number, line in _cookie_lines(text):
        with records.at(f"line {number}"):
            yield _read_cookie(line, losses)


def _cookie_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the content of each line that is neither blank nor a comment."""
    for number, line in numbered_lines(text):
        if not line.startswith("#") or _is_http_only(line):
            yield number, line


def _is_http_only(line: str) -> bool:
    return line[: len(_HTTP_ONLY)].lower() == _HTTP_ONLY.lower()


def _read_cookie(line: str, losses: Losses) -> Cookie:
    http_only = _is_http_only(line)
    fields = line[len(_HTTP_ONLY) if http_only else 0 :].split("\t", _SEPARATORS)
    if len(fields) < _SEPARATORS:
        raise InvalidSession("expected seven fields that are separated by tabs")
    domain, subdomains, path, secure, expires, name = fields[:_SEPARATORS]
    cookie = Cookie(
        name=name,
        value="".join(fields[_SEPARATORS:]),
        host=_read_host(domain.strip(), losses),
        # Curl and wget ignore a leading dot as well.
        host_only=not _read_flag(subdomains, "second"),
        path=path or "/",
        expires=_read_expires(expires.strip()),
        secure=_read_flag(secure, "fourth"),
        http_only=http_only,
    )
    return browser_rules.with_implied_fields(cookie, ("http_only",))  # wget does not save it


def _read_host(domain: str, losses: Losses) -> str:
    """Return the host without the port that wget adds. IPv6 addresses have no brackets here."""
    address = domain.removeprefix(".")
    if not is_address(address) and _PORT.search(address):
        losses.add("host", _LOST_PORT)
        address = address.rpartition(":")[0]
    is_ipv6 = ":" in address and "[" not in address
    return split_domain(f"[{address}]" if is_ipv6 else address)[0]


def _read_flag(field: str, position: str) -> bool:
    flag = _FLAGS.get(field.strip().upper())
    if flag is None:
        raise InvalidSession(f"the {position} field must be TRUE or FALSE")
    return flag


def _read_expires(field: str) -> int | None:
    if not field:
        return None
    if not _EXPIRES.match(field):
        raise InvalidSession("the fifth field must be a number of seconds since 1970")
    seconds = cookie_dates.from_number(float(field))
    return None if seconds == _SESSION else seconds


def _write(state: SessionState, losses: Losses, url: str | None) -> str:
    written = (line for cookie in state.cookies for line in _write_cookie(cookie, losses))
    return _START + "".join(f"{line}\n" for line in written)


def _write_cookie(cookie: Cookie, losses: Losses) -> list[str]:
    line = _line(cookie)
    reason = _reason_to_leave_out(cookie, line)
    if reason is not None:
        losses.add("cookie", reason)
        return []
    # Wget takes the second line for a comment. Curl replaces the first cookie by the second.
    return [line, _HTTP_ONLY + line] if cookie.http_only else [line]


def _line(cookie: Cookie) -> str:
    fields = (
        cookie.domain.replace("[", "").replace("]", ""),
        str(not cookie.host_only).upper(),
        cookie.path,
        str(cookie.secure).upper(),
        str(_SESSION if cookie.expires is None else cookie.expires),
        cookie.name,
        cookie.value,
    )
    return "\t".join(fields)


def _reason_to_leave_out(cookie: Cookie, line: str) -> str | None:
    """Return why curl, wget or this module would read another cookie, or none."""
    if not cookie.name:
        return _NO_NAME
    if line.count("\t") != _SEPARATORS:
        return _TAB
    if cookie.expires == _SESSION:
        return _YEAR_1970
    if len(line.encode()) + len(_HTTP_ONLY) > _MAX_LINE:
        return _TOO_LONG
    return None


FORMAT = Format(
    name="netscape",
    title="cookies.txt",
    description="`cookies.txt` of curl, wget, yt-dlp and browser extensions",
    other_names=("cookies.txt", "mozilla", "wget", "yt-dlp"),
    media_type=TEXT,
    file_name="cookies.txt",
    carries=frozenset(("host_only", "path", "expires", "secure", "http_only")),
    detect=_detect,
    read=_read,
    write=_write,
)
