"""Set-Cookie headers, by the rules of browsers."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from gleanery.sessions import Cookie, InvalidSession, SessionState, read, write
from gleanery.sessions.model import MAX_EXPIRES

_URL = "https://www.shop.example/account/login"
_HOST = "www.shop.example"
_COPIED_RESPONSE = """\
HTTP/1.1 302 Found
Location: /account?a=b
set-cookie: sid=S3CRET; Path=/; Secure; HttpOnly; SameSite=Strict
Set-Cookie: cart="1,2"; Domain=.Shop.Example; Expires=Wed, 18 May 2033 03:33:20 GMT; samesite=lax
Set-Cookie: old=1
Set-Cookie: old=; Max-Age=0
"""
_OUTPUT_OF_CURL = """\
*   Trying 127.0.0.1:80...
* Connected to www.shop.example (127.0.0.1) port 80 (#0)
> GET / HTTP/1.1
> Host: www.shop.example
> Cookie: lang=en
>\x20
< HTTP/1.1 200 OK
< Set-Cookie: sid=S3CRET; Path=/; HttpOnly
<\x20
{ [22 bytes data]
<html>
let count = 1; path=/
</html>
* Closing connection 0
"""


def _read_one(value: str, url: str = _URL) -> Cookie:
    (cookie,) = read(f"Set-Cookie: {value}", url=url).state.cookies
    return cookie


def _reasons(value: str, url: str = _URL) -> list[str]:
    found = read(f"Set-Cookie: {value}\nSet-Cookie: ok=1", url=url)
    assert [cookie.name for cookie in found.state.cookies] == ["ok"]
    return [str(loss) for loss in found.losses]


def test_reads_a_copied_response() -> None:
    found = read(_COPIED_RESPONSE.replace("\n", "\r\n"), url=_URL)
    assert (found.format, found.losses) == ("set-cookie", ())
    assert found.state.cookies == (
        Cookie("sid", "S3CRET", _HOST, secure=True, http_only=True, same_site="Strict"),
        Cookie("cart", '"1,2"', "shop.example", False, "/account", 2_000_000_000, same_site="Lax"),
    )


def test_reads_the_output_of_curl_and_nothing_of_the_body() -> None:
    found = read(_OUTPUT_OF_CURL.replace("\n", "\r\n"), url=_URL)
    assert found.state.cookies == (Cookie("sid", "S3CRET", _HOST, http_only=True),)
    (loss,) = found.losses
    assert (loss.subject, loss.records) == ("cookie", 1)
    sent = read(_OUTPUT_OF_CURL, "cookie", _URL).state.cookies
    assert sent == (Cookie("lang", "en", _HOST),)


def test_reads_only_the_headers_of_a_message() -> None:
    """The output of curl -i -L: the headers of each response, and the body of the last one."""
    redirect = "HTTP/1.1 302 Found\r\nSet-Cookie: a=1; Path=/\r\n\r\n"
    last = "HTTP/1.1 200 OK\r\nSet-Cookie: b=2; Path=/\r\n\r\n"
    body = "<pre>\r\nSet-Cookie: c=3\r\n\r\nlogged in as anna\r\n"
    found = read(redirect + last + body, url=_URL)
    assert [cookie.name for cookie in found.state.cookies] == ["a", "b"]
    without = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nlogged in as anna\r\n"
    assert read(without, "set-cookie", _URL).state == SessionState()
    request = "GET / HTTP/1.1\nHost: shop.example\nCookie: a=1\n\nb=2\nCookie: c=3"
    assert [one.name for one in read(request, "cookie", _URL).state.cookies] == ["a"]


def test_reads_lines_without_the_name_of_the_header() -> None:
    found = read("a=1; path=/\nb=2; HttpOnly", url=_URL)
    assert found.format == "set-cookie"
    assert [cookie.name for cookie in found.state.cookies] == ["a", "b"]
    assert read("a=1; b=2", "set-cookie", _URL).state.cookies == (
        Cookie("a", "1", _HOST, path="/account"),
    )


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        ("Sun, 06 Nov 2033 08:49:37 GMT", 2014879777),
        ("Sunday, 06-Nov-33 08:49:37 GMT", 2014879777),
        ("Sun Nov  6 08:49:37 2033", 2014879777),
        ("Sun, 06-Nov-2033 8:49:37 UTC", 2014879777),
        ("2033 nov. 6th 08:49:37.123", 2014879777),
        ("6 november 2033 08:49:37pm", 2014879777),
        ("Thu, 01 Jan 1970 00:00:00", 0),
        ("Mon, 01 Jan 1601 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_EXPIRES),
        ("Sun, 06 Nov 1600 08:49:37 GMT", None),
        ("Sun, 31 Feb 2033 08:49:37 GMT", None),
        ("Sun, 06 Nov 2033 24:00:00 GMT", None),
        ("Sun, 06 Nov 20333 08:49:37 GMT", None),
        ("2000000000", None),
        ("0", None),
        ("", None),
    ],
)
def test_dates(date: str, seconds: int | None) -> None:
    """An expiry in the past deletes the cookie; an unreadable one is ignored."""
    text = f"Set-Cookie: a=1\nSet-Cookie: a=2; Expires={date}"
    found = read(text, url=_URL).state.cookies
    assert [cookie.expires for cookie in found] == ([] if seconds == 0 else [seconds])


def test_max_age_wins() -> None:
    start = int(time.time())
    expires = _read_one("a=1; Max-Age=1000; Expires=Thu, 01 Jan 1970 00:00:00 GMT").expires
    assert expires is not None
    assert start + 1000 <= expires <= time.time() + 1000
    assert _read_one("a=1; Max-Age=" + "9" * 1000).expires == MAX_EXPIRES
    assert _read_one("a=1; max-age=1e3").expires is None


@pytest.mark.parametrize(
    ("url", "attribute", "path"),
    [
        (_URL, "", "/account"),
        (_URL, "Path=x", "/account"),
        (_URL, "Path", "/account"),
        (_URL, "Path=/a b/", "/a b/"),
        (_URL, "Path=/" + "a" * 1024, "/account"),
        ("https://www.shop.example", "", "/"),
        ("https://www.shop.example/login?a=/b/", "", "/"),
        ("https://www.shop.example/a/", "", "/a"),
    ],
)
def test_path(url: str, attribute: str, path: str) -> None:
    assert _read_one(f"a=1; {attribute}", url).path == path


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("; Path=/", "neither name nor value"),
        ("a=\x01", "control characters"),
        ("a=" + "v" * 4096, "more than 4096 bytes"),
        ("a=1; Domain=other.example", "domain is not the page's"),
        ("a=1; Domain=www.shop.example.", "domain is not the page's"),
        ("a=1; Domain=x.www.shop.example", "domain is not the page's"),
        ("a=1; Domain=example", "domain is not the page's"),
        ("a=1; Domain=http://shop.example/", "domain is not the page's"),
        ("a=1; Partitioned", "Partitioned requires Secure"),
        ("a=1; Max-Age=-1", "had expired"),
        ("__Secure-a=1", "__Secure- requires"),
        ("__host-a=1; Secure; Path=/; Domain=www.shop.example", "__Host- requires"),
        ("=__Host-a=1; Secure; Path=/", "__Host- requires"),
    ],
)
def test_a_cookie_that_browsers_reject_is_a_loss(value: str, reason: str) -> None:
    (sentence,) = _reasons(value)
    assert reason in sentence


def test_a_page_without_https_cannot_set_secure() -> None:
    assert "cannot set Secure" in _reasons("a=1; Secure", "http://www.shop.example/")[0]
    assert _read_one("a=1; Secure", "http://localhost:8000/").secure


def test_unknown_same_site_and_the_partition_are_lost() -> None:
    found = read("Set-Cookie: a=1; SameSite=foo; Secure; Partitioned; Priority=High", url=_URL)
    assert found.state.cookies == (Cookie("a", "1", _HOST, path="/account", secure=True),)
    assert [loss.subject for loss in found.losses] == ["priority", "partition_key", "same_site"]


@pytest.mark.parametrize(
    ("header", "subject"),
    [
        ("a=1; Path=/, b=2; Path=/", "cookie"),
        ("a=1; Expires=Wed, 18 May 2033 03:33:20 GMT; Secure,b=2", "cookie"),
        ("a=1; Path=/; theme=S3CRET", "member"),
        ("a=1; Path=/; Priority=High", "priority"),
    ],
)
def test_what_browsers_ignore_is_a_loss(header: str, subject: str) -> None:
    """Some libraries join headers with commas, and a Cookie header may have a cookie "path"."""
    (loss,) = read(header, url=_URL).losses
    assert (loss.subject, loss.records) == (subject, 1)
    assert "S3CRET" not in loss.sentence


def test_a_usual_header_has_no_loss() -> None:
    assert _read_one("a=1,b=2; ; Version=1; Path=/a,b; Priority=Medium; Comment=a").value == "1,b=2"
    found = read("a=1; Path=/; Expires=Wed, 18 May 2033 03:33:20 GMT; HttpOnly=true;", url=_URL)
    assert found.losses == ()


def test_reads_what_it_writes() -> None:
    carried = (
        Cookie("a", '"1, 2" ü', _HOST, http_only=True, secure=True, same_site="None"),
        Cookie("b", "", "shop.example", False, "/account", MAX_EXPIRES),
        Cookie("", "v", _HOST),
        Cookie("long", "v" * 4092, _HOST),
    )
    written = write(SessionState(carried), "set-cookie", _URL)
    assert (read(written.text, url=_URL).state.cookies, written.losses) == (carried, ())


@pytest.mark.parametrize(
    "cookie",
    [
        Cookie("a;", "1", _HOST),
        Cookie("a", " 1", _HOST),
        Cookie("a=", "1", _HOST),
        Cookie("a", "\x7f", _HOST),
        Cookie("a", "1", "other.example"),
        Cookie("a", "1", _HOST, expires=1),
        Cookie("a", "v" * 4096, _HOST),
    ],
)
def test_counts_what_it_cannot_carry(cookie: Cookie) -> None:
    state = SessionState((cookie, replace(cookie, name="ok", value="1", host=_HOST, expires=None)))
    written = write(state, "set-cookie", _URL)
    assert written.text == "Set-Cookie: ok=1; Path=/\n"
    assert [(loss.subject, loss.records) for loss in written.losses] == [("cookie", 1)]


def test_an_error_does_not_contain_the_value() -> None:
    with pytest.raises(InvalidSession, match="add the parameter url") as caught:
        read(_COPIED_RESPONSE)
    assert "S3CRET" not in str(caught.value)
    with pytest.raises(InvalidSession, match=r"line 2: .* NUL"):
        read("Set-Cookie: a=1\nSet-Cookie: sid=S3CRET\0", url=_URL)
