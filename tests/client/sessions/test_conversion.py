"""Reading and writing in general: detection, duplicates, prefixes, encodings, losses."""

from __future__ import annotations

import json
from dataclasses import replace
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest

import gleanery
from gleanery import sessions
from gleanery.sessions import Cookie, InvalidSession, PartitionKey, SessionState
from gleanery.sessions.conversion import _reduce
from gleanery.sessions.document import JSON
from gleanery.sessions.formats import FORMATS
from gleanery.sessions.model import Losses

COOKIE = Cookie("n", "v", "shop.example")
PARTITION = PartitionKey("https://shop.example", has_cross_site_ancestor=False)
DOCUMENT = {"cookies": [{"name": "n", "value": "é", "domain": "shop.example"}], "origins": []}


def subjects(losses: tuple[sessions.Loss, ...]) -> dict[str, int]:
    return {loss.subject: loss.records for loss in losses}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_text_is_read_in_each_encoding_with_a_byte_order_mark(encoding: str) -> None:
    mark = "\ufeff" if encoding.startswith("utf-16-") else ""
    content = (mark + json.dumps(DOCUMENT, ensure_ascii=False)).encode(encoding)
    assert sessions.read(content).state == sessions.read(DOCUMENT).state
    assert sessions.read(bytearray(content)).state == sessions.read(DOCUMENT).state


def test_a_byte_order_mark_in_a_text_is_ignored() -> None:
    assert sessions.read("\ufeff" + json.dumps(DOCUMENT)).state == sessions.read(DOCUMENT).state


@pytest.mark.parametrize("content", ["", " \n", "\ufeff", b"", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_an_empty_document_is_rejected(content: str | bytes) -> None:
    with pytest.raises(InvalidSession, match="empty"):
        sessions.read(content)


@pytest.mark.parametrize("content", [b"\xff\xff", b"\xc3", b"\xff\xfea"])
def test_bytes_that_are_no_text_are_rejected(content: bytes) -> None:
    with pytest.raises(InvalidSession, match="not text"):
        sessions.read(content)


def test_reads_a_path_and_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(DOCUMENT), encoding="utf-16")
    assert sessions.read(path).state == sessions.read(DOCUMENT).state
    for mode, encoding in (("rb", None), ("r", "utf-16")):
        with path.open(mode, encoding=encoding) as file:
            assert sessions.read(file).state == sessions.read(DOCUMENT).state
    with pytest.raises(FileNotFoundError):
        sessions.read(tmp_path / "other.json")


@pytest.mark.parametrize("name", ["cookies.txt", "/home/anna/state.json", r"C:\my files\a.har"])
def test_the_name_of_a_file_is_no_document(name: str) -> None:
    for format_ in ("auto", "playwright"):
        with pytest.raises(InvalidSession, match=r"not its name.*Path.*--data-binary @"):
            sessions.read(name, format_)


@pytest.mark.parametrize("content", [None, CookieJar(), {"S3CRET"}])
def test_an_object_that_is_no_document_is_rejected(content: Any) -> None:
    for name in ("auto", *FORMATS):
        with pytest.raises(InvalidSession, match=r"an open file.*from_cookiejar") as caught:
            sessions.read(content, name, "https://shop.example/")
        assert "S3CRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"cookies": [', "it ends too early, after 13 characters"),
        ('[{"name": "S3CRET', "it ends too early, after 17 characters"),
        ('[{"name":\n "S3CRET"]\n', "line 2, column 10: expecting ',' delimiter"),
        ('[{"name": "S3CRET"}] S3CRET', "line 1, column 22: extra data"),
        ('[{"value": NaN}]', "NaN and Infinity are not allowed, nor numbers with 4300 digits"),
    ],
)
def test_an_error_of_json_has_its_place(text: str, problem: str) -> None:
    for name in ("auto", *(one.name for one in FORMATS.values() if one.media_type == JSON)):
        with pytest.raises(InvalidSession) as caught:
            sessions.read(text, name, "https://shop.example/")
        assert str(caught.value) == f"The document is not valid JSON: {problem}"


def test_a_text_is_no_json() -> None:
    with pytest.raises(InvalidSession, match="not valid JSON: line 1, column 1"):
        sessions.read("Cookie: sid=S3CRET", "selenium")


def test_writes_what_was_read_without_its_state() -> None:
    found = sessions.read(DOCUMENT)
    assert sessions.write(found, "netscape") == sessions.write(found.state, "netscape")
    assert list(sessions.to_cookiejar(found).content)
    for call in (sessions.to_cookiejar, lambda state: sessions.write(state, "netscape")):
        with pytest.raises(TypeError, match="Expected a SessionState"):
            call({"sid": "S3CRET"})  # type: ignore[operator]


