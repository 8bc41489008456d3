"""Metrics of jobs: their last runs, and the open alerts of their groups.

The labels are ``group_id`` and ``job_id``: Prometheus has a label ``job`` of its own.

The sweep reads them, and a request for the metrics only shows what was read. Each series has the
name of a group, and anybody who reaches ``/metrics`` can read it. So no group has series until the
operator asks for them. Then it is those with the most complete runs, with a limit of jobs each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gleanery.service.foundation.observability.metrics import Metric, Sample, Snapshot
from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.database import Engine
from gleanery.service.storage.group_lock import Clock

MAX_JOBS = 50
"""Jobs of a group that have series."""
_CHOICE_SECONDS = 600.0
"""Time for which the chosen groups stay, unless there are too few."""
_LAST_RUN = Metric(
    "gleanery_job_last_run_timestamp_seconds",
    "gauge",
    "End of the last run of a job that has ended, in Unix time.",
)
_LAST_OUTPUTS = Metric(
    "gleanery_job_last_run_outputs", "gauge", "Outputs that the last run of a job has sent."
)
_OPEN_OF_GROUP = Metric(
    "gleanery_group_alerts_open", "gauge", "Open alerts of a group that are not muted."
)
# The row of a job says how many complete runs it had, so no run is read.
_BUSIEST = """
SELECT organization_id, group_id, sum(complete_runs) AS run_count FROM jobs
GROUP BY organization_id, group_id ORDER BY run_count DESC, group_id LIMIT $1
"""
_NAME = "SELECT name FROM groups WHERE organization_id = $1 AND id = $2 AND NOT deleted"
_LAST_RUNS = """
SELECT jobs.name, finished_at, created_count + updated_count + unchanged_count
FROM jobs JOIN runs ON runs.organization_id = jobs.organization_id AND runs.id = (
    SELECT id FROM runs AS ended
    WHERE ended.organization_id = $1 AND ended.group_id = $2 AND ended.job_id = jobs.id
        AND ended.finished_at IS NOT NULL
    ORDER BY id DESC LIMIT 1)
WHERE jobs.organization_id = $1 AND jobs.group_id = $2
ORDER BY complete_runs DESC, jobs.id LIMIT $3
"""
_OPEN = """
SELECT organization_id, group_id, kind, count(*) FROM alerts
WHERE closed_at IS NULL AND coalesce(muted_until, 0) <= $1
GROUP BY organization_id, group_id, kind
"""


class _Group(NamedTuple):
    organization_id: int
    id: int


class _Series(NamedTuple):
    last_runs: list[Sample]
    last_outputs: list[Sample]
    open_alerts: list[Sample]


class JobMetrics:
    """Reads the metrics, and gives them to ``snapshot``."""

    def __init__(self, engine: Engine, snapshot: Snapshot, groups: int, clock: Clock) -> None:
        """Show so many ``groups``."""
        self._engine = engine
        self._snapshot = snapshot
        self._limit = groups
        self._clock = clock
        self._chosen: list[_Group] = []
        self._chosen_at = 0.0
        self.open_alerts = 0
        """Open alerts of all groups that are not muted."""
        self._show(_Series([], [], []))

    async def refresh(self) -> None:
        """Read the metrics again."""
        everyone = self._engine.for_all_tenants()
        open_alerts: dict[_Group, dict[str, int]] = {}
        for organization_id, group_id, kind, count in await everyone.read_large(
            _OPEN, self._clock()
        ):
            open_alerts.setdefault(_Group(organization_id, group_id), {})[kind] = count
        self.open_alerts = sum(sum(kinds.values()) for kinds in open_alerts.values())
        series = _Series([], [], [])
        for group in await self._choose():
            await self._read(group, open_alerts.get(group, {}), series)
        self._show(series)

    async def _choose(self) -> Sequence[_Group]:
        """Return the groups with series. They change seldom, so that series do not end."""
        is_old = time.monotonic() - self._chosen_at >= _CHOICE_SECONDS
        if self._limit and (is_old or len(self._chosen) < self._limit):
            rows = await self._engine.for_all_tenants().read_large(_BUSIEST, self._limit)
            self._chosen = [_Group(row[0], row[1]) for row in rows]
            self._chosen_at = time.monotonic()
        return self._chosen

    async def _read(self, group: _Group, open_alerts: dict[str, int], series: _Series) -> None:
        database = self._engine.for_tenant(group.organization_id)
        names = await database.read(_NAME, group.organization_id, group.id)
        if not names:
            return
        of_group = f'organization="{group.organization_id}",group_id="{_escape(names[0][0])}"'
        for kind, count in sorted(open_alerts.items()):
            series.open_alerts.append((f'{_OPEN_OF_GROUP.name}{{{of_group},kind="{kind}"}}', count))
        for job, finished_at, outputs in await database.read_large(
            _LAST_RUNS, group.organization_id, group.id, MAX_JOBS
        ):
            labels = f'{{{of_group},job_id="{_escape(job)}"}}'
            series.last_runs.append((f"{_LAST_RUN.name}{labels}", finished_at / timestamps.SECOND))
            series.last_outputs.append((f"{_LAST_OUTPUTS.name}{labels}", outputs))

    def _show(self, series: _Series) -> None:
        self._snapshot.show([*self._metrics(series)] if self._limit else [])

    def _metrics(self, series: _Series) -> Iterator[tuple[Metric, Sequence[Sample]]]:
        yield _LAST_RUN, series.last_runs
        yield _LAST_OUTPUTS, series.last_outputs
        yield _OPEN_OF_GROUP, series.open_alerts


def _escape(text: str) -> str:
    """Return the value of a label, as Prometheus reads it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
