"""Histogram of request durations by operation and status, summed over all workers of a node."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from gleanery.observability.histogram import Histogram
from gleanery.observability.metrics import Metric
from gleanery.observability.shared_counters import SharedCounters

_METRIC = Metric(
    "gleanery_request_seconds", "histogram", "Time from the request to the end of its response."
)
_DISCONNECTED = 499
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


def request_histogram(
    operations: Iterable[str], counters: SharedCounters
) -> Histogram[tuple[str, int]]:
    """Return the histogram; a key is an operation and a status."""
    return Histogram(
        _METRIC,
        _BOUNDS,
        [(name, status) for name in operations for status in (*HTTPStatus, _DISCONNECTED)],
        lambda key: f'operation="{key[0]}",status="{key[1]}"',
        counters.own.requests,
        [segment.requests for segment in counters.segments],
    )
