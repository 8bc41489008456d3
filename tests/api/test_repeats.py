"""Requests that differ from an earlier one at most in their cursor."""

from __future__ import annotations

from typing import Any

import pytest

from gleanery.service.api.binding import BoundQuery
from gleanery.service.api.context import BoundRequest, RequestMemo, memo_of
from gleanery.service.http import HeaderBlock

OPERATION: Any = None
PATH = b"/v1/outputs/shop"


def stored(query: bytes, cursor: int = 5) -> RequestMemo:
    memo = RequestMemo()
    memo.store(PATH, query, BoundRequest(OPERATION, {}, BoundQuery(None, (), cursor)))
    return memo


@pytest.mark.parametrize("before", [b"", b"limit=1&", b"url=a?cursor=3&"])
@pytest.mark.parametrize("after", [b"", b"&limit=1", b"&url=cursor=3"])
def test_another_cursor_is_found(before: bytes, after: bytes) -> None:
    memo = stored(before + b"cursor=17" + after)
    assert memo.find_cursor(PATH, before + b"cursor=17" + after) == 5  # as it was bound
    assert memo.find_cursor(PATH, before + b"cursor=18" + after) == 18
    assert memo.find_cursor(PATH, before + b"cursor=999999999999999999" + after) == 10**18 - 1


@pytest.mark.parametrize(
    "query",
    [
        b"",
        b"limit=1",
        b"limit=1&cursor=",
        b"limit=1&cursor=0",
        b"limit=1&cursor=01",
        b"limit=1&cursor=-1",
        b"limit=1&cursor=1.0",
        b"limit=1&cursor=1%30",
        b"limit=1&cursor=\xb2",
        b"limit=1&cursor=1000000000000000000",
        b"limit=1&cursor=1&cursor=2",
        b"limit=2&cursor=17",
        b"cursor=17&limit=1",
        b"limit=1&cursor=17&",
    ],
)
def test_any_other_query_is_bound_anew(query: bytes) -> None:
    assert stored(b"limit=1&cursor=17").find_cursor(PATH, query) is None


def test_another_path_is_bound_anew() -> None:
    memo = stored(b"cursor=17")
    assert memo.find_cursor(PATH + b"2", b"cursor=17") is None


@pytest.mark.parametrize("query", [b"", b"limit=1", b"xcursor=17", b"url=a?cursor=3"])
def test_a_query_without_a_cursor_is_repeated_as_it_is(query: bytes) -> None:
    memo = stored(query)
    assert memo.find_cursor(PATH, query) == 5
    assert memo.find_cursor(PATH, query.replace(b"17", b"18") + b"&x") is None
    assert memo.find_cursor(PATH, query.replace(b"3", b"4").replace(b"17", b"18") + b"1") is None


def test_nothing_is_found_before_something_is_stored() -> None:
    assert RequestMemo().find_cursor(b"", b"") is None


def test_a_header_block_has_one_memo() -> None:
    block = HeaderBlock({})
    assert memo_of(block) is memo_of(block)
