"""Name prefixes, whose rules Chromium enforces for every cookie that a tool sets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gleanery.sessions import Cookie, SessionState, read, write

_BEST = Cookie("n", "v", "shop.example", secure=True, http_only=True)
_WEAKER = {
    "secure": replace(_BEST, secure=False),
    "http_only": replace(_BEST, http_only=False),
    "host_only": replace(_BEST, host_only=False),
    "path": replace(_BEST, path="/a"),
}


@pytest.mark.parametrize(
    ("prefix", "required"),
    [
        ("__Secure-", {"secure"}),
        ("__HOST-", {"secure", "host_only", "path"}),
        ("__http-", {"secure", "http_only"}),
        ("__Host-Http-", {"secure", "http_only", "host_only", "path"}),
        ("_Host-", set()),
        ("x__Host-", set()),
    ],
)
def test_a_cookie_that_breaks_a_rule_is_left_out(prefix: str, required: set[str]) -> None:
    assert _is_kept(replace(_BEST, name=f"{prefix}a"))
    broken = {field for field, one in _WEAKER.items() if not _is_kept(replace(one, name=prefix))}
    assert broken == required
    assert _is_kept(replace(_BEST, name="", value=f"{prefix}a")) is (not required)


def _is_kept(cookie: Cookie) -> bool:
    written = write(SessionState((cookie,)), "playwright")
    is_kept = len(written.content["cookies"]) == 1
    assert is_kept is not bool(written.losses)
    return is_kept


def test_a_format_without_secure_keeps_cookies_with_a_prefix() -> None:
    """Their names say what the format cannot say."""
    state = SessionState(
        (
            Cookie("__Host-Http-a", "1", "shop.example", secure=True, http_only=True),
            Cookie("__Secure-b", "2", "shop.example", secure=True),
        )
    )
    written = write(state, "cookie", "https://shop.example/")
    assert written.losses == ()
    assert read(written.text, url="https://shop.example/").state == state
    of_wget = "shop.example\tFALSE\t/\tTRUE\t0\t__Http-a\t1"
    assert read(of_wget).state.cookies[0].http_only
