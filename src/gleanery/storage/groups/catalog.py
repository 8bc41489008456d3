"""The list of groups: their settings, jobs and counts, and the deletion of groups and jobs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from gleanery.errors import no_group, no_job
from gleanery.json_schema.validator import SchemaValidator
from gleanery.models.requests import GroupSettings
from gleanery.models.responses import GroupOut, JobOut
from gleanery.storage import audit, group_lock, reviews
from gleanery.storage.bulk_jobs import jobs as bulk_jobs
from gleanery.storage.bulk_jobs import removal
from gleanery.storage.database import Database, Row
from gleanery.storage.group_lock import Clock, LockedGroup
from gleanery.storage.outputs import rules
from gleanery.storage.sessions import local_storage
from gleanery.values import json_text, timestamps

_GROUPS = """
SELECT id, name, display_name, output_count, last_seq, key_fields, schema, retain_days FROM groups
WHERE organization_id = $1 AND NOT deleted
"""
_JOBS = """
SELECT jobs.group_id, name, output_count, approved_count, review_id, created_at, status, comment
FROM jobs LEFT JOIN reviews
    ON reviews.organization_id = jobs.organization_id AND reviews.id = latest_review_id
WHERE jobs.organization_id = $1
"""
_COUNTRIES = """
SELECT group_id, country, output_count FROM country_counts
WHERE organization_id = $1 AND output_count > 0
"""
_JOB_ORDER = "ORDER BY jobs.id"
_COUNTRY_ORDER = "ORDER BY country"
_SAVE_SETTINGS = """
UPDATE groups
SET display_name = $3, key_fields = $4, schema = $5, retain_days = $6, next_expiry_at = 0
WHERE organization_id = $1 AND id = $2
"""
_FIND_JOB = """
SELECT id, output_count FROM jobs WHERE organization_id = $1 AND group_id = $2 AND name = $3
"""


# --- reading ------------------------------------------------------------------------------------


async def list_groups(
    database: Database, after: int, limit: int
) -> tuple[list[GroupOut], int | None]:
    """Returns a page of groups in the order of their creation, and the cursor of the next page."""
    organization_id = database.organization_id
    rows = await database.read(
        f"{_GROUPS} AND id > $2 ORDER BY id LIMIT $3", organization_id, after, limit + 1
    )
    page = rows[:limit]
    if not page:
        return [], None
    ids = (organization_id, page[0][0], page[-1][0])
    jobs = _by_group(
        await database.read(f"{_JOBS} AND jobs.group_id BETWEEN $2 AND $3 {_JOB_ORDER}", *ids)
    )
    countries = _by_group(
        await database.read(f"{_COUNTRIES} AND group_id BETWEEN $2 AND $3 {_COUNTRY_ORDER}", *ids)
    )
    groups = [_to_response(row, jobs[row[0]], countries[row[0]]) for row in page]
    return groups, page[-1][0] if len(rows) > limit else None


def _by_group(rows: Iterable[Row]) -> defaultdict[int, list[Row]]:
    """Arranges rows by their first column, the id of a group."""
    by_group: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_group[row[0]].append(row)
    return by_group


async def read_group(database: Database, group: str) -> GroupOut:
    organization_id = database.organization_id
    rows = await database.read(f"{_GROUPS} AND name = $2", organization_id, group)
    if not rows:
        raise no_group()
    key = (organization_id, rows[0][0])
    jobs = await database.read(f"{_JOBS} AND jobs.group_id = $2 {_JOB_ORDER}", *key)
    countries = await database.read(f"{_COUNTRIES} AND group_id = $2 {_COUNTRY_ORDER}", *key)
    return _to_response(rows[0], jobs, countries)


def _to_response(row: Row, jobs: Iterable[Row], countries: Iterable[Row]) -> GroupOut:
    id_, name, display_name, output_count, last_seq, key_fields, schema, retain_days = row
    return GroupOut(
        group_id=name,
        id=id_,
        display_name=display_name,
        outputs=output_count,
        countries={country: count for _, country, count in countries},
        last_change=timestamps.render_microseconds(last_seq) if last_seq else None,
        cursor=last_seq,
        key_fields=None if key_fields is None else json_text.decode(key_fields.encode()),
        schema=None if schema is None else json_text.decode(schema.encode()),
        retain_days=retain_days,
        jobs=[_job_to_response(job) for job in jobs],
    )


def _job_to_response(row: Row) -> JobOut:
    _, name, output_count, approved_count, review_id, *review = row
    latest = None if review_id is None else reviews.to_response(name, review_id, *review)
    return JobOut(job_id=name, outputs=output_count, approved=approved_count, latest_review=latest)


# --- settings -----------------------------------------------------------------------------------


async def set_group(
    database: Database,
    validator: SchemaValidator,
    group: str,
    settings: GroupSettings,
    clock: Clock,
) -> GroupOut:
    """Replaces the settings of a group, which is created if it does not exist."""
    key_fields = None if settings.key_fields is None else _encode(settings.key_fields)
    schema = None if settings.schema_ is None else _encode(settings.schema_)
    await rules.check_schema(validator, database.organization_id, schema)
    values = (settings.display_name, key_fields, schema, settings.retain_days)

    async def save(locked: LockedGroup) -> bool:
        group_key = (locked.organization_id, locked.group_id)
        await locked.transaction.fetch(_SAVE_SETTINGS, *group_key, *values)
        return True

    # Waits for a bulk job: the end of a removal would delete settings that are saved before it.
    await bulk_jobs.run_and_finish_bulk_job(database, group, clock, save, group_lock.lock_or_create)
    return await read_group(database, group)


def _encode(value: object) -> str:
    """Encodes as ASCII, so that NUL stays an escape; PostgreSQL cannot store NUL in text."""
    return json.dumps(value)


# --- deletion -----------------------------------------------------------------------------------


async def delete_job(database: Database, group: str, job: str, clock: Clock) -> int:
    """Deletes a job with its reviews; each of its outputs leaves a tombstone.

    Returns the number of outputs that it had.
    """

    async def start_deletion(locked: LockedGroup) -> int:
        group_key = (locked.organization_id, locked.group_id)
        rows = await locked.transaction.fetch(_FIND_JOB, *group_key, job)
        if not rows:
            raise no_job()
        [[job_id, output_count]] = rows
        await bulk_jobs.create(locked, "delete", job_id)
        return int(output_count)

    return await bulk_jobs.run_and_finish_bulk_job(database, group, clock, start_deletion)


async def delete_group(database: Database, group: str, clock: Clock, actor: audit.Actor) -> int:
    """Deletes a group in the same way, with its local storage.

    Its change feed stays, so that clients see the deletions.
    """

    async def start_deletion(locked: LockedGroup) -> int:
        await removal.clear_settings(locked)
        await bulk_jobs.create(locked, "delete", None)
        await local_storage.audit_deletion_of_group(
            locked.transaction, locked.group_id, locked.now, actor
        )
        return locked.output_count

    return await bulk_jobs.run_and_finish_bulk_job(database, group, clock, start_deletion)
