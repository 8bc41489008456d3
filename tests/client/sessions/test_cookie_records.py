"""Cookie records of JSON formats: detection, hosts, expiries, partitions and invalid records."""

from __future__ import annotations

from typing import Any

import pytest

from gleanery.sessions import Cookie, InvalidSession, PartitionKey, SessionState, read, write

_HOST = "shop.example"
_RECORD: dict[str, Any] = {"name": "n", "value": "v", "domain": _HOST, "path": "/"}
_NAMES = ("playwright", "cdp", "puppeteer", "selenium", "extension", "scrapy")
_SITE = "https://top.example"


def _read(**members: Any) -> Cookie:
    found = read([_RECORD | members], "playwright")
    assert found.losses == ()
    return found.state.cookies[0]


@pytest.mark.parametrize("name", _NAMES)
def test_each_format_detects_what_it_writes(name: str) -> None:
    content = write(SessionState((Cookie("n", "v", _HOST),)), name).content
    assert read(content).format == name


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"cookies": [], "origins": []}, "playwright"),
        ({"origins": []}, "playwright"),
        ({"cookies": []}, "cdp"),
        ({"cookies": [_RECORD]}, "cdp"),
        ({"url": "https://a.example", "cookies": [_RECORD | {"hostOnly": True}]}, "extension"),
        ([], "playwright"),
        ([_RECORD | {"expires": -1}], "playwright"),
        ([_RECORD, _RECORD | {"expires": -1, "session": True, "size": 2}], "puppeteer"),
        ([_RECORD | {"expires": -1, "session": True, "storeId": "0"}], "extension"),
        ([_RECORD, _RECORD | {"expiry": 5}], "selenium"),
        ([_RECORD | {"httpOnly": True, "sameSite": "Lax"}], "selenium"),
        ([_RECORD], "scrapy"),
        ([{"name": "n", "value": "v"}], "scrapy"),
    ],
)
def test_one_format_detects_a_document(document: Any, name: str) -> None:
    assert read(document, url="https://shop.example").format == name


@pytest.mark.parametrize("document", [{}, {"cookies": 5}, [5], ["a"], [{"name": "n"}], 5, None, ""])
def test_no_format_detects_other_json(document: Any) -> None:
    with pytest.raises(InvalidSession):
        read(document)


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize(
    "document",
    [
        *(5, [5], {}, {"n": 1}, {"result": {"cookies": []}}),
        *({"cookies": [[]]}, {"cookies": None}),
    ],
)
def test_a_named_format_rejects_other_json(document: Any, name: str) -> None:
    with pytest.raises(InvalidSession, match=r'^cookies|^The document has no "cookies"'):
        read(document, name, "https://shop.example/")


@pytest.mark.parametrize(
    ("members", "expires"),
    [
        ({}, None),
        ({"expires": -1}, None),
        ({"expires": 1_800_000_000.99}, 1_800_000_000),
        ({"expires": 0}, 0),
        ({"expires": 1e400}, 253_402_300_799),
        ({"expirationDate": 1_800_000_000.5}, 1_800_000_000),
        ({"expirationDate": 1_800_000_000, "session": True}, None),
        ({"expiry": 1_800_000_000}, 1_800_000_000),
        ({"expirationDate": 1_800_000_000_999}, 1_800_000_000),
        ({"expires": 999_999_999_999}, 253_402_300_799),
        ({"expires": 10**400}, 253_402_300_799),
    ],
)
def test_expiry(members: dict[str, Any], expires: int | None) -> None:
    assert _read(**members).expires == expires


@pytest.mark.parametrize(
    ("members", "host", "host_only"),
    [
        ({}, _HOST, True),
        ({"domain": ".Shop.Example"}, _HOST, False),
        ({"domain": ".shop.example", "hostOnly": True}, _HOST, True),
        ({"hostOnly": False}, _HOST, False),
        ({"domain": None, "host": "a.example"}, "a.example", True),
        ({"domain": ".localhost.local", "host": "localhost"}, "localhost", False),
        ({"domain": None, "url": "https://b.example/x"}, "b.example", True),
    ],
)
def test_host(members: dict[str, Any], host: str, host_only: bool) -> None:
    cookie = _read(**members)
    assert (cookie.host, cookie.host_only) == (host, host_only)


def test_a_record_without_a_host_belongs_to_the_page() -> None:
    found = read([{"name": "n", "value": "v"}], url="https://page.example:8443/x")
    assert found.state.cookies == (Cookie("n", "v", "page.example"),)
    with pytest.raises(InvalidSession, match=r'^cookies\[0\]: "domain" is missing'):
        read([{"name": "n", "value": "v"}])


