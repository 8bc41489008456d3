"""The part of a session that a page sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gleanery.sessions import Cookie, InvalidSession, PartitionKey, SessionState, StorageEntry
from gleanery.sessions.browser_rules import (
    gets_cookie,
    of_domain,
    of_page,
    parse_url,
    without_expired,
)

COOKIE = Cookie("n", "v", "shop.example")


def partition(site: str, has_cross_site_ancestor: bool = False) -> PartitionKey:
    return PartitionKey(site, has_cross_site_ancestor)


SEEN: list[tuple[dict[str, Any], str, bool]] = [
    ({}, "https://shop.example/", True),
    ({}, "http://shop.example:8080/a?b#c", True),
    ({}, "https://SHOP.example", True),
    ({}, "https://www.shop.example/", False),
    ({"host_only": False}, "https://www.shop.example/", True),
    ({"host_only": False}, "https://workshop.example/", False),
    ({"host": "0.0.1", "host_only": False}, "http://127.0.0.1/", False),
    ({"host": "[::1]"}, "http://[::1]:8080/", True),
    ({"path": "/a"}, "https://shop.example/a", True),
    ({"path": "/a"}, "https://shop.example/a/b", True),
    ({"path": "/a/"}, "https://shop.example/a/b", True),
    ({"path": "/a"}, "https://shop.example/ab", False),
    ({"path": "/a/"}, "https://shop.example/a", False),
    ({"secure": True}, "http://shop.example/", False),
    ({"secure": True}, "https://shop.example/", True),
    ({"secure": True, "host": "localhost"}, "http://localhost:3000/", True),
    ({"secure": True, "host": "127.0.0.1"}, "http://127.0.0.1/", True),
    ({"secure": True, "host": "[::1]"}, "http://[::1]/", True),
    ({"partition_key": partition("https://shop.example")}, "https://shop.example/", True),
    ({"partition_key": partition("https://example")}, "https://shop.example/", True),
    ({"partition_key": partition("https://other.example")}, "https://shop.example/", False),
    ({"partition_key": partition("http://shop.example")}, "https://shop.example/", False),
    ({"partition_key": partition("https://shop.example", True)}, "https://shop.example/", False),
    ({"partition_key": partition("http://[::1]"), "host": "[::1]"}, "http://[::1]:8080/", True),
    ({"partition_key": partition("http://[::2]"), "host": "[::1]"}, "http://[::1]:8080/", False),
]


@pytest.mark.parametrize(("changes", "url", "expected"), SEEN)
def test_a_page_gets_its_cookies(changes: dict[str, Any], url: str, expected: bool) -> None:
    assert gets_cookie(parse_url(url), replace(COOKIE, **changes)) == expected


def test_local_storage_belongs_to_one_origin() -> None:
    origins = ("https://shop.example", "http://shop.example", "https://shop.example:8443")
    state = SessionState((), tuple(StorageEntry(origin, "k", "v") for origin in origins))
    for entry in state.local_storage:
        assert of_page(state, parse_url(f"{entry.origin}/a")).local_storage == (entry,)
    assert of_domain(state, "Shop.example") == state
    assert of_domain(state, "www.shop.example") == SessionState()


def test_a_domain_has_the_cookies_of_all_paths_and_of_parent_domains() -> None:
    seen = (replace(COOKIE, path="/a", secure=True), replace(COOKIE, host_only=False))
    state = SessionState((*seen, replace(COOKIE, host="www.shop.example", host_only=False)))
    assert of_domain(state, "shop.example").cookies == seen


def test_expired_cookies_are_left_out() -> None:
    cookies = tuple(replace(COOKIE, name=str(n), expires=n) for n in (0, 99, 100, 101))
    kept = without_expired(SessionState((COOKIE, *cookies)), 100)
    assert kept.cookies == (COOKIE, cookies[-1])


@pytest.mark.parametrize(
    "url",
    [
        *("", "shop.example", "/a", "file:///s3cr3t", "https://", "https://[::1/s3cr3t"),
        *("https://s3cr3t:99999/", "https://s3cr3t:port/", "https://a b/s3cr3t"),
        "https://.s3cr3t/",
    ],
)
def test_an_invalid_url_is_rejected_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidSession) as caught:
        parse_url(url)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "host", ["[::1]", "[:7ba2:]", "[::ffff:1.2.3.4]", "a_b.example", "localhost"]
)
def test_each_host_that_a_cookie_can_have_has_a_page(host: str) -> None:
    page = parse_url(f" HTTPS://{host.upper()}:/a?b ")
    assert (page.origin, page.host, page.path) == (f"https://{host}", host, "/a")
    assert gets_cookie(page, replace(COOKIE, host=host))


def test_the_user_in_a_url_does_not_matter() -> None:
    assert parse_url("https://me:s3cr3t@shop.example/") == parse_url("https://shop.example")
