"""Cookies of CDP and Puppeteer, as Chromium 156 and Puppeteer 24 write and read them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gleanery.sessions import Cookie, PartitionKey, SessionState, StorageEntry, read, write

_HOST = "shop.example"
_SITE = "https://top.example"
_OF_CDP: list[dict[str, Any]] = [
    {
        "name": "sid",
        "value": "S3CRET",
        "domain": _HOST,
        "path": "/",
        "expires": -1,
        "size": 9,
        "httpOnly": True,
        "secure": True,
        "session": True,
        "sameSite": "None",
        "priority": "Medium",
        "sourceScheme": "Secure",
        "sourcePort": 443,
        "partitionKey": {"topLevelSite": _SITE, "hasCrossSiteAncestor": True},
    },
    {
        "name": "cart",
        "value": "é",
        "domain": ".shop.example",
        "path": "/x",
        "expires": 1794826758.720432,
        "size": 6,
        "httpOnly": False,
        "secure": False,
        "session": False,
        "priority": "High",
        "sourceScheme": "NonSecure",
        "sourcePort": 80,
    },
]
_PARTITION_OF_PUPPETEER = {"sourceOrigin": _SITE, "hasCrossSiteAncestor": True}
_STATE = SessionState(
    (
        Cookie(
            "sid",
            "S3CRET",
            _HOST,
            secure=True,
            http_only=True,
            same_site="None",
            partition_key=PartitionKey(_SITE, has_cross_site_ancestor=True),
        ),
        Cookie("cart", "é", _HOST, False, "/x", 1_794_826_758),
    )
)


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"cookies": _OF_CDP}, "cdp"),
        (_OF_CDP, "puppeteer"),
        ([_OF_CDP[0] | {"partitionKey": _PARTITION_OF_PUPPETEER}, _OF_CDP[1]], "puppeteer"),
        ([_OF_CDP[0] | {"partitionKey": _SITE, "sameParty": False}, _OF_CDP[1]], "puppeteer"),
    ],
)
def test_reads_what_cdp_and_puppeteer_write(document: Any, name: str) -> None:
    found = read(json.dumps(document))
    assert (found.format, found.state) == (name, _STATE)
    assert [str(loss) for loss in found.losses] == [
        "The priority is lost: it is Chromium's own (1 cookie)."
    ]


def test_writes_the_parameters_of_set_cookies() -> None:
    written = write(_STATE, "cdp")
    kept = ("name", "value", "domain", "path", "secure", "httpOnly", "sameSite", "partitionKey")
    expected = [{key: one[key] for key in kept if key in one} for one in _OF_CDP]
    expected[0]["expires"], expected[1]["expires"] = -1, 1_794_826_758
    assert (written.content, written.losses) == ({"cookies": expected}, ())


def test_writes_the_partition_as_puppeteer_names_it() -> None:
    [first, second] = write(_STATE, "puppeteer").content
    assert (first["partitionKey"], first["session"], first["size"]) == (
        _PARTITION_OF_PUPPETEER,
        True,
        9,
    )
    assert (second["session"], second["size"]) == (False, 6)
    assert read([first, second]).state == _STATE


@pytest.mark.parametrize("name", ["cdp", "puppeteer", "selenium", "extension", "scrapy"])
def test_has_no_local_storage(name: str) -> None:
    state = SessionState((), (StorageEntry("https://a.example", "k", "v"),))
    [loss] = write(state, name).losses
    assert (loss.subject, loss.records) == ("local_storage", 1)
