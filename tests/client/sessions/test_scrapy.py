"""Cookies of Scrapy, as the cookie middleware of Scrapy 2.19 reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gleanery.sessions import Cookie, InvalidSession, SessionState, read, write

_COOKIE = Cookie("sid", "S3CRET", "shop.example", False, "/x", secure=True)


def test_writes_what_scrapy_reads() -> None:
    written = write(SessionState((_COOKIE,)), "scrapy")
    assert written.content == [
        {
            "name": "sid",
            "value": "S3CRET",
            "domain": ".shop.example",
            "path": "/x",
            "secure": True,
        }
    ]
    assert (read(written.text).state.cookies, written.losses) == ((_COOKIE,), ())


def test_says_what_scrapy_cannot_carry() -> None:
    cookie = replace(_COOKIE, host_only=True, expires=5, http_only=True, same_site="Lax")
    written = write(SessionState((cookie,)), "scrapy")
    subjects = {loss.subject for loss in written.losses}
    assert subjects == {"host_only", "expires", "http_only", "same_site"}
    assert read(written.content).state.cookies == (_COOKIE,)


def test_a_domain_cookie_replaces_a_host_only_cookie_of_its_name() -> None:
    written = write(SessionState((replace(_COOKIE, host_only=True), _COOKIE)), "scrapy")
    assert read(written.content).state.cookies == (_COOKIE,)
    assert [(loss.subject, loss.records) for loss in written.losses] == [("cookie", 1)]


def test_reads_the_dictionary_of_a_request() -> None:
    found = read({"sid": "S3CRET", "__Host-a": "1"}, "scrapy", "https://shop.example/")
    assert found.state.cookies == (
        Cookie("sid", "S3CRET", "shop.example"),
        Cookie("__Host-a", "1", "shop.example", secure=True),
    )


@pytest.mark.parametrize(
    ("document", "url", "message"),
    [
        ({"sid": "S3CRET"}, None, "add the parameter url"),
        ({"S3CRET": ["S3CRET"]}, "https://shop.example/", r"^cookies\[0\]: expected a string"),
        ({}, "https://shop.example/", 'has no "cookies"'),
    ],
)
def test_another_object_is_rejected(document: object, url: str | None, message: str) -> None:
    with pytest.raises(InvalidSession, match=message) as caught:
        read(document, "scrapy", url)
    assert "S3CRET" not in str(caught.value)


def test_the_name_says_secure_where_a_list_does_not() -> None:
    found = read([{"name": "__Secure-a", "value": "1", "domain": ".shop.example"}])
    assert (found.format, found.losses) == ("scrapy", ())
    assert found.state.cookies == (Cookie("__Secure-a", "1", "shop.example", False, secure=True),)


@pytest.mark.parametrize("host_only", [True, False])
def test_a_host_without_a_dot_gets_the_domain_that_scrapy_expects(host_only: bool) -> None:
    """The jar of the standard library rejects the domain localhost, and takes localhost.local."""
    state = SessionState((replace(_COOKIE, host="localhost", host_only=host_only),))
    written = write(state, "scrapy")
    [record] = written.content
    assert record["domain"] == ("" if host_only else ".") + "localhost.local"
    assert (read(written.content).state, written.losses) == (state, ())


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "[::1]"},
        {"name": ""},
        {"name": "a;b"},
        {"name": "a=b"},
        {"value": " a"},
        {"value": "a\xa0"},
        {"value": "a;b"},
        {"path": "/a;b"},
    ],
)
def test_leaves_out_what_scrapy_would_change(changes: dict[str, str]) -> None:
    written = write(SessionState((replace(_COOKIE, **changes),)), "scrapy")  # type: ignore[arg-type]
    assert written.content == []
    assert [(loss.subject, loss.records) for loss in written.losses] == [("cookie", 1)]
