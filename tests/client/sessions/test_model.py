"""The model of session state: what a cookie and an entry may contain, and host names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gleanery.sessions import Cookie, InvalidSession, PartitionKey, StorageEntry
from gleanery.sessions.model import checked_origin, normalize_origin, split_domain

COOKIE = Cookie("n", "v", "shop.example")
ENTRY = StorageEntry("https://shop.example", "k", "v")
SECRET = "s3cr3t"


@pytest.mark.parametrize("name", ["name", "value", "path"])
@pytest.mark.parametrize("character", ["\0", "\r", "\n", "\ud800"])
def test_a_cookie_rejects_nul_line_ends_and_lone_surrogates(name: str, character: str) -> None:
    with pytest.raises(InvalidSession) as caught:
        replace(COOKIE, **{name: f"/{SECRET}{character}"})
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize("name", ["key", "value"])
@pytest.mark.parametrize("character", ["\0", "\udfff"])
def test_an_entry_rejects_nul_and_lone_surrogates(name: str, character: str) -> None:
    with pytest.raises(InvalidSession) as caught:
        replace(ENTRY, **{name: f"{SECRET}{character}"})
    assert SECRET not in repr(caught.value)


def test_an_entry_has_any_other_text() -> None:
    value = "\r\n\t\"';=\\ é 😀 \u2028" + 4096 * "x"
    assert replace(ENTRY, key=value, value=value).value == value


@pytest.mark.parametrize("host", ["", ".shop.example", "Shop.example", "a b", "a/b", "bücher.de"])
def test_a_cookie_needs_a_normalized_host(host: str) -> None:
    with pytest.raises(InvalidSession):
        replace(COOKIE, host=host)


@pytest.mark.parametrize(
    "origin", ["", "shop.example", "https://Shop.example", "https://a:443", "https://a/", "null"]
)
def test_an_entry_needs_a_normalized_origin(origin: str) -> None:
    with pytest.raises(InvalidSession):
        replace(ENTRY, origin=origin)


def test_a_partition_rejects_line_ends() -> None:
    with pytest.raises(InvalidSession):
        PartitionKey("https://a\n", has_cross_site_ancestor=False)


@pytest.mark.parametrize(
    "changes", [{"name": "", "value": ""}, {"expires": -1}, {"same_site": "lax"}]
)
def test_an_invalid_cookie_is_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSession):
        replace(COOKIE, **changes)


def test_an_empty_path_is_the_root() -> None:
    assert replace(COOKIE, path="") == COOKIE


def test_representations_have_no_value() -> None:
    assert SECRET not in repr([replace(COOKIE, value=SECRET), replace(ENTRY, value=SECRET)])


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (".Shop.Example", ("shop.example", False)),
        ("bücher.example", ("xn--bcher-kva.example", True)),
        ("。bücher。example", ("xn--bcher-kva.example", False)),
        ("[::1]", ("[::1]", True)),
        ("localhost", ("localhost", True)),
    ],
)
def test_a_leading_dot_tells_a_domain_cookie(domain: str, expected: tuple[str, bool]) -> None:
    assert split_domain(domain) == expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("HTTPS://Shop.Example:443/", "https://shop.example"),
        ("http://shop.example:443", "http://shop.example:443"),
        ("http://[::1]:08080", "http://[::1]:8080"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
    ],
)
def test_an_origin_has_one_form(origin: str, expected: str) -> None:
    assert checked_origin(origin) == expected
    assert checked_origin(expected) == expected


@pytest.mark.parametrize(
    "origin",
    [
        "httpſ://shop.example:443",  # a long s
        "httpſ://shop.example",
        "https://.shop.example",
        "https://。shop.example",
        "https://shop.example:65536",
        "https://shop.example/path",
        "https://user@shop.example",
        "https://[::1",
        "file://",
        "null",
    ],
)
def test_an_invalid_origin_is_rejected(origin: str) -> None:
    with pytest.raises(InvalidSession):
        checked_origin(origin)
    with pytest.raises(ValueError, match="expected"):
        normalize_origin(origin)
