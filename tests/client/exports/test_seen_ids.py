"""The set of ids: compared with Python's set, and its memory."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleanery.tables import export
from gleanery.tables.export import SeenIds

_IDS = st.one_of(st.integers(0, 50), st.integers(0, 5000), st.integers(0, 2**63 - 1))


@pytest.mark.thorough
@given(st.lists(st.one_of(st.lists(_IDS), st.lists(_IDS).map(sorted))))
def test_it_knows_what_was_added(pages: list[list[int]]) -> None:
    _compare_with_a_set(pages)


def test_it_knows_many_ids_in_any_order() -> None:
    numbers = random.Random(1)
    ids = [
        start + numbers.randrange(size)
        for start, size in ((0, 6000), (2**20, 2**18), (2**40, 2**50))
        for _ in range(3000)
    ]
    for order in (reversed, lambda ids: numbers.sample(ids, len(ids))):
        ordered = [*order(ids)]
        _compare_with_a_set([ordered[at : at + 700] for at in range(0, len(ordered), 700)])


def _compare_with_a_set(pages: list[list[int]]) -> None:
    seen, model = SeenIds(), set[int]()
    for number, page in enumerate(pages):
        expected = []
        for id_ in page:
            expected.append(id_ not in model)
            model.add(id_)
        if all(expected) and number % 3:
            seen.add_new(page)
        else:
            assert (seen.add(page) or [True] * len(page)) == expected


@pytest.mark.extended
@pytest.mark.parametrize(
    ("step", "bytes_per_id"), [(1, 0.1), (60, 3), (2**40, 9), (-1, 1), (-60, 3), (-(2**40), 9)]
)
def test_it_takes_little_memory(step: int, bytes_per_id: float) -> None:
    count = 100_000
    tracemalloc.start()
    try:
        seen = SeenIds()
        for at in range(0, count, 1000):
            seen.add([2**62 + id_ * step for id_ in range(at, at + 1000)])
        own = [tracemalloc.Filter(True, file) for file in (__file__, export.__file__)]
        traces = tracemalloc.take_snapshot().filter_traces(own)  # not those of other threads
        assert sum(each.size for each in traces.statistics("filename")) < (
            20_000 + bytes_per_id * count
        )
    finally:
        tracemalloc.stop()
