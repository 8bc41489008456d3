"""Record of each request: its log lines, its metrics, and the usage of its organization.

A request only adds to histograms and to a dictionary. Each second, ``publish`` adds the numbers of
the dictionary to the metrics, and to the usage that waits for the database. The sweep stores that
usage; see ``maintenance``.

An organization has a label in the metrics while it has a slot in the memory that the workers share.
Each worker fills its slots by its own requests. So the slots of all workers bound the labels.
All other organizations are counted as ``other``. A busy organization takes the slot of the least
busy one, at most one in each round of the sweep. Then its count starts at 0. An earlier count is
never moved to another label: a rate would show requests that nobody has sent.

The bytes that an organization occupies are measured in the database. The sweep of each worker
copies the last result to the worker's slots. All workers show the number of the first slot that
has one, so they never differ.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

from gleanery.service.foundation.observability import logs
from gleanery.service.foundation.observability.logs import Accounted, RequestLog
from gleanery.service.foundation.observability.metrics import (
    Exposition,
    Histogram,
    Metric,
    NodeMetrics,
    Sample,
    SharedCounters,
    Snapshot,
    WorkerMetrics,
    observe_process,
)
from gleanery.service.http import Request

_log = logging.getLogger("gleanery")

CLIENT_DISCONNECTED = 499
"""Status of a request whose client was gone before the end of the response, as nginx logs it."""

# --- usage of organizations ---------------------------------------------------------------------

USAGE_METRICS = tuple(
    Metric(f"gleanery_organization_{name}_total", "counter", help_)
    for name, help_ in (
        ("requests", "Requests of an organization, whatever their status."),
        ("received_bytes", "Bytes of request bodies of an organization, as they were sent."),
        ("sent_bytes", "Bytes of response bodies to an organization, as they were sent."),
        ("stored_outputs", "Outputs of an organization that were created or updated."),
    )
)
STORED_BYTES = Metric(
    "gleanery_organization_storage_bytes",
    "gauge",
    "Bytes that an organization occupied when it was last measured.",
)
_NUMBERS = len(USAGE_METRICS)
# The id of the organization, its numbers, and one more than the bytes that it occupies; 0 while
# these are not known.
_SLOT_CELLS = 1 + _NUMBERS + 1
_OTHER = "other"
_MAX_UNSTORED = 10_000  # organizations, between two rounds of the sweep
_WEIGHT = 0.2  # of the last round in the average of an organization's requests
_MARGIN = 2.0  # by which an organization exceeds the one whose slot it takes
_NOT_STORED = "the usage of some organizations is not stored: too many at one time"

Counts = list[int]
"""Requests, received bytes, sent bytes and stored outputs."""


class UsageMeter:
    """Counts the usage of one worker."""

    def __init__(self, counters: SharedCounters, organizations: int) -> None:
        """``organizations`` is the number of slots of this worker."""
        self._segments = [segment.usage for segment in counters.segments]
        self._own = counters.own.usage
        starts = range(_NUMBERS, _NUMBERS + organizations * _SLOT_CELLS, _SLOT_CELLS)
        assert _NUMBERS + organizations * _SLOT_CELLS <= len(self._own), "the segment is too small"
        # A worker that replaces another one continues its slots.
        self._slots = {int(self._own[start]): start for start in starts if self._own[start]}
        self._free_slots = [start for start in reversed(starts) if not self._own[start]]
        # Requests in a round of the sweep; None before the first round.
        self._averages: dict[int, float | None] = dict.fromkeys(self._slots)
        self._recent: dict[int, Counts] = {}
        self._unstored: dict[int, Counts] = {}
        self._not_stored = 0

    def add(self, organization_id: int, received: int, sent: int, outputs: int) -> None:
        """Count one request."""
        counts = self._recent.get(organization_id)
        if counts is None:
            self._recent[organization_id] = [1, received, sent, outputs]
            return
        counts[0] += 1
        counts[2] += sent
        if received:
            counts[1] += received
            counts[3] += outputs

    def publish(self) -> None:
        """Add the requests since the last call to the metrics, and to the usage to store."""
        recent, self._recent = self._recent, {}
        for organization_id, counts in recent.items():
            self._add_to_metrics(organization_id, counts)
            self._add_to_unstored(organization_id, counts)

    def _add_to_metrics(self, organization_id: int, counts: Counts) -> None:
        start = self._slots.get(organization_id)
        if start is None and self._free_slots:
            start = self._assign(self._free_slots.pop(), organization_id)
        first = 0 if start is None else start + 1
        for position, number in enumerate(counts, first):
            self._own[position] += number

    def _assign(self, start: int, organization_id: int) -> int:
        """Give a slot to an organization. Another worker may read the cells at the same time."""
        for position in range(start, start + _SLOT_CELLS):
            self._own[position] = 0.0
        self._own[start] = organization_id
        self._slots[organization_id] = start
        self._averages[organization_id] = None
        return start

    def _add_to_unstored(self, organization_id: int, counts: Counts) -> None:
        waiting = self._unstored.get(organization_id)
        if waiting is not None:
            for position, number in enumerate(counts):
                waiting[position] += number
        elif len(self._unstored) < _MAX_UNSTORED:
            self._unstored[organization_id] = [*counts]
        else:
            self._not_stored += counts[0]

    def take(self) -> dict[int, Counts]:
        """Return the usage to store, by organization, and forget it."""
        self.publish()
        taken, self._unstored = self._unstored, {}
        self._exchange_slot(taken)
        if self._not_stored:
            _log.warning(_NOT_STORED, extra={"requests": self._not_stored})
            self._not_stored = 0
        return taken

    def put_back(self, taken: Mapping[int, Counts]) -> None:
        """Let a later call of ``take`` return usage that could not be stored."""
        for organization_id, counts in taken.items():
            self._add_to_unstored(organization_id, counts)

    @property
    def organizations(self) -> list[int]:
        """Organizations that have a slot of this worker."""
        return list(self._slots)

    def set_stored_bytes(self, organization_id: int, stored_bytes: int | None) -> None:
        """Show the bytes that an organization occupies; None shows nothing."""
        start = self._slots.get(organization_id)
        if start is not None:
            self._own[start + 1 + _NUMBERS] = 0 if stored_bytes is None else 1 + stored_bytes

    def _exchange_slot(self, taken: Mapping[int, Counts]) -> None:
        """Give the slot of the least busy organization to a busier one without a slot."""
        averages = {id_: self._next_average(id_, taken) for id_ in self._slots}
        others = {id_: counts[0] for id_, counts in taken.items() if id_ not in self._slots}
        if not others or not self._slots:
            return
        busiest = max(others, key=others.__getitem__)
        least = min(averages, key=averages.__getitem__)
        if others[busiest] > _MARGIN * averages[least]:
            del self._averages[least]
            self._assign(self._slots.pop(least), busiest)

    def _next_average(self, organization_id: int, taken: Mapping[int, Counts]) -> float:
        requests = taken[organization_id][0] if organization_id in taken else 0
        average = self._averages[organization_id]
        next_average = requests if average is None else average + _WEIGHT * (requests - average)
        self._averages[organization_id] = next_average
        return next_average

    def collect(self) -> Iterator[tuple[Metric, Iterable[Sample]]]:
        """Return the metrics of the node, with a label for each organization that has a slot."""
        self.publish()
        totals: dict[str, list[float]] = {_OTHER: [0.0] * _NUMBERS}
        stored_bytes: dict[int, float] = {}
        for cells in self._segments:
            _add_numbers(totals, _OTHER, cells[:_NUMBERS])
            for start in range(_NUMBERS, len(cells) - _SLOT_CELLS + 1, _SLOT_CELLS):
                if organization_id := int(cells[start]):
                    numbers = cells[start + 1 : start + 1 + _NUMBERS]
                    _add_numbers(totals, str(organization_id), numbers)
                    if above := cells[start + 1 + _NUMBERS]:
                        stored_bytes.setdefault(organization_id, above - 1)
        for position, metric in enumerate(USAGE_METRICS):
            yield (
                metric,
                [
                    (f'{metric.name}{{organization="{label}"}}', numbers[position])
                    for label, numbers in totals.items()
                ],
            )
        samples = [
            (f'{STORED_BYTES.name}{{organization="{id_}"}}', number)
            for id_, number in stored_bytes.items()
        ]
        yield STORED_BYTES, samples


def _add_numbers(totals: dict[str, list[float]], label: str, numbers: memoryview[float]) -> None:
    sums = totals.setdefault(label, [0.0] * _NUMBERS)
    for position, number in enumerate(numbers):
        sums[position] += number


# --- histograms ---------------------------------------------------------------------------------

_REQUEST_SECONDS = Metric(
    "gleanery_request_seconds", "histogram", "Time from the request to the end of its response."
)
_REQUEST_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


def _request_histogram(
    operations: Iterable[str], counters: SharedCounters
) -> Histogram[tuple[str, int]]:
    """Return the histogram; a key is an operation and a status."""
    return Histogram(
        _REQUEST_SECONDS,
        _REQUEST_BOUNDS,
        [(name, status) for name in operations for status in (*HTTPStatus, CLIENT_DISCONNECTED)],
        lambda key: f'operation="{key[0]}",status="{key[1]}"',
        counters.own.requests,
        [segment.requests for segment in counters.segments],
    )


_FEED_LAG = Metric(
    "gleanery_feed_lag_seconds",
    "histogram",
    "Age of the oldest change in a response of the change feed; 0 if there was none.",
)
# From the delay of a long poll to a reader that is days behind. Alerts need few bounds.
_FEED_LAG_BOUNDS = (0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0, 604_800.0)
_FEED_LAG_LABELS = {False: 'more="false"', True: 'more="true"'}


def _feed_lag_histogram(counters: SharedCounters) -> Histogram[bool]:
    """Return the histogram. A key is True if more changes followed than the response held."""
    return Histogram(
        _FEED_LAG,
        _FEED_LAG_BOUNDS,
        _FEED_LAG_LABELS,
        _FEED_LAG_LABELS.__getitem__,
        counters.own.feed_lags,
        [segment.feed_lags for segment in counters.segments],
        shows_empty=True,
    )


# --- requests -----------------------------------------------------------------------------------

_PUBLISH_SECONDS = 1.0
_PROCESS = secrets.token_hex(6).encode()  # makes the ids of each process unique
_numbers = itertools.count(secrets.randbits(31))
_REQUEST_ID = re.compile(rb"(?!.*glean_)[A-Za-z0-9._-]{1,64}")  # rejects a token sent by mistake


def request_id_of(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the id that a proxy or client sent, if it is safe to log; else a new one."""
    given = headers.get(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return b"%s%08x" % (_PROCESS, next(_numbers) & 0xFFFFFFFF)


class Telemetry:
    """Log and metrics of the requests, per operation and status, and metrics of the node."""

    def __init__(
        self,
        log: RequestLog | None,
        operations: Iterable[str],
        counters: SharedCounters,
        folders: Mapping[str, Path],
        slow_seconds: float = 0.0,
        organizations: int = 0,
    ) -> None:
        """``folders`` are those whose free space is a metric, by label.

        A request is slow from ``slow_seconds`` on; 0 is never. ``organizations`` is the number of
        organizations with separate metrics.
        """
        self._log = log
        self._slow_seconds = slow_seconds or math.inf
        self.usage = UsageMeter(counters, organizations)
        """Counts the usage of each organization."""
        self._requests = _request_histogram(operations, counters)
        self._feed_lags = _feed_lag_histogram(counters)
        self.worker = WorkerMetrics(counters)
        """Metrics of this worker. Other parts register theirs here."""
        self._node = NodeMetrics(counters, folders)
        self.jobs = Snapshot()
        """Metrics of jobs, which the sweep reads."""
        self._exposition = Exposition(
            self._requests.collect,
            self._feed_lags.collect,
            self.usage.collect,
            self.jobs.collect,
            self.worker.collect,
            self._node.collect,
        )
        observe_process(self.worker)
        self.worker.observe("gleanery_log_lines_dropped_total", logs.dropped_lines)

    def record(
        self, request: Request, operation: str, id_: bytes, status: int, started: float
    ) -> None:
        """Record one completed request. The query is omitted: it may contain a token."""
        now = time.perf_counter()
        seconds = now - started
        self._requests.add((operation, status), seconds)
        account: Accounted = request.state
        if account.organization is not None:
            self.usage.add(
                account.organization,
                account.received_bytes,
                account.sent_bytes,
                account.stored_outputs,
            )
        if self._log is not None:
            self._log(request, operation, status, seconds, id_)
        if now - account.admitted - account.idle_seconds >= self._slow_seconds:
            logs.log_slow_request(request, operation, status, id_, started, now)

    def record_feed_lag(self, seconds: float, has_more: bool) -> None:
        """Record how far a reader of a change feed was behind."""
        self._feed_lags.add(has_more, max(seconds, 0.0))  # clocks of nodes differ

    async def publish(self) -> None:
        """Publish the metrics of this worker each second, until it is cancelled."""
        while True:
            self._node.refresh()
            self.usage.publish()
            self.worker.publish()
            await asyncio.sleep(_PUBLISH_SECONDS)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return self._exposition.text()
