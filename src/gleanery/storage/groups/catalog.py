"""Groups as people see them: what they hold, what is set of them, what was said of their jobs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from gleanery.errors import NotFound
from gleanery.json_schema.validator import SchemaValidator
from gleanery.models.requests import GroupSettings
from gleanery.models.responses import GroupOut, JobOut
from gleanery.storage import group_lock, reviews
from gleanery.storage.bulk_jobs import jobs, removal
from gleanery.storage.database import Database, Row
from gleanery.storage.outputs import rules
from gleanery.values import json_text, timestamps

_GROUPS = """
SELECT id, name, display_name, outputs, clock, key_fields, schema, retain_days FROM groups
WHERE organization_id = $1 AND NOT deleted
"""
_JOBS = """
SELECT jobs.group_id, name, outputs, approved, review_id, created, status, comment
FROM jobs LEFT JOIN reviews
    ON reviews.organization_id = jobs.organization_id AND reviews.id = latest_review
WHERE jobs.organization_id = $1
"""
_COUNTRIES = """
SELECT group_id, country, outputs FROM countries WHERE organization_id = $1 AND outputs > 0
"""
_BY_AGE = "ORDER BY jobs.id"
_BY_NAME = "ORDER BY country"
_SET = """
UPDATE groups
SET display_name = $3, key_fields = $4, schema = $5, retain_days = $6, next_expiry = 0
WHERE organization_id = $1 AND id = $2
"""
_JOB = """
SELECT id, outputs FROM jobs WHERE organization_id = $1 AND group_id = $2 AND name = $3
"""


async def list_groups(
    database: Database, after: int, limit: int
) -> tuple[list[GroupOut], int | None]:
    """Groups in the order in which they came into being, and where the next page starts."""
    organization_id = database.organization_id
    found = await database.read(
        f"{_GROUPS} AND id > $2 ORDER BY id LIMIT $3", organization_id, after, limit + 1
    )
    page = found[:limit]
    if not page:
        return [], None
    of_page = (organization_id, page[0][0], page[-1][0])
    jobs = await database.read(f"{_JOBS} AND jobs.group_id BETWEEN $2 AND $3 {_BY_AGE}", *of_page)
    countries = await database.read(
        f"{_COUNTRIES} AND group_id BETWEEN $2 AND $3 {_BY_NAME}", *of_page
    )
    jobs_of, countries_of = _by_group(jobs), _by_group(countries)
    groups_shown = [_shown(row, jobs_of[row[0]], countries_of[row[0]]) for row in page]
    return groups_shown, page[-1][0] if len(found) > limit else None


def _by_group(rows: Iterable[Row]) -> defaultdict[int, list[Row]]:
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


async def show_group(database: Database, group: str) -> GroupOut:
    organization_id = database.organization_id
    rows = await database.read(f"{_GROUPS} AND name = $2", organization_id, group)
    if not rows:
        raise NotFound
    of_group = (organization_id, rows[0][0])
    jobs = await database.read(f"{_JOBS} AND jobs.group_id = $2 {_BY_AGE}", *of_group)
    countries = await database.read(f"{_COUNTRIES} AND group_id = $2 {_BY_NAME}", *of_group)
    return _shown(rows[0], jobs, countries)


def _shown(row: Row, jobs: Iterable[Row], countries: Iterable[Row]) -> GroupOut:
    id_, name, display_name, outputs, clock, key_fields, schema, retain_days = row
    return GroupOut(
        group_id=name,
        id=id_,
        display_name=display_name,
        outputs=outputs,
        countries={country: count for _, country, count in countries},
        last_change=timestamps.render_moment(clock) if clock else None,
        cursor=clock,
        key_fields=None if key_fields is None else json_text.decode(key_fields.encode()),
        schema=None if schema is None else json_text.decode(schema.encode()),
        retain_days=retain_days,
        jobs=[_job(job) for job in jobs],
    )


def _job(row: Row) -> JobOut:
    _, name, outputs, approved, review_id, created, status, comment = row
    review = None if review_id is None else reviews.shown(name, review_id, created, status, comment)
    return JobOut(job_id=name, outputs=outputs, approved=approved, latest_review=review)


async def set_group(
    database: Database,
    schemas: SchemaValidator,
    group: str,
    settings: GroupSettings,
    clock: group_lock.Clock,
) -> GroupOut:
    """Sets what is given and unsets what is not; the group comes into being if it is new."""
    key_fields = None if settings.key_fields is None else _text(settings.key_fields)
    schema = None if settings.schema_ is None else _text(settings.schema_)
    await rules.check_schema(schemas, schema)

    async def decide(locked: group_lock.LockedGroup) -> bool:
        await locked.transaction.fetch(
            _SET,
            locked.organization_id,
            locked.group_id,
            settings.display_name,
            key_fields,
            schema,
            settings.retain_days,
        )
        return True

    # As a bulk_job is decided on: in the middle of a removal, it would be lost with the old group.
    await jobs.decide_and_carry_out(database, group, clock, decide, group_lock.lock_or_create)
    return await show_group(database, group)


def _text(value: object) -> str:
    """ASCII, so that a NUL inside stays an escape, which PostgreSQL can hold."""
    return json.dumps(value)


# --- removing -----------------------------------------------------------------------------------


async def delete_job(database: Database, group: str, job: str, clock: group_lock.Clock) -> int:
    """Removes a job: its outputs one by one through the change order, then its reviews.

    Tells how many outputs it held.
    """

    async def decide(locked: group_lock.LockedGroup) -> int:
        of_group = (locked.organization_id, locked.group_id)
        found = await locked.transaction.fetch(_JOB, *of_group, job)
        if not found:
            raise NotFound
        [[job_id, outputs]] = found
        await jobs.note(locked, "delete", job_id)
        return int(outputs)

    return await jobs.decide_and_carry_out(database, group, clock, decide)


async def delete_group(database: Database, group: str, clock: group_lock.Clock) -> int:
    """Removes a group likewise; its change feed stays, so that clients hear of it."""

    async def decide(locked: group_lock.LockedGroup) -> int:
        await removal.clear_settings(locked)
        await jobs.note(locked, "delete", None)
        return locked.outputs

    return await jobs.decide_and_carry_out(database, group, clock, decide)
