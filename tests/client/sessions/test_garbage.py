"""Documents that are no session: one clear error, which repeats no part of the document."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from fuzz.session_documents import HOST, READERS, SECRET, STATE, URL, check
from gleanery import sessions
from gleanery.sessions import FORMATS, Cookie, InvalidSession, SessionState
from tests.support.session_strategies import damaged_texts

EXAMPLES = int(os.environ.get("GLEANERY_FUZZ_EXAMPLES", "15"))
FEW = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
KIB = 1024
SIZE = 32 * KIB
CPU_SECONDS = 5  # reading this size takes a small part of a second, unless the time is quadratic

DOCUMENTS = {name: sessions.write(STATE, name, URL) for name in FORMATS}
PLACEHOLDERS = SessionState((Cookie("NAME", "VALUE", HOST, path="/PATH", expires=1_999_999_999),))
TEMPLATES = {name: sessions.write(PLACEHOLDERS, name, f"{URL[:-2]}/PATH").text for name in FORMATS}

NUMBERS = (
    st.sampled_from((float("nan"), float("inf"), -float("inf"), -0.0, 1e308, 10**400, -(10**400)))
    | st.integers()
    | st.floats()
)
TEXTS = st.text(max_size=8) | st.sampled_from(
    (SECRET, "", "\0", "\ud800", "\udc00\ud800", f"{SECRET}\n", "9" * 5000, f"{SECRET}." * 500)
)
KEYS = TEXTS | st.sampled_from(("cookies", "origins", "name", "value", "domain", "log", "entries"))
GARBAGE = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def is_json(name: str) -> bool:
    return not isinstance(DOCUMENTS[name].content, str)


@st.composite
def damaged(draw: st.DrawFn, value: Any) -> Any:
    """The JSON value with one part of it replaced, removed or added."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        return value | {key: draw(damaged(value[key]))}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        position = draw(st.integers(0, len(value) - 1))
        return [*value[:position], draw(damaged(value[position])), *value[position + 1 :]]
    if isinstance(value, dict) and value:
        key = draw(st.sampled_from(sorted(value)))
        return {name: value[name] for name in value if name != key} | {draw(KEYS): draw(GARBAGE)}
    return draw(GARBAGE)


@pytest.mark.thorough
@pytest.mark.parametrize("name", READERS)
@FEW
@given(st.data())
def test_a_damaged_document_gives_one_clear_error(name: str, data: st.DataObject) -> None:
    written = DOCUMENTS.get(name) or data.draw(st.sampled_from(tuple(DOCUMENTS.values())))
    text = data.draw(damaged_texts(written.text, SECRET))
    check(name, text)
    check(name, text.encode(data.draw(st.sampled_from(("utf-8", "utf-16"))), "replace"))
    if not isinstance(written.content, str):
        value = data.draw(damaged(written.content))
        check(name, value)
        check(name, json.dumps(value))


@FEW
@given(GARBAGE, st.text() | TEXTS, st.binary())
def test_garbage_gives_one_clear_error(value: Any, text: str, data: bytes) -> None:
    for name in READERS:
        note(name)
        for content in (value, json.dumps(value), text, data, data + SECRET.encode()):
            check(name, content)


@pytest.mark.parametrize(
    "content",
    [
        *("[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000),
        *("NaN", "[Infinity]", "1e400", "9" * 5000, f"[{'9' * 5000}]", "null", "0", '""', "[]"),
        *("{}", '{"cookies":NaN,"origins":[]}', '"\\ud800"', "\ud800", "\0", f"{SECRET}=\0"),
        *(b"\xff\xfe", b"\xfe\xff\xd8\x00", b"\xff\xfe\0\0{\0\0\0", b"\x80", b"\0\0\0{"),
        *(b"PK\x03\x04" + SECRET.encode(), b"\x1f\x8b" + SECRET.encode()),
    ],
    ids=lambda content: repr(content[:12]),
)
def test_an_extreme_document_gives_one_clear_error(content: str | bytes) -> None:
    for name in READERS:
        check(name, content)


@pytest.mark.parametrize("name", FORMATS)
def test_nul_is_rejected(name: str) -> None:
    nul = "\\u0000" if is_json(name) else "\0"
    for place in ("NAME", "VALUE"):
        content = TEMPLATES[name].replace(place, f"{SECRET}{nul}")
        with pytest.raises(InvalidSession, match="NUL"):
            sessions.read(content, name, URL)
        check(name, content)


PATTERNS = (
    *" \t\"'\\;,\n#[%9é",
    *("a=", '"\\', "'\\''", " -H ", "a\n", "a.", "é.", "Set-Cookie: a=b\n", "a=b; ", '{"a":'),
)


@pytest.mark.extended
@pytest.mark.thorough
@pytest.mark.parametrize("name", FORMATS)
def test_the_time_to_read_grows_with_the_size(name: str) -> None:
    """Repeats each pattern as the document, and in its parts."""
    for pattern in PATTERNS:
        large = pattern * (SIZE // len(pattern))
        inside = json.dumps(large)[1:-1] if is_json(name) else large
        filled = TEMPLATES[name].replace("NAME", inside).replace("VALUE", inside)
        for content in (large, filled, filled.replace(HOST, inside)):
            start = time.process_time()
            with suppress(InvalidSession):
                sessions.read(content, name, URL)
            assert time.process_time() - start < CPU_SECONDS, repr(pattern)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["netscape", "cookie", "set-cookie", "har"])
def test_a_document_of_too_many_lines_is_rejected(name: str) -> None:
    """A line of two bytes costs as much as a whole cookie."""
    lines = "a\n" * 100_001
    header = {"name": "Set-Cookie", "value": lines}
    entry = {"request": {"url": URL, "headers": []}, "response": {"headers": [header]}}
    content = {"log": {"entries": [entry]}} if name == "har" else lines
    with pytest.raises(InvalidSession, match="more than 100000"):
        sessions.read(content, name, URL)


@pytest.mark.extended
def test_a_document_of_too_many_cookies_is_rejected() -> None:
    """A cookie of three bytes in a Cookie header costs as much as a whole line."""
    header = ";".join(f"{number:x}=" for number in range(50_001))
    requests = [
        {"request": {"url": URL, "headers": [{"name": "Cookie", "value": value}]}}
        for value in (header, header.replace("=", "x="), "a=1")
    ]
    cookie = 'New-Object System.Net.Cookie("a", "b", "/", "c.example")'
    for content, name in (
        (f"{header};{header}", "cookie"),
        (f"curl {URL} -b '{header}';" * 2, "curl"),
        ("curl x;" * 100_001, "curl"),
        (f"Invoke-WebRequest {cookie * 100_001}", "curl"),
        ({"log": {"entries": requests}}, "har"),
    ):
        with pytest.raises(InvalidSession, match="read less at a time"):
            sessions.read(content, name, URL)
