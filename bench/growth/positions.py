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
_PER_GROUP = 2

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
            self.random = [*self._sample(engine, size - PAGE - 1, _PER_GROUP)]
            self.early = [*self._sample(engine, max(interval // 2 - 1, 1), 1)]
            """Before the first of the outputs with rare values."""
            groups = range(dataset.GROUPS)
            self.last = [self._cursor(engine, _FROM_END, group, PAGE) for group in groups]
        self.first = [(group, 0) for group in range(dataset.GROUPS)]

    def _sample(self, engine: Engine, outputs: int, count: int) -> Iterator[tuple[int, int]]:
        for group in range(dataset.GROUPS):
            for _ in range(count):
                offset = self._generator.randrange(outputs)
                yield self._cursor(engine, _FROM_START, group, offset)

    def _cursor(self, engine: Engine, sql: str, group: int, offset: int) -> tuple[int, int]:
        [row] = engine.fetch(sql, self._group_ids[group], offset)
        return group, row["seq"]
