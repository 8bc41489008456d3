"""Comparison of candidates in alternating rounds, and the report that collects the results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping

from bench.load_generator import ROUNDS, NotMeasured
from bench.results import Result, Target

OF_BASELINE = " of the baseline"
"""Ends the names of candidates that measure the baseline."""

MeasureRate = Callable[[], float]
"""One round of measurement. It returns requests or outputs per second."""


def print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Comparison:
    """Measures candidates in alternating rounds, so that noise affects all of them equally.

    Every second round has the reverse order: what a candidate leaves to the disk slows down the
    next one. The best round of each candidate counts.
    """

    def __init__(self, candidates: Mapping[str, MeasureRate] | None = None) -> None:
        self._candidates = dict(candidates or {})
        self.best: dict[str, float] = {}
        self.failures: dict[str, str] = {}

    def add(self, name: str, prepare: Callable[[], MeasureRate]) -> None:
        """Add a candidate whose preparation can fail."""
        try:
            self._candidates[name] = prepare()
        except (NotMeasured, OSError) as error:
            self._remove(name, error)

    def run(self) -> Comparison:
        for number in range(ROUNDS):
            candidates = [*self._candidates.items()]
            for name, measure in reversed(candidates) if number % 2 else candidates:
                try:
                    self.best[name] = max(self.best.get(name, 0.0), measure())
                except NotMeasured as error:
                    self._remove(name, error)
        print_progress(f"  {self.describe(*self.best)}")
        return self

    def _remove(self, name: str, error: Exception) -> None:
        print_progress(f"{name}: not measured: {error}")
        self.failures[name] = str(error)
        self.best.pop(name, None)
        self._candidates.pop(name, None)

    def describe(self, *names: str) -> str:
        return ", ".join(f"{name} {self.best[name]:,.0f}/s" for name in names)

    def failure_reasons(self, names: Iterable[str]) -> str:
        """Return the reasons why some of these failed, each reason once; empty without failures."""
        by_reason: dict[str, list[str]] = {}
        for name in names:
            if name in self.failures:
                by_reason.setdefault(self.failures[name], []).append(name)
        return "; ".join(
            reason if len(failed) > 1 else f"{failed[0]}: {reason}"
            for reason, failed in by_reason.items()
        )


class Report:
    """Results of a run: the rows of the table and the rates of the charts."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.rates: dict[str, dict[str, float]] = {}

    def add(
        self,
        label: str,
        target: Target | None,
        ratio: float | None,
        details: str,
        of_baseline: float | None = None,
    ) -> None:
        result = Result(label, target, ratio, details, of_baseline)
        print_progress("  ".join(result.cells))
        self.results.append(result)

    def add_ratio(
        self,
        label: str,
        target: Target | None,
        comparison: Comparison,
        numerator: str,
        denominator: str,
        suffix: str = "",
        baseline: str | None = None,
    ) -> None:
        """Add the rate of one candidate divided by the rate of another.

        ``baseline`` is the candidate that is the same as the first one, of the baseline.
        """
        if reasons := comparison.failure_reasons((numerator, denominator)):
            self.add(label, target, None, reasons)
            return
        ratio = comparison.best[numerator] / comparison.best[denominator]
        names, of_baseline = [numerator, denominator], None
        if baseline in comparison.best:
            names.append(baseline)
            of_baseline = comparison.best[numerator] / comparison.best[baseline]
        details = comparison.describe(*dict.fromkeys(names)) + suffix
        self.add(label, target, ratio, details, of_baseline)
