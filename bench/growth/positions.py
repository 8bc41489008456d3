"""Positions in the groups of a filled database, as cursors."""

from __future__ import annotations

import random
from collections.abc import Iterator

from bench.growth import dataset
from bench.growth.engines import Engine, open_engine
from bench.growth.fill import Filled

PAGE = 10
_FROM_START = "SELECT seq FROM outputs WHERE group_id = $1 ORDER BY seq LIMIT 1 OFFSET $2"
_FROM_END = "SELECT seq FROM outputs WHERE group_id = $1 ORDER BY seq DESC LIMIT 1 OFFSET $2"
_SPREAD = """
SELECT seq FROM (
    SELECT seq, row_number() OVER (ORDER BY seq) AS number FROM outputs WHERE group_id = $1
) AS numbered WHERE number % $2 = $3 AND number < $4
"""
_PER_GROUP = 10

Cursors = list[tuple[int, int]]
"""Groups, each with a position in it."""


class Positions:
    """Cursors in every group, each followed by a full page."""

    def __init__(self, filled: Filled) -> None:
        self._generator = random.Random(1)
        with open_engine(filled.deployment) as engine:
            ids = {row["name"]: row["id"] for row in engine.fetch("SELECT id, name FROM groups")}
            self._group_ids = [ids[dataset.group_name(n)] for n in range(dataset.GROUPS)]
            size = filled.group_size
            interval = max(size // dataset.MATCHES, 2)
            groups = range(dataset.GROUPS)
            self.random = [*self._spread(engine, size - PAGE)]
            """About ten in each group, from a random first one."""
            self.early = [self._early(engine, group, max(interval // 2 - 1, 1)) for group in groups]
            """Before the first of the outputs with rare values."""
            self.last = [self._cursor(engine, _FROM_END, group, PAGE) for group in groups]
        self.first = [(group, 0) for group in range(dataset.GROUPS)]

    def _spread(self, engine: Engine, outputs: int) -> Iterator[tuple[int, int]]:
        distance = max(outputs // _PER_GROUP, 1)
        for group, group_id in enumerate(self._group_ids):
            first = self._generator.randrange(distance)
            for row in engine.fetch(_SPREAD, group_id, distance, first, outputs):
                yield group, row["seq"]

    def _early(self, engine: Engine, group: int, outputs: int) -> tuple[int, int]:
        return self._cursor(engine, _FROM_START, group, self._generator.randrange(outputs))

    def _cursor(self, engine: Engine, sql: str, group: int, offset: int) -> tuple[int, int]:
        [row] = engine.fetch(sql, self._group_ids[group], offset)
        return group, row["seq"]