def test_the_help_explains_each_format() -> None:
    words = " ".join((sessions.read.__doc__ or "").split())
    for one in FORMATS.values():
        assert f"``{one.name}``: {one.description.replace('`', '``')}" in words
    assert all(f"``{name}``" in (sessions.write.__doc__ or "") for name in FORMATS)


def test_programs_that_use_the_package_are_checked_with_its_types() -> None:
    assert (Path(gleanery.__file__).parent / "py.typed").is_file()


def test_an_unknown_format_is_rejected() -> None:
    for call in (sessions.read, sessions.write):
        with pytest.raises(InvalidSession, match="expected one of playwright"):
            call(SessionState() if call is sessions.write else DOCUMENT, "s3cr3t")  # type: ignore[operator]


def test_the_last_of_equal_cookies_and_entries_is_read() -> None:
    cookies = [{"name": "n", "value": str(n), "domain": "a.example"} for n in range(3)]
    entries = [{"name": "k", "value": str(n)} for n in range(3)]
    origins = [{"origin": "https://a.example", "localStorage": entries}]
    found = sessions.read({"cookies": cookies, "origins": origins})
    assert [cookie.value for cookie in found.state.cookies] == ["2"]
    assert [entry.value for entry in found.state.local_storage] == ["2"]
    assert found.losses == ()


def test_the_last_of_equal_cookies_is_written() -> None:
    state = SessionState((COOKIE, replace(COOKIE, value="new")))
    written = sessions.write(state, "playwright")
    assert [cookie["value"] for cookie in written.content["cookies"]] == ["new"]
    assert written.losses == ()


PREFIXED: list[tuple[dict[str, Any], bool]] = [
    ({"name": "__Secure-a"}, False),
    ({"name": "__SECURE-a"}, False),
    ({"name": "__Secure-a", "secure": True}, True),
    ({"name": "__Host-a", "secure": True}, True),
    ({"name": "__Host-a"}, False),
    ({"name": "__host-a", "secure": True, "path": "/a"}, False),
    ({"name": "__Host-a", "secure": True, "host_only": False}, False),
    ({"name": "", "value": "__Host-a", "secure": True}, False),
    ({"name": "", "value": "__Secure-a=b", "secure": True}, False),
]


@pytest.mark.parametrize(("changes", "is_accepted"), PREFIXED)
def test_a_cookie_that_browsers_reject_is_neither_read_nor_written(
    changes: dict[str, Any], is_accepted: bool
) -> None:
    cookie = replace(COOKIE, **changes)
    written = sessions.write(SessionState((COOKIE, cookie)), "playwright")
    assert len(written.content["cookies"]) == 1 + is_accepted
    assert subjects(written.losses) == ({} if is_accepted else {"cookie": 1})
    [record] = sessions.write(SessionState((COOKIE,)), "playwright").content["cookies"]
    record |= {"name": cookie.name, "value": cookie.value, "domain": cookie.domain}
    record |= {"path": cookie.path, "secure": cookie.secure}
    found = sessions.read({"cookies": [record], "origins": []})
    assert found.state.cookies == ((cookie,) if is_accepted else ())
    assert subjects(found.losses) == ({} if is_accepted else {"cookie": 1})


@pytest.mark.parametrize("order", [1, -1])
def test_cookies_that_a_format_cannot_tell_apart_are_counted(order: int) -> None:
    """The cookie that the format can represent stays, in any order."""
    cookies = (COOKIE, replace(COOKIE, value="partitioned", partition_key=PARTITION))
    chosen = replace(FORMATS["playwright"], carries=frozenset({"host_only"}))
    losses = Losses()
    assert _reduce(SessionState(cookies[::order]), chosen, losses).cookies == (COOKIE,)
    assert subjects(losses.found()) == {"partition_key": 1, "cookie": 1}


@pytest.mark.parametrize("expires", [float("nan"), "s3cr3t", True, [1]])
def test_an_invalid_expiry_is_rejected(expires: object) -> None:
    record = DOCUMENT["cookies"][0] | {"expires": expires}  # type: ignore[operator]
    with pytest.raises(InvalidSession, match=r'^cookies\[0\]: "expires" must be') as caught:
        sessions.read({"cookies": [record], "origins": []})
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("databases", [5, "abc", {"a": 1}])
def test_indexed_db_that_is_no_list_is_rejected(databases: object) -> None:
    origin = {"origin": "https://a.example", "indexedDB": databases}
    with pytest.raises(InvalidSession, match=r"^origins\[0\]: indexedDB: expected an array"):
        sessions.read({"cookies": [], "origins": [origin]})


def test_losses_are_counted_sentences() -> None:
    losses = Losses()
    losses.add("same_site", "SameSite is lost")
    losses.add("same_site", "SameSite is lost")
    losses.add("local_storage", "Local storage is left out", "entry", 2)
    losses.add("cookie", "Nothing", count=0)
    assert [str(loss) for loss in losses.found()] == [
        "SameSite is lost (2 cookies).",
        "Local storage is left out (2 entries).",
    ]
