"""Sites in Scrapy: which hosts share a session, and which cookies of a jar belong to it."""

from __future__ import annotations

import subprocess
import sys
from http.cookiejar import Cookie
from pathlib import Path

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.http.cookies import CookieJar

from gleanery.client import AsyncClient
from gleanery.integrations.scrapy import sites
from gleanery.integrations.scrapy.sites import SiteSession, group_by_site, session_domain
from tests.support.process import environment

_OFFLINE = """
import socket, sys

def refuse(*_):
    print("connected", flush=True)
    raise OSError

socket.socket.connect = socket.getaddrinfo = refuse
from gleanery.integrations.scrapy.sites import session_domain
print(session_domain("www.shop.co.uk"))
"""


@pytest.mark.thorough
def test_the_list_of_public_suffixes_is_not_downloaded(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _OFFLINE],
        capture_output=True,
        text=True,
        env=environment(TLDEXTRACT_CACHE=str(tmp_path)),
        check=True,
    )
    assert done.stdout == ".shop.co.uk\n"


@pytest.mark.parametrize(
    "host", ["www.shop.example", "127.0.0.1", "localhost", "[::1]", "shop.github.io", "nas.corp"]
)
def test_a_cookie_of_a_host_belongs_to_its_site(host: str) -> None:
    jar, request = CookieJar(), Request(f"http://{host}/")
    jar.extract_cookies(Response(request.url, headers={"Set-Cookie": "a=1"}), request)
    name = host.strip("[]")
    assert list(group_by_site(jar)) == [session_domain(name)]


def test_only_cookies_of_sites_with_a_session_are_converted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jar = CookieJar()
    for number in range(50):
        jar.set_cookie(cookie(f"www.shop{number}.example"))
    converted: list[str] = []
    convert = sites._convert
    monkeypatch.setattr(
        sites,
        "_convert",
        lambda cookies: convert([converted.append(one.domain) or one for one in cookies]),
    )
    session = SiteSession(AsyncClient("http://127.0.0.1:1", "t"), ".shop7.example", "default")
    session.is_kept = True
    [changed] = session.changes(group_by_site(jar)[session.domain])
    assert converted == [changed.host] == ["www.shop7.example"]


def cookie(domain: str) -> Cookie:
    """Return a cookie that a site has set."""
    limits = (None, False, domain, False, False, "/", True, False)
    return Cookie(0, "sid", "1", *limits, None, False, None, None, {})
