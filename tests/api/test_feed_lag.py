"""The metric of how far the readers of change feeds are behind, on both engines."""

from __future__ import annotations

import re

from tests.support.metrics import fresh_metrics
from tests.support.outputs import output, read_changes
from tests.support.service import Client, Clock

LINE = re.compile(r'^gleanery_feed_lag_seconds_(\w+)\{more="(\w+)"(?:,le="(.+)")?\} (.+)$', re.M)


def lags(client: Client, more: str) -> dict[str, float]:
    """Number of responses per bucket, without those of the buckets below, and the sum."""
    found = {
        bound or name: float(value)
        for name, label, bound, value in LINE.findall(fresh_metrics(client))
        if label == more
    }
    below = 0.0
    for bound in [bound for bound in found if bound not in ("count", "sum")]:
        found[bound], below = found[bound] - below, found[bound]
    return {name: value for name, value in found.items() if value}


def test_the_lag_is_the_age_of_the_oldest_change(timed: Client, clock: Clock) -> None:
    timed.store("group", output(1))
    clock.move(seconds=1800)
    timed.store("group", output(2))
    clock.move(seconds=200)
    first = read_changes(timed, limit=1)
    read_changes(timed, first["cursor"])

    more = lags(timed, "true")
    assert 2000 <= more.pop("sum") < 2900
    assert more == {"3600.0": 1, "count": 1}
    last = lags(timed, "false")
    assert 200 <= last.pop("sum") < 900
    assert sum(last.values()) == 2
    assert last.pop("count") == 1
    assert last.keys() <= {"300.0", "900.0"}


def test_a_reader_that_has_everything_has_no_lag(timed: Client, clock: Clock) -> None:
    timed.store("group", output(1))
    end = read_changes(timed)["cursor"]
    before = lags(timed, "false")
    clock.move(seconds=3600)
    for _ in range(2):
        assert read_changes(timed, end)["changes"] == []
    after = lags(timed, "false")
    assert after.pop("count") == before.pop("count") + 2
    assert after["0.1"] == before.get("0.1", 0) + 2
    assert after["sum"] == before["sum"]


def test_a_change_from_a_node_whose_clock_is_ahead_has_no_negative_lag(
    timed: Client, clock: Clock
) -> None:
    clock.jump(seconds=600)
    timed.store("group", output(1))
    clock.jump(seconds=-600)
    assert len(read_changes(timed)["changes"]) == 1
    assert lags(timed, "false") == {"0.1": 1, "count": 1}


def test_a_feed_that_does_not_exist_counts_nothing(timed: Client) -> None:
    assert timed.get("/v1/changes/none").status_code == 404
    assert lags(timed, "false") == lags(timed, "true") == {}
