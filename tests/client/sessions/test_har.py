"""HTTP Archives, as Chromium, Firefox and Playwright write them."""

from __future__ import annotations

from typing import Any

import pytest

from gleanery.sessions import Cookie, InvalidSession, PartitionKey, SessionState, read, write
from gleanery.sessions.model import MAX_EXPIRES

_URL = "https://www.shop.example/account/login"
_HOST = "www.shop.example"


def _archive(*entries: dict[str, Any], creator: str = "Firefox") -> dict[str, Any]:
    log = {"version": "1.2", "creator": {"name": creator, "version": "1"}, "entries": entries}
    return {"log": log | {"entries": list(entries)}}


def _entry(
    set_cookies: list[str] | None = None,
    cookie: str | None = None,
    url: str = _URL,
    sent: list[dict[str, Any]] | None = None,
    changed: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    sent_headers = [] if cookie is None else [{"name": "cookie", "value": cookie}]
    set_headers = [{"name": "Set-Cookie", "value": value} for value in set_cookies or []]
    return {
        "startedDateTime": "2026-11-16T10:00:00.000+01:00",
        "request": {"method": "GET", "url": url, "headers": sent_headers, "cookies": sent or []},
        "response": {"status": 200, "headers": set_headers, "cookies": changed or []},
    }


def test_reads_the_complete_cookies_of_chromium() -> None:
    complete = {
        "name": "sid",
        "value": "S3CRET",
        "path": "/",
        "domain": ".shop.example",
        "expires": "2033-05-18T03:33:20.999Z",
        "httpOnly": True,
        "secure": True,
        "sameSite": "Lax",
    }
    session = complete | {"name": "s", "domain": _HOST, "expires": None, "comment": ""}
    found = read(_archive(_entry(sent=[complete, session], cookie="sid=S3CRET; s=S3CRET")))
    assert (found.format, found.losses) == ("har", ())
    assert found.state.cookies == (
        Cookie("sid", "S3CRET", "shop.example", False, "/", 2_000_000_000, True, True, "Lax"),
        Cookie("s", "S3CRET", _HOST, True, "/", None, True, True, "Lax"),
    )


def test_reads_the_headers_in_their_order() -> None:
    """Firefox says only the name and the value of a sent cookie, so responses complete it."""
    known = "sid=1; Path=/; HttpOnly\nold=1; Path=/"
    found = read(
        _archive(
            _entry(cookie="guess=1; deleted=1; sid=0", url="wss://www.shop.example/socket"),
            _entry([known, "cart=1; Domain=shop.example; Path=/; Max-Age=60"]),
            _entry(["old=; Path=/; Max-Age=0", "deleted=; Expires=Thu, 01 Jan 1970 00:00:00 GMT"]),
            _entry(sent=[{"name": "sid", "value": "2"}, {"name": "__Host-x", "value": "1"}]),
            _entry(url="data:text/plain,a"),
        )
    )
    assert found.losses == ()
    assert set(found.state.cookies) == {
        Cookie("guess", "1", _HOST),
        Cookie("sid", "2", _HOST, http_only=True),
        Cookie("cart", "1", "shop.example", False, expires=1_794_819_660),
        Cookie("__Host-x", "1", _HOST, secure=True),
    }


def test_reads_the_cookies_of_a_response_without_headers() -> None:
    cookie = {"name": "a", "value": "1", "domain": "shop.example", "secure": True, "path": "/"}
    session = {"name": "b", "value": "2", "expires": "1969-12-31T23:59:59.000Z"}
    last = {"name": "c", "value": "3", "expires": "+010000-01-01T00:00:00.000Z", "sameSite": "x"}
    found = read(_archive(_entry(changed=[cookie, session, last])))
    assert found.state.cookies == (
        Cookie("a", "1", "shop.example", False, secure=True),
        Cookie("b", "2", _HOST, path="/account"),
        Cookie("c", "3", _HOST, path="/account", expires=MAX_EXPIRES),
    )
    assert [loss.subject for loss in found.losses] == ["same_site"]


def test_a_blocked_cookie_is_a_loss() -> None:
    blocked = ["a=1; Domain=other.example", "b=1; Secure", "__Host-c=1; Path=/"]
    found = read(_archive(_entry(blocked, url="http://www.shop.example/")))
    assert found.state == SessionState()
    assert sum(loss.records for loss in found.losses) == 3


def test_says_how_to_export_cookies_from_chromium() -> None:
    with pytest.raises(InvalidSession, match="export sensitive data"):
        read(_archive(_entry(), creator="WebInspector"))
    assert read(_archive(_entry())).state == SessionState()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"request": "S3CRET"}, r'entries\[1\]: "request": expected an object'),
        (_entry(cookie="a=S3CRET\0"), r"entries\[1\]: .* NUL"),
        (_entry(["a=S3CRET\0"]), r"entries\[1\]: .* NUL"),
        (_entry(cookie="a=1", url="S3CRET"), r"entries\[1\]: Expected a URL"),
        (_entry(sent=[{"name": "S3CRET"}]), r'entries\[1\]: "value" is missing'),
        (
            _entry(sent=[{"name": "a", "value": 1, "domain": "S3CRET"}]),
            r'entries\[1\]: cookies\[0\]: "value" must be a string',
        ),
    ],
)
def test_an_error_names_the_entry_without_its_content(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSession, match=message) as caught:
        read(_archive(_entry(), entry))
    assert "S3CRET" not in str(caught.value)


def test_the_authorization_is_a_loss() -> None:
    headers = [{"name": "Authorization", "value": "Bearer S3CRET"}]
    entry = {"request": {"url": _URL, "headers": headers}, "response": {}}
    found = read(_archive(entry, entry, creator="WebInspector"))
    assert [(loss.subject, loss.records) for loss in found.losses] == [("authorization", 2)]


def test_an_unreadable_date_is_a_loss() -> None:
    cookie = {"name": "a", "value": "1", "domain": _HOST, "path": "/", "expires": "soon"}
    found = read(_archive(_entry(sent=[cookie])))
    assert found.state.cookies == (Cookie("a", "1", _HOST),)
    assert [loss.subject for loss in found.losses] == ["expires"]


def test_reads_what_it_writes() -> None:
    state = SessionState(
        (
            Cookie("a", "\t;\"'ü", _HOST, path="/a", http_only=True, same_site="Strict"),
            Cookie("", "v", "shop.example", False, expires=MAX_EXPIRES),
            Cookie("old", "", "[::1]", expires=0),
            Cookie(
                "p", "1", _HOST, secure=True, partition_key=PartitionKey("https://x.example", True)
            ),
        )
    )
    written = write(state, "har")
    found = read(written.text)
    assert (written.losses, found.losses, found.format) == ((), (), "har")
    assert set(found.state.cookies) == set(state.cookies)


def test_the_archive_has_all_members_of_har() -> None:
    log = write(SessionState((Cookie("a", "1", _HOST),)), "har").content["log"]
    (entry,) = log["entries"]
    assert entry.keys() >= {"startedDateTime", "time", "request", "response", "cache", "timings"}
    both = {"httpVersion", "cookies", "headers", "headersSize", "bodySize"}
    assert entry["request"].keys() == both | {"method", "url", "queryString"}
    assert entry["response"].keys() == both | {"status", "statusText", "content", "redirectURL"}
