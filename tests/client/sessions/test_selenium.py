"""Cookies of Selenium, as chromedriver 156 writes and reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gleanery.sessions import Cookie, PartitionKey, SessionState, read, write

_HOST = "shop.example"
_OF_CHROMEDRIVER = [
    {
        "domain": _HOST,
        "httpOnly": True,
        "name": "sid",
        "path": "/",
        "sameSite": "Strict",
        "secure": True,
        "value": "S3CRET",
    },
    {
        "domain": ".shop.example",
        "expiry": 1_794_826_878,
        "httpOnly": False,
        "name": "cart",
        "path": "/x",
        "sameSite": "Lax",
        "secure": False,
        "value": "é",
    },
]
_SID = Cookie("sid", "S3CRET", _HOST, secure=True, http_only=True, same_site="Strict")
_CART = Cookie("cart", "é", _HOST, False, "/x", 1_794_826_878, same_site="Lax")
_STATE = SessionState((_SID, _CART))


def test_reads_what_chromedriver_writes() -> None:
    found = read(_OF_CHROMEDRIVER)
    assert (found.format, found.state, found.losses) == ("selenium", _STATE, ())


def test_a_host_only_cookie_has_no_domain() -> None:
    """A driver makes a cookie for subdomains, too, of each cookie with a domain."""
    written = write(_STATE, "selenium")
    [sid, cart] = written.content
    assert sid == {k: v for k, v in _OF_CHROMEDRIVER[0].items() if k != "domain"} | {"host": _HOST}
    assert cart == _OF_CHROMEDRIVER[1]
    assert (read(written.text).state, written.losses) == (_STATE, ())


@pytest.mark.parametrize(
    ("url", "changed"), [(f"https://{_HOST}/x", {1}), (None, {0, 1})], ids=["url", "no url"]
)
def test_only_cookies_of_the_page_lack_a_domain(url: str | None, changed: set[int]) -> None:
    """A driver sets a cookie without a domain for any page, which could be of another party."""
    cookies = (_SID, replace(_SID, host="other.example"))
    written = write(SessionState(cookies), "selenium", url)
    assert {n for n, record in enumerate(written.content) if "domain" in record} == changed
    assert [(loss.subject, loss.records) for loss in written.losses] == [
        ("host_only", len(changed))
    ]
    assert read(written.content).state.cookies == tuple(
        replace(cookie, host_only=n not in changed) for n, cookie in enumerate(cookies)
    )


def test_leaves_out_what_a_driver_rejects_beside_a_domain() -> None:
    cookies = (_SID, replace(_SID, name="__Host-a", host="other.example"))
    written = write(SessionState(cookies), "selenium", f"https://{_HOST}/")
    assert read(written.content).state.cookies == (_SID,)
    assert ("cookie", 1) in [(loss.subject, loss.records) for loss in written.losses]


def test_an_address_needs_no_host() -> None:
    state = SessionState((_SID, replace(_SID, host="127.0.0.1")))
    written = write(state, "selenium")
    assert (read(written.content).state, written.losses) == (state, ())


def test_has_no_partition() -> None:
    key = PartitionKey("https://top.example", has_cross_site_ancestor=True)
    written = write(SessionState((replace(_SID, partition_key=key),)), "selenium")
    assert [loss.subject for loss in written.losses] == ["partition_key"]
    assert read(written.content).state.cookies == (_SID,)
