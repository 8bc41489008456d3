"""HTTP Archive (HAR 1.2): the requests and responses that a browser recorded."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from gleanery.sessions import cookie_dates, cookie_headers, cookie_records, records
from gleanery.sessions.browser_rules import Page, parse_request_url
from gleanery.sessions.cookie_headers import ReceivedCookies
from gleanery.sessions.document import JSON, OPTIONAL_FIELDS, Document, Format
from gleanery.sessions.model import MAX_EXPIRES, Cookie, InvalidSession, Losses, SessionState

_Record = Mapping[str, Any]
_CHROMIUM = "WebInspector"
_SANITIZED = (
    "The archive has no cookies. Chromium leaves them out, unless you allow it to export sensitive "
    "data in the settings of its developer tools, and choose this export"
)
_NO_DATE = "The expiry is omitted, because it is not a date"
_START = "1970-01-01T00:00:00.000Z"


def _detect(document: Document) -> bool:
    log = document.value.get("log") if isinstance(document.value, dict) else None
    return isinstance(log, dict) and "entries" in log


def _read(document: Document, losses: Losses, url: str | None) -> SessionState:
    log = _member(records.members(document.value), "log")
    entries = records.array(log.get("entries"), "entries")
    received = ReceivedCookies(losses)
    for index, entry in enumerate(entries):
        with records.at(f"entries[{index}]"):
            _read_entry(records.members(entry), received, losses)
    cookies = received.cookies()
    if entries and not cookies and not losses.found() and _creator(log) == _CHROMIUM:
        raise InvalidSession(_SANITIZED)
    return SessionState(cookies)


def _creator(log: _Record) -> Any:
    creator = log.get("creator")
    return creator.get("name") if isinstance(creator, dict) else None


def _read_entry(entry: _Record, received: ReceivedCookies, losses: Losses) -> None:
    request, response = _member(entry, "request"), _member(entry, "response")
    sent, sent_headers = _cookies(request), _headers(request, "cookie")
    changed, set_headers = _cookies(response), _headers(response, "set-cookie")
    losses.add_authorization(bool(_headers(request, "authorization")))
    if not (sent or sent_headers or changed or set_headers):
        return
    page = parse_request_url(records.text(request, "url"))
    now = _time_of(entry)
    _read_request(sent, sent_headers, page, received, losses)
    # The array of a response has no Max-Age, so the headers are preferred.
    for header in set_headers or [_as_header(record, losses) for record in changed]:
        received.set_by_header(header, page, now)


def _read_request(
    sent: list[_Record], headers: list[str], page: Page, received: ReceivedCookies, losses: Losses
) -> None:
    """Read the cookies of a request. Chromium says everything, Firefox the name and the value."""
    complete = [_with_seconds(one, losses) for one in sent if one.get("domain")]
    for cookie in cookie_records.read_cookies(complete, losses, None):
        received.store(cookie)
    pairs = [_pair(record) for record in sent if not record.get("domain")]
    values = pairs if sent else headers
    for cookie in cookie_headers.read_cookie_header(values, page, losses):
        received.note_sent(cookie, page)


def _member(record: _Record, name: str) -> _Record:
    with records.at(f'"{name}"'):
        return records.members(record.get(name, {}))


def _cookies(message: _Record) -> list[_Record]:
    found = records.array(message.get("cookies") or [], "cookies")
    return [records.members(record) for record in found]


def _headers(message: _Record, name: str) -> list[str]:
    """Return the values of a header. Browsers join the values of several with line breaks."""
    headers = map(records.members, records.array(message.get("headers") or [], "headers"))
    values = [
        records.text(header, "value", "")
        for header in headers
        if records.text(header, "name", "").lower() == name
    ]
    return [value for joined in values for value in joined.split("\n") if value.strip()]


def _time_of(entry: _Record) -> float:
    started = _parse_date(records.text(entry, "startedDateTime", ""))
    return time.time() if started is None else started


def _pair(record: _Record) -> str:
    name, value = records.text(record, "name"), records.text(record, "value")
    return f"{name}={value}" if name else value


def _as_header(record: _Record, losses: Losses) -> str:
    """Return the Set-Cookie header of a record."""
    expires = records.expires(_with_seconds(record, losses), "expires")
    attributes = {
        "Domain": records.text(record, "domain", ""),
        "Path": records.text(record, "path", ""),
        "Expires": "" if expires is None else cookie_dates.write(expires),
        "SameSite": records.text(record, "sameSite", ""),
    }
    flags = {"Secure": records.flag(record, "secure"), "HttpOnly": records.flag(record, "httpOnly")}
    parts = [f"{name}={value}" for name, value in attributes.items() if value]
    return "; ".join([_pair(record), *parts, *(name for name, is_set in flags.items() if is_set)])


def _with_seconds(record: _Record, losses: Losses) -> dict[str, Any]:
    """Return the record with its expiry in seconds, and without the comment that HAR allows."""
    found = {name: value for name, value in record.items() if name != "comment"}
    if isinstance(found.get("expires"), str):
        found["expires"] = _parse_date(found["expires"])
        if found["expires"] is None and record["expires"]:
            losses.add("expires", _NO_DATE)
    return found


def _parse_date(text: str) -> int | None:
    """Return the seconds since 1970 of a date in ISO 8601 or in the format of Expires."""
    if text.startswith("+"):
        return MAX_EXPIRES  # JavaScript writes years after 9999 with a sign
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return cookie_dates.parse(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _write(state: SessionState, losses: Losses, url: str | None) -> dict[str, Any]:
    by_host: dict[str, list[Cookie]] = {}
    for cookie in state.cookies:
        by_host.setdefault(cookie.host, []).append(cookie)
    creator = {"name": "Gleanery", "version": "1"}
    entries = [_write_entry(host, cookies) for host, cookies in by_host.items()]
    return {"log": {"version": "1.2", "creator": creator, "entries": entries}}


def _write_entry(host: str, cookies: Iterable[Cookie]) -> dict[str, Any]:
    """Return a request with these cookies, and a response, with all members of HAR 1.2."""
    message = {"httpVersion": "HTTP/1.1", "headers": [], "headersSize": -1, "bodySize": -1}
    request = {
        "method": "GET",
        "url": f"https://{host}/",
        "queryString": [],
        "cookies": [dict(_members(cookie)) for cookie in cookies],
    }
    content = {"size": 0, "mimeType": "text/plain"}
    response = {"status": 200, "statusText": "OK", "cookies": [], "redirectURL": ""}
    return {
        "startedDateTime": _START,
        "time": 0,
        "request": message | request,
        "response": message | response | {"content": content},
        "cache": {},
        "timings": {"send": 0, "wait": 0, "receive": 0},
    }


def _members(cookie: Cookie) -> Iterator[tuple[str, Any]]:
    """Yield the members of a cookie. Like Chromium, add two that HAR does not have."""
    yield from cookie_records.write_members(cookie).items()
    if cookie.expires is not None:
        date = datetime.fromtimestamp(cookie.expires, UTC)
        yield "expires", date.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    if cookie.partition_key is not None:
        key = cookie.partition_key
        site, has_ancestor = key.top_level_site, key.has_cross_site_ancestor
        yield "partitionKey", {"topLevelSite": site, "hasCrossSiteAncestor": has_ancestor}


FORMAT = Format(
    name="har",
    title="HAR",
    description="HAR file of a browser's developer tools",
    other_names=("http-archive",),
    media_type=JSON,
    file_name="cookies.har",
    carries=frozenset(OPTIONAL_FIELDS),
    detect=_detect,
    read=_read,
    write=_write,
)
