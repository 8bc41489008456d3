"""An entry restores its version exactly, to the byte, or reports that it is damaged."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.history import entries
from gleanery.service.resources.history.entries import CorruptHistory, Entry, Version
from gleanery.service.resources.outputs import batches, rows
from gleanery.service.resources.outputs.batches import prepare
from gleanery.service.resources.outputs.elements import IdentityHasher, PreparedOutput, Rules
from gleanery.service.resources.outputs.models import Output
from gleanery.service.resources.outputs.rows import OutputRow
from gleanery.service.storage import paging
from gleanery.service.storage.group_lock import IDENTITY_FORMAT
from tests.values.test_parsing import JSON_VALUES

SEQ = 1_700_000_000_123_456
VERSION = Version(SEQ, SEQ + 5, SEQ + 9, 1_700_000_000 * timestamps.SECOND, True)
DEEP = json_text.decode(b'{"a":' * 99 + b"1" + b"}" * 99)


DATA = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON_VALUES, max_size=4)
NOTATIONS = b'{"a":1.0,"b":1E5,"c":-0.0,"d":12345678901234567890.0,"e":"\\u00e9\\/","f":1e-300}'
FEW = settings(max_examples=50, deadline=None)


def item(data: Any, approved: bool, tags: Any = None, url: str = "https://shop.example") -> bytes:
    """The item of an output, as it is stored."""
    batch = batches.from_outputs([Output("job", url, data, "key", tags, None)])
    prepared = prepare(
        batch, Rules(), IdentityHasher(1, "group", None, IDENTITY_FORMAT), parse_all=True
    )
    [output] = prepared.outputs
    assert isinstance(output, PreparedOutput)
    row = OutputRow(output.identity, b"", 7, b"", SEQ, approved, SEQ - 9, 1, None)
    suffix = paging.mutable_suffix(VERSION.last_seq, VERSION.last_scraped_at, approved)
    return rows._render(row, output, suffix)


def as_before(text: bytes) -> bytes:
    """The item as an earlier program stored it: the hash stands before the date of creation."""
    at = text.index(b',"create_date"')
    hash_at = text.rindex(b',"value_hash"')
    end = hash_at + len(b',"value_hash":"') + 64 + 1
    return text[:at] + text[hash_at:end] + text[at:hash_at] + text[end:]


def restored(entry: Entry, newer: bytes | None, newer_approved: bool = False) -> bytes:
    """The item that an entry restores after it was stored in a segment."""
    [decoded] = entries.decode(entries.encode(entry))
    assert decoded == entry
    text = None if newer is None else entries.split(newer, newer_approved)[0]
    return decoded.render(decoded.restore(text))


@pytest.mark.thorough
@FEW
@given(DATA, DATA, JSON_VALUES, st.booleans(), st.booleans())
@example(json_text.decode(NOTATIONS), {"a": 1}, 1.0, True, True)
@example({"n": 10**400, "f": 1e300, "s": "\U0001f600\0"}, {}, None, True, False)
@example(DEEP, {"a": 1}, None, True, True)
@example({}, {"large": "x" * 200_000}, None, False, False)
@example({"large": [*range(50_000)]}, {"large": [*range(49_990)]}, None, False, True)
def test_a_version_is_restored_to_the_byte(
    data: Any, newer_data: Any, tag: Any, approved: bool, newer_approved: bool
) -> None:
    version = VERSION._replace(approved=approved)
    for old in (item(data, approved, {"a": tag}), as_before(item(data, approved, {"a": tag}))):
        newer = item(newer_data, newer_approved, url="https://other.example")
        entry = entries.create(version, old, newer, newer_approved)
        assert restored(entry, newer, newer_approved) == old
        deleted = entries.create(version._replace(is_deleted=True), old, None, False)
        assert restored(deleted, None) == old


@pytest.mark.thorough
def test_a_small_change_of_a_large_output_takes_few_bytes() -> None:
    text = [f"{number * 7919 % 100_003:x}" for number in range(200_000)]
    old = item({"text": text, "price": 1}, True)
    newer = item({"text": text, "price": 2}, False)
    entry = entries.create(VERSION, old, newer, False)
    assert len(old) > 10**6
    assert len(entry.delta) < 1000
    assert restored(entry, newer) == old


def test_a_small_change_of_a_small_output_takes_few_bytes() -> None:
    old, newer = ({"title": "Blue mug " * 20, "price": price, "stock": 3} for price in (1, 2))
    entry = entries.create(VERSION, item(old, True), item(newer, False), False)
    assert len(entries.encode(entry)) < 80


def test_many_entries_follow_each_other() -> None:
    shown = [item({"price": price}, True) for price in range(30)]
    segment = b""
    for number, (old, newer) in enumerate(pairwise(shown)):
        version = VERSION._replace(seq=SEQ + number)
        segment = entries.encode(entries.create(version, old, newer, True)) + segment
    text = entries.split(shown[-1], True)[0]
    for number, entry in zip(range(28, -1, -1), entries.decode(segment), strict=True):
        assert entry.version.seq == SEQ + number
        text = entry.restore(text)
        assert entry.render(text) == shown[number]


@pytest.mark.thorough
@FEW
@given(st.data())
def test_damage_is_found(data: st.DataObject) -> None:
    """A changed byte of the delta does not restore another text."""
    old, newer = (item({"title": "Blue mug", "price": price}, True) for price in (1, 2))
    entry = entries.create(VERSION, old, newer, True)
    encoded = bytearray(entries.encode(entry))
    at = data.draw(st.integers(len(encoded) - len(entry.delta), len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    try:
        [found] = entries.decode(bytes(encoded))
        text = found.restore(entries.split(newer, True)[0])
    except CorruptHistory:
        return
    assert text == entries.split(old, True)[0]


@FEW
@given(st.binary(max_size=200))
def test_other_bytes_are_no_history(segment: bytes) -> None:
    try:
        for entry in entries.decode(segment):
            entry.restore(b"x" * 20)
    except CorruptHistory:
        pass


@pytest.mark.parametrize("missing", [1, 30, 45])
def test_a_segment_that_ends_too_early_is_damaged(missing: int) -> None:
    old, newer = (item({"price": price}, True) for price in (1, 2))
    segment = entries.encode(entries.create(VERSION, old, newer, True))
    with pytest.raises(CorruptHistory):
        [*entries.decode(segment[: len(segment) - missing])]


def test_another_newer_version_does_not_restore() -> None:
    titles = ("Blue mug of porcelain", "Blue mug of porcelain, large", "Wool blanket, checked, 2 m")
    old, newer, other = (item({"title": title}, True) for title in titles)
    entry = entries.create(VERSION, old, newer, True)
    with pytest.raises(CorruptHistory):
        entry.restore(entries.split(other, True)[0])


@given(
    st.integers(0, 2**52),
    st.integers(0, 2**50),
    st.integers(0, 2**50),
    st.integers(0, 2**52),
    st.tuples(st.booleans(), st.booleans()),
    st.binary(max_size=300),
)
@FEW
def test_every_header_is_restored(
    seq: int, until_last: int, until_replaced: int, scraped_at: int, flags: Any, delta: bytes
) -> None:
    last_seq = seq + until_last
    scraped_at -= scraped_at % timestamps.SECOND
    version = Version(seq, last_seq, last_seq + until_replaced, scraped_at, *flags)
    entry = Entry(version, True, delta)
    assert [*entries.decode(entries.encode(entry) * 2)] == [entry, entry]
