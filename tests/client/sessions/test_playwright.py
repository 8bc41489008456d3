"""Playwright's storage state, as Playwright 1.65 writes and reads it with Chromium."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gleanery.sessions import (
    Cookie,
    InvalidSession,
    PartitionKey,
    SessionState,
    StorageEntry,
    read,
    write,
)

_HOST = "shop.example"
_COOKIE = Cookie("n", "v", _HOST)
_RECORD: dict[str, Any] = {
    "name": "sid",
    "value": "S3CRET",
    "domain": _HOST,
    "path": "/",
    "expires": -1,
    "httpOnly": True,
    "secure": True,
    "sameSite": "Lax",
}
_PARTITION = {"partitionKey": "https://top.example", "_crHasCrossSiteAncestor": True}
_OF_PLAYWRIGHT = {
    "cookies": [
        _RECORD,
        _RECORD | _PARTITION | {"name": "chips", "sameSite": "None"},
        _RECORD | {"name": "cart", "domain": ".shop.example", "expires": 1794826758.720432},
    ],
    "origins": [
        {
            "origin": "http://localhost:8080",
            "localStorage": [{"name": "k", "value": "v"}, {"name": "", "value": ""}],
        }
    ],
}
_STATE = SessionState(
    (
        Cookie("sid", "S3CRET", _HOST, secure=True, http_only=True, same_site="Lax"),
        Cookie(
            "chips",
            "S3CRET",
            _HOST,
            secure=True,
            http_only=True,
            same_site="None",
            partition_key=PartitionKey("https://top.example", has_cross_site_ancestor=True),
        ),
        Cookie("cart", "S3CRET", _HOST, False, "/", 1_794_826_758, True, True, "Lax"),
    ),
    (
        StorageEntry("http://localhost:8080", "k", "v"),
        StorageEntry("http://localhost:8080", "", ""),
    ),
)


def test_reads_what_playwright_writes() -> None:
    found = read(json.dumps(_OF_PLAYWRIGHT))
    assert (found.format, found.state, found.losses) == ("playwright", _STATE, ())


def test_writes_what_playwright_reads() -> None:
    written = write(_STATE, "playwright")
    cart = _OF_PLAYWRIGHT["cookies"][2] | {"expires": 1_794_826_758}  # type: ignore[operator]
    assert written.content["cookies"] == [*_OF_PLAYWRIGHT["cookies"][:2], cart]
    assert written.content["origins"] == _OF_PLAYWRIGHT["origins"]
    assert written.losses == ()


def test_reads_the_array_of_context_cookies() -> None:
    found = read([_RECORD])
    assert (found.format, found.state.cookies) == ("playwright", _STATE.cookies[:1])


def test_omits_an_unknown_same_site_because_playwright_rejects_the_whole_state() -> None:
    [record] = write(SessionState((_COOKIE,)), "playwright").content["cookies"]
    assert "sameSite" not in record


def test_says_that_indexed_db_and_unknown_members_are_lost() -> None:
    origin = {"origin": "https://a.example", "indexedDB": [{"name": "db"}], "sessionStorage": []}
    found = read({"cookies": [], "origins": [origin]})
    assert [str(loss) for loss in found.losses] == [
        "IndexedDB is not kept: only cookies and local storage are supported (1 database).",
        "A member of a record is ignored, because it is unknown (1 record).",
    ]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"cookies": 5, "origins": []}, "cookies: expected an array"),
        ({"cookies": ["S3CRET"], "origins": []}, r"cookies\[0\]: expected an object"),
        ({"cookies": [], "origins": {}}, "origins: expected an array"),
        (
            {"cookies": [], "origins": [{"origin": "S3CRET"}]},
            r"origins\[0\]: The origin is invalid",
        ),
        (
            {
                "cookies": [],
                "origins": [{"origin": "http://a", "localStorage": [{"name": "S3CRET"}]}],
            },
            r'origins\[0\]: localStorage\[0\]: "value" is missing',
        ),
    ],
)
def test_rejects_an_invalid_document(document: object, message: str) -> None:
    with pytest.raises(InvalidSession, match=f"^{message}") as caught:
        read(document, "playwright")
    assert "S3CRET" not in str(caught.value)
