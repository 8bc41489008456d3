"""Histogram of the lag of change feeds: how far a reader was behind when it asked for changes."""

from __future__ import annotations

from gleanery.observability.histogram import Histogram
from gleanery.observability.metrics import Metric
from gleanery.observability.shared_counters import SharedCounters

_METRIC = Metric(
    "gleanery_feed_lag_seconds",
    "histogram",
    "Age of the oldest change in a response of the change feed; 0 if there was none.",
)
# From the delay of a long poll to a reader that is days behind. Alerts need few bounds.
_BOUNDS = (0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0, 604_800.0)
_LABELS = {False: 'more="false"', True: 'more="true"'}


def feed_lag_histogram(counters: SharedCounters) -> Histogram[bool]:
    """Return the histogram. A key is True if more changes followed than the response held."""
    return Histogram(
        _METRIC,
        _BOUNDS,
        _LABELS,
        _LABELS.__getitem__,
        counters.own.feed_lags,
        [segment.feed_lags for segment in counters.segments],
        shows_empty=True,
    )
