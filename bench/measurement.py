"""Lets contestants take turns, and notes each figure, or why there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping

from bench.load_generator import ROUNDS, NotMeasured
from bench.results import Figure, Target

Measure = Callable[[], float]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Turns:
    """Contestants that meet the same noise, because they take turns; the best round counts."""

    def __init__(self, contestants: Mapping[str, Measure] | None = None) -> None:
        self._contestants = dict(contestants or {})
        self.best: dict[str, float] = {}
        self.gaps: dict[str, str] = {}

    def add(self, name: str, start: Callable[[], Measure]) -> None:
        """One that has to be started first, which may fail."""
        try:
            self._contestants[name] = start()
        except (NotMeasured, OSError) as why:
            self._leave_out(name, why)

    def run(self) -> Turns:
        for _ in range(ROUNDS):
            for name, measure in list(self._contestants.items()):
                try:
                    self.best[name] = max(self.best.get(name, 0.0), measure())
                except NotMeasured as why:
                    self._leave_out(name, why)
        say(f"  {self.words(*self.best)}")
        return self

    def _leave_out(self, name: str, why: Exception) -> None:
        say(f"{name}: not measured: {why}")
        self.gaps[name] = str(why)
        self.best.pop(name, None)
        self._contestants.pop(name, None)

    def words(self, *names: str) -> str:
        return ", ".join(f"{name} {self.best[name]:,.0f}/s" for name in names)

    def missing(self, names: Iterable[str]) -> str:
        """Why some of these were not measured, each reason once; empty if all were."""
        of: dict[str, list[str]] = {}
        for name in names:
            if name in self.gaps:
                of.setdefault(self.gaps[name], []).append(name)
        return "; ".join(why if all_of[1:] else f"{all_of[0]}: {why}" for why, all_of in of.items())


class Notes:
    """All that was found in a run."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []
        self.speeds: dict[str, dict[str, float]] = {}

    def figure(self, work: str, target: Target | None, value: float | None, words: str) -> None:
        figure = Figure(work, target, value, words)
        say("  ".join(figure.cells))
        self.figures.append(figure)

    def ratio(
        self, work: str, target: Target | None, turns: Turns, one: str, two: str, more: str = ""
    ) -> None:
        """How many times as fast as the other the one is."""
        if missing := turns.missing((one, two)):
            self.figure(work, target, None, missing)
        else:
            value = turns.best[one] / turns.best[two]
            self.figure(work, target, value, turns.words(one, two) + more)
