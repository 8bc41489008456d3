"""The rules of browsers for a cookie, as Chromium 156 applies them to CDP's setCookies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gleanery.sessions import Cookie, PartitionKey, SessionState, read, write

_COOKIE = Cookie("n", "v", "shop.example")
_OTHER = replace(_COOKIE, name="other")


@pytest.mark.parametrize("name", ["playwright", "cdp", "puppeteer", "selenium", "extension"])
def test_one_invalid_cookie_does_not_make_the_tool_reject_all(name: str) -> None:
    written = write(SessionState((replace(_COOKIE, value="a\tb"), _OTHER)), name)
    assert read(written.content, name).state.cookies == (_OTHER,)
    assert [str(loss) for loss in written.losses] == [
        "A cookie is left out, because browsers reject its name, value, host or path (1 cookie)."
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"value": "a;b"},
        {"value": "a\x7f"},
        {"value": " a"},
        {"value": "a "},
        {"name": "a=b"},
        {"name": "a;"},
        {"name": "", "value": "a=b"},
        {"name": "", "value": "__Http-a"},
        {"name": "__Http-a", "secure": True},
        {"name": "__Host-Http-a", "secure": True},
        {"value": "v" * 4096},
        {"value": "é" * 2048},
        *({"host": host} for host in ("256.1.1.1", "1.2.3", "a.0x1", "[:::]", "[127.0.0.1]")),
        {"path": "a"},
        {"path": "/a;b"},
        {"path": "/" + "p" * 1024},
        {"path": "/" + "é" * 200},
        {"partition_key": PartitionKey("https://top.example", has_cross_site_ancestor=True)},
        {"partition_key": PartitionKey("https://256.1.1.1", True), "secure": True},
    ],
)
def test_a_cookie_that_browsers_reject_is_left_out(changes: dict[str, Any]) -> None:
    written = write(SessionState((replace(_COOKIE, **changes), _OTHER)), "cdp")
    assert read(written.content).state.cookies == (_OTHER,)
    assert [(loss.subject, loss.records) for loss in written.losses] == [("cookie", 1)]


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"value": value}
            for value in ("v" * 4095, "é" * 2047, '"a, b"', "\\", "☃\x80", "a=b", "")
        ),
        {"name": ""},
        {"name": "__Http-a", "secure": True, "http_only": True},
        {"path": "/" + "p" * 1023},
        *({"host": host} for host in ("127.0.0.1", "[::1]", "1.2.3.4a", "4.example")),
        {"host": "localhost", "host_only": False},
    ],
)
def test_a_cookie_that_browsers_accept_is_kept(changes: dict[str, Any]) -> None:
    state = SessionState((replace(_COOKIE, **changes),))
    written = write(state, "cdp")
    assert (read(written.text).state, written.losses) == (state, ())


def test_same_site_none_without_secure_is_omitted() -> None:
    written = write(SessionState((replace(_COOKIE, same_site="None"),)), "cdp")
    assert read(written.content).state.cookies == (_COOKIE,)
    assert [str(loss) for loss in written.losses] == [
        "SameSite None is omitted, because browsers reject it without Secure (1 cookie)."
    ]
