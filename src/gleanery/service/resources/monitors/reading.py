"""Reads what the monitors need to know of a run and of earlier ones, without a lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec

from gleanery.service.foundation.values import json_text
from gleanery.service.resources.fields import ended_runs
from gleanery.service.resources.files.references import escape_markers
from gleanery.service.resources.monitors import judging
from gleanery.service.resources.monitors.judging import JudgedRun, Level, Sample
from gleanery.service.resources.monitors.rules import JobRules
from gleanery.service.resources.run_records.rows import Status
from gleanery.service.storage import paging
from gleanery.service.storage.database import Database, indexed

_COLUMNS = """
id, run_id, status, labels, started_at, created_count + updated_count + unchanged_count,
rejected_count, missing_count, output_count, removal, removal_count, field_counts, sample,
has_alert
"""
_FIRST_UNJUDGED = f"""
SELECT {_COLUMNS}, coalesce(comparison, '') = 'pending' FROM runs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND is_open
    AND monitoring = 'pending'
ORDER BY finished_at, id LIMIT 1
"""
_EARLIER = indexed(
    f"""
SELECT {_COLUMNS} FROM {{runs}}
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND status = 'complete'
    AND NOT has_alert AND labels = $4 AND coalesce(monitoring, '') <> 'pending' AND id <> $5
ORDER BY id DESC LIMIT {judging.USUAL_RUNS}
""",
    runs="runs_usual",
)
_PAST = f"""
SELECT {_COLUMNS} FROM runs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND status <> 'running'
ORDER BY id DESC LIMIT $4
"""
# Runs that go on, and batches without a run, say nothing about failures.
_STATUSES = """
SELECT status FROM runs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND id <= $4
    AND status NOT IN ('running', 'unknown')
ORDER BY id DESC LIMIT $5
"""
FAILED: tuple[Status, ...] = ("failed", "abandoned")
_MAX_FAILURES = 100
"""Failed runs in a row that are counted. No threshold is larger."""
# Without a limit on the rows that are looked at, a run that sent little would read the whole job.
_SIZES = indexed(
    """
SELECT seq, octet_length(item), last_scraped_at FROM {outputs}
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND seq > $4
ORDER BY seq DESC LIMIT $5
""",
    outputs="outputs_by_job",
)
_ITEMS = indexed(
    """
