"""Cookie jars of http.cookiejar, requests and httpx."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from dataclasses import replace
from http.cookiejar import CookieJar, MozillaCookieJar
from pathlib import Path
from typing import Any

import httpx2
import pytest
import requests

from gleanery.sessions import Cookie, InvalidSession, SessionState, from_cookiejar, to_cookiejar
from tests.client.sessions import cookie_server

_HOST = "shop.example"


def _get_with_urllib(url: str, jar: CookieJar) -> Any:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    opener.open(url).close()
    return jar


def _get_with_requests(url: str, jar: CookieJar) -> Any:
    with requests.Session() as session:
        session.cookies.update(jar)
        session.get(url)
        return session.cookies


def _get_with_httpx(url: str, jar: CookieJar) -> Any:
    with httpx2.Client(cookies=jar) as client:
        client.get(url)
        return client.cookies


@pytest.mark.parametrize("get", [_get_with_urllib, _get_with_requests, _get_with_httpx])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_libraries_send_and_receive_cookies(
    get: Callable[[str, CookieJar], Any], host: str
) -> None:
    state = SessionState(
        (
            Cookie("sid", "1", host, http_only=True, same_site="Lax"),
            Cookie("domain", "1", host, False, expires=4_000_000_000),
            Cookie("", "nameless", host),
            Cookie("secure", "1", host, secure=True),
            Cookie("path", "1", host, path="/admin"),
            Cookie("other", "1", _HOST),
        )
    )
    written = to_cookiejar(state)
    with cookie_server.running() as server:
        server.set_cookies = ("sid=2; Path=/; HttpOnly; SameSite=Strict",)
        found = from_cookiejar(get(server.url.replace("127.0.0.1", host), written.content))
        assert server.last_cookies() == {"sid=1", "domain=1", "nameless"}
    assert (written.losses, found.losses) == ((), ())
    changed = replace(state.cookies[0], value="2", same_site="Strict")
    assert set(found.state.cookies) == {changed, *state.cookies[1:]}


def test_a_cookie_for_one_host_is_not_sent_to_subdomains() -> None:
    state = SessionState((Cookie("one", "1", _HOST), Cookie("all", "1", _HOST, False)))
    request = urllib.request.Request("https://www.shop.example/")
    to_cookiejar(state).content.add_cookie_header(request)
    assert request.get_header("Cookie") == "all=1"


def test_session_cookies_survive() -> None:
    (cookie,) = to_cookiejar(SessionState((Cookie("a", "1", _HOST),))).content
    assert (cookie.expires, cookie.discard, cookie.is_expired()) == (None, True, False)


def test_the_expiry_0_of_a_cookies_txt_is_a_session_cookie(tmp_path: Path) -> None:
    file = tmp_path / "cookies.txt"
    line = "#HttpOnly_shop.example\tFALSE\t/\tTRUE\t0\ta\t1\n"
    file.write_text(f"# Netscape HTTP Cookie File\n{line}")
    jar = MozillaCookieJar()
    jar.load(str(file), ignore_discard=True, ignore_expires=True)
    assert from_cookiejar(jar).state.cookies == (
        Cookie("a", "1", _HOST, secure=True, http_only=True),
    )


def test_cookies_without_a_domain_need_the_url() -> None:
    jar = requests.Session().cookies
    jar.set("sid", "S3CRET")
    with pytest.raises(InvalidSession, match="add the parameter url") as caught:
        from_cookiejar(jar)
    assert "S3CRET" not in str(caught.value)
    (cookie,) = from_cookiejar(jar, "https://shop.example/").state.cookies
    assert (cookie.host, cookie.host_only) == (_HOST, True)
    with pytest.raises(InvalidSession, match=r"Expected a cookie jar.*read.*scrapy"):
        from_cookiejar({"sid": "S3CRET"})


def test_counts_what_it_cannot_carry() -> None:
    cookies = (
        Cookie("a", "1", "intranet"),
        Cookie("old", "1", _HOST, expires=0),
        Cookie("b", "1", _HOST),
        Cookie("", "b", _HOST),
    )
    written = to_cookiejar(SessionState(cookies))
    assert from_cookiejar(written.content).state.cookies == (
        replace(cookies[0], host="intranet.local"),
        cookies[2],
    )
    assert [loss.subject for loss in written.losses] == ["host", "cookie", "cookie"]
