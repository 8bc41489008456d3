"""Hypothesis strategies of session state with unusual names, values, paths and hosts.

Each record contains a mark, so that it is found again whatever else has changed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import strategies as st

from gleanery.sessions import Cookie, PartitionKey, SessionState, StorageEntry
from gleanery.sessions.model import MAX_EXPIRES

MAX_RECORDS = 3
LARGE = 4096
HOSTS = (
    "www.shop.example",
    "shop.example",
    "xn--bcher-kva.example",
    "a_b.example",
    "localhost",
    "intranet",
    "127.0.0.1",
    "[::1]",
    "[2001:db8::1]",
    "256.1.1.1",
)
URLS = (
    "https://www.shop.example/a/b",
    "http://www.shop.example/",
    "http://localhost:8080/a",
    "https://[::1]/a",
    "http://127.0.0.1:8000/",
)
_SITES = ("https://shop.example", "http://localhost", "https://[::1]", "https://other.example")
_PORTS = ("", ":8080", ":8443")
_PATHS = ("/", "/a", "/a/", "/a b", "/a;b", "/a,b", '/"', "/é", "/\t", "/?a#b", "a", "/%41", "")
_PIECES = (
    *"\t\"'\\;,=% \x0b\x0c\x1c\x1f\x7f\x85\xa0\u2028\ufeff&$`!#|<>{}[]()+:^~é😀𝒳",
    *("\\u0041", "\\n", "%41", "%0A", "&amp;", "$'", "'\\''", '""', "a=b", "; Secure", ";b=c"),
    *("$(id)", "`id`", '^"', "%PATH%", "#HttpOnly_", "TRUE", "null", "-H", " ", "e\u0301", "ß"),
)
_MARK = re.compile(r"Zq(\d)qZ")
_NAME_PREFIXES = ("", "", "", "__Host-", "__Secure-", "__host-", "$")

_ANY_CHARACTER = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n")
_ANY_STORED_CHARACTER = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_TEXTS = (
    st.just("")
    | st.text("abcXYZ019-_.", max_size=8)
    | st.lists(st.sampled_from(_PIECES), max_size=4).map("".join)
    | st.text(_ANY_CHARACTER, max_size=8)
    | st.sampled_from(("x" * LARGE, "é" * (LARGE // 2), '"' * LARGE))
)
_STORED_TEXTS = _TEXTS | st.text(_ANY_STORED_CHARACTER, max_size=8) | st.just("\r\n")

PARTITIONS = st.builds(PartitionKey, st.sampled_from(_SITES), st.booleans())
ORIGINS = st.builds(
    "{}://{}{}".format,
    st.sampled_from(("http", "https")),
    st.sampled_from(HOSTS),
    st.sampled_from(_PORTS),
)


def mark(number: int) -> str:
    """Returns the text that is in the name or the value of a record, and of no other."""
    return f"Zq{number}qZ"


def number_of(*texts: str) -> int | None:
    """Returns the number of the mark in one of these texts."""
    found = _MARK.search("\0".join(texts))
    return int(found[1]) if found else None


@st.composite
def marked(draw: st.DrawFn, texts: st.SearchStrategy[str], number: int) -> str:
    """A text with the mark of this number in it."""
    text = draw(texts)
    position = draw(st.sampled_from((0, len(text) // 2, len(text))))
    return text[:position] + mark(number) + text[position:]


@st.composite
def cookies(draw: st.DrawFn, number: int) -> Cookie:
    """A cookie with this mark in its name or in its value."""
    is_named = draw(st.booleans())
    name = draw(st.sampled_from(_NAME_PREFIXES)) + draw(st.sampled_from(("n", "m")) | _TEXTS)
    return Cookie(
        name=draw(marked(_TEXTS, number)) if is_named else name,
        value=draw(_TEXTS if is_named else marked(_TEXTS, number)),
        host=draw(st.sampled_from(HOSTS)),
        host_only=draw(st.booleans()),
        path=draw(st.just("/") | st.sampled_from(_PATHS)),
        expires=draw(st.none() | st.integers(0, MAX_EXPIRES) | st.sampled_from((0, MAX_EXPIRES))),
        secure=draw(st.booleans()),
        http_only=draw(st.booleans()),
        same_site=draw(st.sampled_from((None, "Strict", "Lax", "None"))),
        partition_key=draw(st.none() | PARTITIONS),
    )


@st.composite
def entries(draw: st.DrawFn, number: int) -> StorageEntry:
    """A local-storage entry with this mark in its key or in its value."""
    is_named = draw(st.booleans())
    key, value = marked(_STORED_TEXTS, number), _STORED_TEXTS
    return StorageEntry(
        draw(ORIGINS), draw(key if is_named else value), draw(value if is_named else key)
    )


@st.composite
def states(draw: st.DrawFn) -> SessionState:
    """Cookies and entries, each with the mark of its position, all of different identity."""
    numbers = range(draw(st.integers(0, MAX_RECORDS)))
    found = [draw(cookies(number)) for number in numbers]
    if found and mark(0) in found[0].value and draw(st.booleans()):
        # another cookie that some formats cannot tell from the first one
        twin = replace(found[0], value=mark(MAX_RECORDS), host_only=draw(st.booleans()))
        found.append(replace(twin, partition_key=draw(st.none() | PARTITIONS)))
    stored = [draw(entries(number)) for number in range(draw(st.integers(0, MAX_RECORDS)))]
    return SessionState(
        tuple({cookie.identity: cookie for cookie in found}.values()),
        tuple({entry.identity: entry for entry in stored}.values()),
    )


@st.composite
def damaged_texts(draw: st.DrawFn, text: str, secret: str) -> str:
    """The text with some pieces moved, repeated, removed or replaced."""
    garbage = st.text(max_size=8) | st.sampled_from(("\0", "\ud800", f"{secret}\n", "9" * 5000))
    for _ in range(draw(st.integers(1, 4))):
        start, stop = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        stop = min(stop, start + 60)
        new = draw(st.just(text[start:stop] * 2) | garbage | st.sampled_from("\t\"'\\;=\n\r#{[,: "))
        text = text[:start] + new + text[stop:]
    return text