SELECT item FROM {outputs}
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND seq >= $4 AND last_scraped_at >= $5
ORDER BY seq DESC LIMIT $6
""",
    outputs="outputs_by_job",
)
_SAMPLE = 500
_LOOKED_AT = 2000
"""Outputs of the job, those that have changed last, among which a sample is found."""
_SAMPLE_BYTES = 4 * 1024 * 1024
_MAX_NUMBERS = 200
"""Fields with numbers that a sample tells of."""


class RunRow(NamedTuple):
    """The columns of a run that has ended."""

    id: int
    run_id: str
    status: Status
    labels: str
    started_at: int
    outputs: int
    rejected: int
    missing: int
    job_outputs: int
    removal: str | None
    removable: int
    field_counts: str | None
    sample: str | None
    has_alert: bool

    @property
    def is_model(self) -> bool:
        """Return True if later runs are compared with this one."""
        return self.status == "complete" and not self.has_alert


class RunToJudge(NamedTuple):
    """A run, and what is compared with it. To decode it takes time."""

    row: RunRow
    earlier: Sequence[RunRow]
    failures: int
    items: Sequence[bytes]

    def decode(self) -> JudgedRun:
        return decode_run(self.row, sample_of(self.items), self.failures)


async def find_unjudged(database: Database, group_id: int, job_id: int) -> RunRow | None:
    """Return the first run of a job that has ended and was not judged yet.

    Return None while it is compared. Later runs wait for it, because they are judged in order.
    """
    key = (database.organization_id, group_id, job_id)
    for *columns, is_compared in await database.read_large(_FIRST_UNJUDGED, *key):
        return None if is_compared else RunRow(*columns)
    return None


async def read_run(
    database: Database, group_id: int, job_id: int, row: RunRow, rules: JobRules
) -> RunToJudge:
    """Read what the rules need to judge a run."""
    key = (database.organization_id, group_id, job_id)
    found = await database.read_large(_EARLIER, *key, row.labels, row.id)
    failures = 0
    if row.status in FAILED and rules.has("failed_run"):
        for [status] in await database.read(_STATUSES, *key, row.id, _MAX_FAILURES):
            if status not in FAILED:
                break
            failures += 1
    items: list[bytes] = []
    if rules.has("number_shift") or rules.has("duplicates"):
        items = await read_items(database, group_id, job_id, row.started_at)
    return RunToJudge(row, [RunRow(*one) for one in found], failures, items)


async def read_past(database: Database, group_id: int, job_id: int, limit: int) -> list[RunRow]:
    """Return the last runs of a job that have ended, oldest first."""
    key = (database.organization_id, group_id, job_id)
    return [RunRow(*row) for row in await database.read_large(_PAST, *key, limit)][::-1]


async def read_items(
    database: Database, group_id: int, job_id: int, started_at: int
) -> list[bytes]:
    """Return some outputs that were sent since then: those that have changed last."""
    key = (database.organization_id, group_id, job_id)
    newest = await database.read_large(_SIZES, *key, 0, _LOOKED_AT)
    sizes = [(seq, size) for seq, size, scraped_at in newest if scraped_at >= started_at][:_SAMPLE]
    count = paging.count_fitting([size for _, size in sizes], _SAMPLE_BYTES)
    if not count or sizes[0][1] > _SAMPLE_BYTES:
        return []
    found = await database.read_large(_ITEMS, *key, sizes[count - 1][0], started_at, count)
    return [row[0] for row in found]


_decode_sample = msgspec.json.Decoder(Sample).decode


def decode_run(row: RunRow, sample: Sample | None = None, failures: int = 0) -> JudgedRun:
    """Return what a run was like. It takes time if the outputs have many fields."""
    counted, fields = ended_runs.decode_fields(row.field_counts)
    values, level = judging.levels_of_fields(fields, counted, json_text.path_of_names)
    level.outputs = row.outputs
    if sample is None:
        sample = Sample() if row.sample is None else _decode_sample(row.sample)
    level.numbers = sample.numbers
    return JudgedRun(
        status=row.status,
        outputs=row.outputs,
        rejected=row.rejected,
        missing=row.missing,
        job_outputs=row.job_outputs,
        is_held=row.removal == "held",
        removable=row.removable,
        counted=counted,
        values=values,
        level=level,
        sample=sample,
        failures=failures,
    )


def encode_sample(sample: Sample) -> str | None:
    return msgspec.json.encode(sample).decode() if sample.outputs else None


def level_of(row: RunRow) -> Level:
    return decode_run(row).level


def sample_of(items: Sequence[bytes]) -> Sample:
    """Return what the values of these outputs are like."""
    data = [json_text.decode(escape_markers(item)).get("data") for item in items]
    hashes = Counter(json_text.canonical_hash(one) for one in data)
    numbers: dict[str, list[float]] = {}
    for one in data:
        for path, number in _numbers(one):
            if path in numbers or len(numbers) < _MAX_NUMBERS:
                numbers.setdefault(path, []).append(number)
    return Sample(
        outputs=len(data),
        duplicates=sum(count for count in hashes.values() if count > 1),
        numbers={
            path: median(values)
            for path, values in numbers.items()
            if len(values) >= judging.MIN_VALUES
        },
    )


def fractions_of(items: Sequence[bytes]) -> set[str]:
    """Return the paths of the numbers of these outputs of which one has a fraction."""
    found: dict[str, list[float]] = {}
    for item in items:
        for path, number in _numbers(json_text.decode(escape_markers(item)).get("data")):
            found.setdefault(path, []).append(number)
    return {
        path
        for path, values in found.items()
        if len(values) >= judging.MIN_VALUES and not all(value.is_integer() for value in values)
    }


def _numbers(data: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers of an output: members of data, and members of objects in it."""
    if not isinstance(data, dict):
        return
    for name, value in data.items():
        if isinstance(value, dict):
            for inner, number in value.items():
                if _is_number(number):
                    yield json_text.path_of_names((name, inner)), float(number)
        elif _is_number(value):
            yield json_text.path_of_names((name,)), float(value)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < 1e300
