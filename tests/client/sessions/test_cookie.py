"""The Cookie header, as browsers send it and as people copy it."""

from __future__ import annotations

import pytest

from gleanery.sessions import Cookie, InvalidSession, PartitionKey, SessionState, read, write

_URL = "https://www.shop.example/account/orders"
_HOST = "www.shop.example"
_COPIED_REQUEST = """\
GET /account?a=b HTTP/2
:authority: www.shop.example
Accept: text/html; q=1
cookie: sid=S3CRET; cart="a b"; v
cookie: =w=x; __Host-csrf=1
"""


def _pairs(text: str, format: str = "auto") -> list[tuple[str, str]]:  # noqa: A002
    return [(one.name, one.value) for one in read(text, format, _URL).state.cookies]


@pytest.mark.parametrize("text", ["sid=a=b; c=", "Cookie: sid=a=b; c=\r\n", "> cookie:sid=a=b;c=;"])
def test_reads_the_header_with_and_without_its_name(text: str) -> None:
    found = read(text, url=_URL)
    assert found.format == "cookie"
    assert found.state.cookies == (Cookie("sid", "a=b", _HOST), Cookie("c", "", _HOST))


def test_reads_a_copied_request() -> None:
    """Browsers send a cookie without a name as its value. The first of one name counts."""
    found = read(_COPIED_REQUEST, url=_URL)
    assert found.state.cookies == (
        Cookie("sid", "S3CRET", _HOST),
        Cookie("cart", '"a b"', _HOST),
        Cookie("", "v", _HOST),
        Cookie("__Host-csrf", "1", _HOST, secure=True),
    )
    (loss,) = found.losses
    assert (loss.subject, loss.records) == ("cookie", 1)


@pytest.mark.parametrize("text", ["a: b", "hello", "x y=1", "a=b\nc=d", "key: a=b", "a=b; c"])
def test_other_text_is_not_taken_for_cookies(text: str) -> None:
    with pytest.raises(InvalidSession, match="The format is not known"):
        read(text, url=_URL)


def test_an_error_does_not_contain_the_value() -> None:
    with pytest.raises(InvalidSession, match="add the parameter url") as caught:
        read("sid=S3CRET")
    assert "S3CRET" not in str(caught.value)
    with pytest.raises(InvalidSession, match=r"line 2: .* NUL"):
        read("\nsid=S3CRET\0", "cookie", _URL)


def test_writes_what_the_page_gets() -> None:
    site = PartitionKey("https://other.example", True)
    cookies = (
        Cookie("sid", "1", "shop.example", host_only=False, secure=True),
        Cookie("path", "root", _HOST),
        Cookie("path", "deep", _HOST, path="/account", http_only=True),
        Cookie("other", "1", "shop.example"),
        Cookie("old", "1", _HOST, expires=1),
        Cookie("embedded", "1", _HOST, partition_key=site),
    )
    written = write(SessionState(cookies), "cookie", _URL)
    assert written.text == "Cookie: path=deep; sid=1; path=root\n"
    lost = {(loss.subject, loss.records) for loss in written.losses}
    assert lost == {
        ("cookie", 1),
        ("cookie", 2),
        ("host", 1),
        ("host_only", 1),
        ("secure", 1),
        ("path", 1),
        ("http_only", 1),
    }


def test_reads_what_it_writes() -> None:
    carried = (Cookie("a", '"b, c"=ü', _HOST), Cookie("", "v", _HOST), Cookie("e", "", _HOST))
    written = write(SessionState(carried), "cookie", _URL)
    assert (read(written.text, url=_URL).state.cookies, written.losses) == (carried, ())
    not_carried = (
        Cookie("a;", "1", _HOST),
        Cookie("b", "1;", _HOST),
        Cookie("c", " 1", _HOST),
        Cookie("d=", "1", _HOST),
        Cookie("e", "\x01", _HOST),
        Cookie("", "f=g", _HOST),
        Cookie("", " ", _HOST),
    )
    for cookie in not_carried:
        written = write(SessionState((cookie,)), "cookie", _URL)
        assert (written.text, written.losses[0].records) == ("Cookie: \n", 1)
    assert read("Cookie: \n", url=_URL).state == SessionState()
