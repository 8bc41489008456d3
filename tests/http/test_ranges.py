"""Range and conditional requests."""

from __future__ import annotations

import pytest

from gleanery.service.http import PreconditionFailed, RangeNotSatisfiable
from gleanery.service.http.content import ContentRange, requested_range
from gleanery.service.http.request import check_precondition, is_not_modified

ETAG = b'"abc"'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"bytes=0-9", (0, 10)),
        (b"bytes=5-", (5, 100)),
        (b"bytes=-5", (95, 100)),
        (b"bytes=-500", (0, 100)),
        (b"bytes=90-500", (90, 100)),
        (b"bytes = 0 - 9", (0, 10)),
        (b"BYTES=0-9", (0, 10)),
        (b"Bytes=-5", (95, 100)),
    ],
)
def test_a_range_is_found(value: bytes, expected: tuple[int, int]) -> None:
    found = requested_range({b"range": value}, ETAG, 100)
    assert (found.start, found.stop) == expected
    assert found.is_partial


@pytest.mark.parametrize("value", [b"", b"bytes=-", b"bytes=9-5", b"bytes=0-1,3-4", b"lines=0-1"])
def test_the_whole_content_is_sent_for_anything_else(value: bytes) -> None:
    expected = ContentRange(0, 100, 100, is_partial=False)
    assert requested_range({b"range": value}, ETAG, 100) == expected


@pytest.mark.parametrize("value", [b"bytes=100-", b"bytes=100-200", b"bytes=-0"])
def test_a_range_after_the_end_is_not_satisfiable(value: bytes) -> None:
    with pytest.raises(RangeNotSatisfiable) as error:
        requested_range({b"range": value}, ETAG, 100)
    assert error.value.size == 100


def test_the_last_bytes_of_an_empty_content_are_the_whole() -> None:
    assert not requested_range({b"range": b"bytes=-5"}, ETAG, 0).is_partial


def test_a_range_holds_only_for_the_named_content() -> None:
    headers = {b"range": b"bytes=0-9", b"if-range": ETAG}
    assert requested_range(headers, ETAG, 100).is_partial
    assert not requested_range(headers, b'"other"', 100).is_partial


def test_content_range_names_the_last_byte() -> None:
    assert ContentRange(0, 10, 100).header == b"bytes 0-9/100"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(ETAG, True), (b'W/"abc"', True), (b'"x", "abc"', True), (b"*", True), (b'"x"', False)],
)
def test_a_content_that_the_client_has_is_not_modified(value: bytes, expected: bool) -> None:
    assert is_not_modified({b"if-none-match": value}, ETAG) is expected
    assert not is_not_modified({}, ETAG)


@pytest.mark.parametrize("value", [ETAG, b"*", b'"x", "abc"', b' "abc" ,"y"'])
def test_a_matching_precondition_holds(value: bytes) -> None:
    check_precondition({b"if-match": value}, ETAG)


@pytest.mark.parametrize("value", [b"", b'"x"', b'W/"abc"', b"abc", b'"x", W/"abc"', b'"ab'])
def test_a_precondition_fails_for_another_or_a_weak_etag(value: bytes) -> None:
    with pytest.raises(PreconditionFailed):
        check_precondition({b"if-match": value}, ETAG)


def test_no_precondition_holds() -> None:
    check_precondition({}, ETAG)


def test_a_weak_etag_never_selects_a_range() -> None:
    headers = {b"range": b"bytes=0-9", b"if-range": b"W/" + ETAG}
    assert not requested_range(headers, ETAG, 100).is_partial
