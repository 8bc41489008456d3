"""The chain of an output's versions where it has a gap or is damaged."""

from __future__ import annotations

import pytest

from gleanery.service.resources.history import entries
from gleanery.service.resources.history.entries import Version
from gleanery.service.resources.history.reading import (
    NOT_REPLACED,
    Chain,
    ChainEnd,
    Limits,
    VersionSearch,
    keep_whole,
)
from gleanery.service.storage.paging import mutable_suffix

LIMITS = Limits(keep_versions=20, keep_days=90, now=0)


def item(number: int) -> bytes:
    start = b'{"data":{"n":%d},"files":[],"value_hash":"%b"' % (number, b"0" * 64)
    return start + mutable_suffix(0, 0, False)


def search(position: int, *segments: bytes) -> VersionSearch:
    """Searches the chain: created at 10, replaced at 20, and sent again at 40 after a restore."""
    present = keep_whole(Version(40, 40, NOT_REPLACED, 0, False), item(2), created_seq=10)
    chain, found = Chain(present, LIMITS), VersionSearch(position)
    found.visit(present)
    chain.restore(segments, found)
    if not found.is_done:
        found.finish(ChainEnd(chain.expired, None))
    return found


FIRST = entries.encode(entries.create(Version(10, 10, 20, 0, False), item(1), item(2), False))


@pytest.mark.parametrize(("position", "seq"), [(40, 40), (39, 40), (20, 40), (19, 10), (10, 10)])
def test_a_position_between_two_versions_belongs_to_the_newer_one(position: int, seq: int) -> None:
    found = search(position, FIRST).found
    assert found is not None
    assert found.version.seq == seq


def test_before_the_first_version_the_output_did_not_exist() -> None:
    before = search(9, FIRST)
    assert (before.found, before.is_expired) == (None, False)


@pytest.mark.parametrize("damaged", [FIRST[:20], FIRST[:-1], FIRST[:-1] + b"\0", b"\0" * 60])
def test_versions_after_a_damaged_segment_are_not_kept(damaged: bytes) -> None:
    present = search(40, damaged).found
    assert present is not None
    earlier = search(15, damaged)
    assert (earlier.found, earlier.is_expired) == (None, True)
