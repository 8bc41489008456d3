"""The set of the outputs that an export has sent behaves like a set, in little memory."""

from __future__ import annotations

import random
import sys

import pytest

from gleanery.service.resources.exports.snapshots import OutputIds

pytestmark = pytest.mark.thorough

BLOCK = 65_536


def batches(seed: int) -> list[list[int]]:
    """Batches of new ids: consecutive ones of all lengths, also across blocks, and single ones."""
    generator = random.Random(seed)
    unused = [*range(1, 4 * BLOCK)]
    cuts = sorted(generator.sample(range(len(unused)), 300))
    runs = [unused[start:stop] for start, stop in zip([0, *cuts], [*cuts, None], strict=True)]
    found = [run for run in runs if run and generator.random() < 0.7]
    for run in found[::3]:
        generator.shuffle(run)
    single = [[BLOCK * generator.randrange(10, 10_000) + n] for n in range(500)]
    return generator.sample(found + single, len(found) + len(single))


@pytest.mark.parametrize("seed", range(3))
def test_the_set_has_exactly_the_ids_that_were_added(seed: int) -> None:
    ids, expected = OutputIds(), set[int]()
    for batch in batches(seed):
        ids.add_all(batch)
        expected.update(batch)
    generator = random.Random(seed)
    for id_ in generator.sample([*expected], 2000):
        assert not ids.add(id_)
    for id_ in generator.sample([*set(range(1, 4 * BLOCK)) - expected], 2000):
        assert ids.add(id_)
        assert not ids.add(id_)


def test_a_million_ids_need_one_bit_each() -> None:
    ids = OutputIds()
    for start in range(1, 1_000_000, 1000):
        ids.add_all(range(start, start + 1000))
    assert sum(map(sys.getsizeof, ids._blocks.values())) < 140_000
