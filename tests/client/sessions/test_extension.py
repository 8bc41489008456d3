"""Cookies of browser extensions: Cookie-Editor, EditThisCookie and others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gleanery.sessions import Cookie, PartitionKey, SessionState, read, write

_HOST = "shop.example"
_SITE = "https://top.example"
_SID = Cookie("sid", "S3CRET", _HOST, secure=True, http_only=True, same_site="None")
_CART = Cookie("cart", "é", _HOST, False, "/x", 1_794_826_878)
_STATE = SessionState((_SID, _CART))
_OF_COOKIE_EDITOR: list[dict[str, Any]] = [
    {
        "domain": _HOST,
        "hostOnly": True,
        "httpOnly": True,
        "name": "sid",
        "path": "/",
        "sameSite": "no_restriction",
        "secure": True,
        "session": True,
        "storeId": None,
        "value": "S3CRET",
    },
    {
        "domain": ".shop.example",
        "expirationDate": 1794826878.947369,
        "hostOnly": False,
        "httpOnly": False,
        "name": "cart",
        "path": "/x",
        "sameSite": None,
        "secure": False,
        "session": False,
        "storeId": None,
        "value": "é",
    },
]
_OF_EDIT_THIS_COOKIE = [
    _OF_COOKIE_EDITOR[0] | {"storeId": "0", "id": 1},
    _OF_COOKIE_EDITOR[1] | {"storeId": "0", "id": 2, "sameSite": "unspecified"},
]
_OF_FIREFOX = [
    _OF_COOKIE_EDITOR[0]
    | {"storeId": "firefox-default", "firstPartyDomain": "", "partitionKey": None},
    _OF_COOKIE_EDITOR[1] | {"storeId": "firefox-container-1", "firstPartyDomain": ""},
]
_WITH_URL = {"url": "https://shop.example", "cookies": _OF_COOKIE_EDITOR}


@pytest.mark.parametrize(
    "document", [_OF_COOKIE_EDITOR, _OF_EDIT_THIS_COOKIE, _OF_FIREFOX, _WITH_URL]
)
def test_reads_what_extensions_write(document: Any) -> None:
    found = read(json.dumps(document))
    assert (found.format, found.state, found.losses) == ("extension", _STATE, ())


def test_writes_what_extensions_import() -> None:
    """EditThisCookie cannot import a leading dot, and Firefox rejects "unspecified"."""
    written = write(_STATE, "extension")
    expected = [
        {key: value for key, value in record.items() if value is not None}
        for record in _OF_COOKIE_EDITOR
    ]
    expected[1] |= {"domain": _HOST, "expirationDate": 1_794_826_878}
    assert (written.content, written.losses) == (expected, ())
    assert read(written.text).state == _STATE


def test_keeps_the_partition() -> None:
    partition = {"topLevelSite": _SITE, "hasCrossSiteAncestor": False}
    found = read([_OF_COOKIE_EDITOR[0] | {"partitionKey": partition}])
    assert found.state.cookies[0].partition_key == PartitionKey(_SITE, False)
    [record] = write(found.state, "extension").content
    assert record["partitionKey"] == partition