@pytest.mark.parametrize(
    ("members", "partition"),
    [
        ({"partitionKey": None}, None),
        ({"partitionKey": ""}, None),
        ({"partitionKey": {}}, None),
        ({"partitionKey": _SITE}, PartitionKey(_SITE, True)),
        ({"partitionKey": _SITE, "_crHasCrossSiteAncestor": False}, PartitionKey(_SITE, False)),
        ({"partitionKey": {"topLevelSite": _SITE}}, PartitionKey(_SITE, True)),
        ({"partitionKey": {"topLevelSite": f"{_SITE}:8443"}}, PartitionKey(_SITE, True)),
        (
            {"partitionKey": {"sourceOrigin": _SITE, "hasCrossSiteAncestor": False}},
            PartitionKey(_SITE, False),
        ),
        ({"partitionKey": "https://Shop.Example:443"}, PartitionKey("https://shop.example", False)),
        (
            {"domain": "www.shop.example", "partitionKey": "https://shop.example"},
            PartitionKey("https://shop.example", False),
        ),
    ],
)
def test_partition(members: dict[str, Any], partition: PartitionKey | None) -> None:
    assert _read(**members).partition_key == partition


@pytest.mark.parametrize(
    "members",
    [{"partitionKeyOpaque": True}, {"partitionKey": {"topLevelSite": "chrome-extension://abc"}}],
)
def test_a_cookie_with_a_partition_of_its_browser_is_left_out(members: dict[str, Any]) -> None:
    found = read([_RECORD | members, _RECORD | {"expires": -1}])
    assert found.state.cookies == (Cookie("n", "v", _HOST),)
    assert [(loss.subject, loss.records) for loss in found.losses] == [("cookie", 1)]


@pytest.mark.parametrize(
    ("members", "subject"),
    [
        ({"priority": "High"}, "priority"),
        ({"firstPartyDomain": "a.example"}, "partition_key"),
        ({"sameSite": "S3CRET"}, "same_site"),
        ({"sameSite": 5}, "same_site"),
        ({"S3CRET": "S3CRET"}, "member"),
    ],
)
def test_what_is_not_kept_is_a_loss(members: dict[str, Any], subject: str) -> None:
    found = read([_RECORD | members])
    assert [(loss.subject, loss.records) for loss in found.losses] == [(subject, 1)]
    assert found.state.cookies == (Cookie("n", "v", _HOST),)
    assert "S3CRET" not in repr(found)


@pytest.mark.parametrize("name", ["auto", *_NAMES])
def test_a_member_beside_the_cookies_that_is_not_read_is_a_loss(name: str) -> None:
    found = read({"cookies": [_RECORD], "localStorage": {"k": "S3CRET"}}, name)
    assert [(loss.subject, loss.records) for loss in found.losses] == [("member", 1)]
    assert read({"cookies": [_RECORD], "url": "https://shop.example"}, name).losses == ()


@pytest.mark.parametrize("name", _NAMES)
def test_local_storage_is_not_lost_silently_if_another_format_is_named(name: str) -> None:
    entries = [{"name": "k", "value": "v"}]
    origins = [{"origin": "https://shop.example", "localStorage": entries}]
    found = read({"cookies": [_RECORD], "origins": origins}, name)
    assert bool(found.state.local_storage) == (name == "playwright")
    assert bool(found.losses) == (name != "playwright")


def test_reads_the_list_of_cookies_of_the_service() -> None:
    cookie = _read(url="https://shop.example/", expires=-1, http_only=True, secure=True)
    assert cookie == Cookie("n", "v", _HOST, secure=True, http_only=True)


@pytest.mark.parametrize(
    "members",
    [
        {"name": None},
        {"name": 5},
        {"value": None},
        {"value": ["S3CRET"]},
        {"value": "S3CRET\0"},
        {"value": "S3CRET\r\nx"},
        {"value": "S3CRET\ud800"},
        {"domain": "S3CRET/x"},
        {"domain": 5},
        {"host": "S3CRET/x"},
        {"path": 5},
        {"path": "S3CRET\0"},
        {"secure": "S3CRET"},
        {"httpOnly": 1},
        {"hostOnly": "S3CRET"},
        {"session": "S3CRET"},
        {"expires": "S3CRET"},
        {"expiry": True},
        {"expirationDate": float("nan")},
        {"partitionKey": 5},
        {"partitionKey": "S3CRET"},
        {"partitionKey": {"topLevelSite": 5}},
        {"partitionKey": {"topLevelSite": _SITE, "hasCrossSiteAncestor": "S3CRET"}},
        {"partitionKeyOpaque": "S3CRET"},
    ],
)
def test_an_invalid_record_is_rejected_with_its_place_only(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidSession, match=r"^cookies\[1\]: ") as caught:
        read({"cookies": [_RECORD, _RECORD | members]})
    assert "S3CRET" not in str(caught.value)
