"""Metrics in Prometheus' text format.

A collector is a function that returns metrics with their samples. Anybody may request the text, so
it must be cheap. It is rendered at most once per second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_MAX_AGE_SECONDS = 1.0  # a scraper asks every few seconds


class Metric(NamedTuple):
    """Name, type and description of a metric."""

    name: str
    type: str
    """Type in Prometheus' terms: gauge, counter or histogram."""
    help: str


Sample = tuple[str, float]
"""Name with labels, and value."""

Collector = Callable[[], Iterable[tuple[Metric, Iterable[Sample]]]]


class Exposition:
    """Text of the metrics of all collectors."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors
        self._text = b""
        self._expires = 0.0

    def text(self) -> bytes:
        """Return the text, at most one second old."""
        now = time.monotonic()
        if now >= self._expires:
            self._text = ("\n".join(self._lines()) + "\n").encode()
            self._expires = now + _MAX_AGE_SECONDS
        return self._text

    def _lines(self) -> Iterator[str]:
        for collect in self._collectors:
            for metric, samples in collect():
                yield f"# HELP {metric.name} {metric.help}"
                yield f"# TYPE {metric.name} {metric.type}"
                for name, value in samples:
                    yield f"{name} {value}"
