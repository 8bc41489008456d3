"""The list of groups with settings, jobs and counts; new settings; deletion of groups and jobs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from gleanery.service.foundation.errors import no_group, no_job
from gleanery.service.foundation.json_schema import SchemaValidator
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.groups.models import (
    GroupSettings,
    GroupSettingsOut,
    JobOut,
    MissingSettings,
)
from gleanery.service.resources.outputs import bulk_jobs, ingest
from gleanery.service.resources.reviews import reading
from gleanery.service.resources.run_records.comparison import DEFAULT_MAX_SHARE
from gleanery.service.resources.sessions import local_storage
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import Database, Row, indexed
from gleanery.service.storage.group_lock import (
    DEFAULT_KEEP_DAYS,
    DEFAULT_KEEP_VERSIONS,
    DEFAULT_RUN_TIMEOUT_MINUTES,
    Clock,
    LockedGroup,
)
from gleanery.service.storage.paging import ListPage, ListQuery, PageLimits

_GROUPS = """
SELECT id, name, display_name, output_count, last_seq, key_fields, schema, retain_days,
    keep_versions, keep_days, run_timeout_minutes, missing_after_runs, missing_max_share, id
FROM groups WHERE organization_id = $1 AND NOT deleted
"""
_GROUPS_IN_ORDER = f"{_GROUPS} AND id > $2 AND id <= $3 ORDER BY id"
_GROUP_SIZES = """
SELECT id, CASE WHEN deleted THEN 0
    ELSE 200 + coalesce(octet_length(key_fields), 0) + coalesce(octet_length(schema), 0) END
FROM groups WHERE organization_id = $1 AND id > $2 ORDER BY id LIMIT $3
"""
_JOB_COLUMNS = "name, output_count, approved_count, review_id, created_at, status"
# The order names the group, so that PostgreSQL uses the index of the group. That index needs the
# condition on the id, which is always true.
_JOBS = """
FROM {jobs} LEFT JOIN reviews
    ON reviews.organization_id = jobs.organization_id AND reviews.id = latest_review_id
WHERE jobs.organization_id = $1 AND jobs.id > 0
"""
_JOBS_OF_GROUP = f"{_JOBS} AND jobs.group_id <= $4 AND (jobs.group_id, jobs.id) > ($4, $2)"
_JOB_SIZES = indexed(
    f"""
SELECT jobs.id, 200 + coalesce(octet_length(comment), 0) {_JOBS_OF_GROUP}
ORDER BY jobs.group_id, jobs.id LIMIT $3
""",
    jobs="jobs_in_order",
)
_JOB_ROWS = indexed(
    f"""
SELECT {_JOB_COLUMNS}, comment, jobs.id {_JOBS}
    AND jobs.group_id = $4 AND jobs.id > $2 AND jobs.id <= $3 ORDER BY jobs.id
""",
    jobs="jobs_in_order",
)
_JOBS_OF_GROUPS = indexed(
    f"""
SELECT jobs.group_id, {_JOB_COLUMNS},
    CASE WHEN octet_length(comment) <= $5 THEN comment END, jobs.id
{_JOBS} AND jobs.group_id BETWEEN $2 AND $3 ORDER BY jobs.group_id, jobs.id LIMIT $4
""",
    jobs="jobs_in_order",
)
_COUNTRIES = """
SELECT country, output_count FROM country_counts
WHERE organization_id = $1 AND group_id = $2 ORDER BY country LIMIT $3
"""
_COUNTRIES_OF_GROUPS = """
SELECT group_id, country, output_count FROM country_counts
WHERE organization_id = $1 AND group_id BETWEEN $2 AND $3 ORDER BY group_id, country LIMIT $4
"""
_MAX_COUNTRIES = 1000
_MAX_LISTED_JOBS = 100  # of each group in the list of groups
_MAX_ROWS_AT_ONCE = 1000  # of several groups
_MAX_COMMENT_AT_ONCE = 1000  # bytes
_FRAME_BYTES = 400  # of a group, beside its settings, countries and jobs
_FIND_JOB = """
SELECT id, output_count FROM jobs WHERE organization_id = $1 AND group_id = $2 AND name = $3
"""


# --- reading ------------------------------------------------------------------------------------


class Countries(NamedTuple):
    """Number of outputs by country, for the first countries of a group in alphabetical order."""

    counts: dict[str, int]
    has_more: bool


class Group(NamedTuple):
    """A group with a page of its jobs."""

    name: str
    settings: bytes
    """JSON object: the members of the group without its countries and jobs."""
    countries: Countries
    jobs: ListPage

    @property
    def size(self) -> int:
        """About the number of bytes in a response."""
        countries = sum(map(len, self.countries.counts)) + 10 * len(self.countries.counts)
        jobs = sum(map(len, self.jobs.records)) + len(self.jobs.records)
        return _FRAME_BYTES + len(self.settings) + countries + jobs


async def list_groups(database: Database, limits: PageLimits) -> tuple[Sequence[Group], int | None]:
    """Return a page of groups in the order of their creation, and the cursor of the next page."""
    rows: list[Row] = []

    def encode(row: Row) -> bytes:
        rows.append(row)
        return _encode_settings(row)

    query = ListQuery(database, _GROUP_SIZES, _GROUPS_IN_ORDER, (), encode)
    page = await paging.read_page(query, limits)
    del rows[len(page.records) :]  # of a group that does not fit
    if not rows:
        return [], page.next_cursor
    details = await _Details.read(database, rows[0][0], rows[-1][0], limits.max_bytes)
    groups: list[Group] = []
    size = 0
    for row, settings in zip(rows, page.records, strict=True):
        group_id, name = row[0], row[1]
        group = Group(name, settings, *await details.of_group(group_id))
        size += group.size
        if groups and size > limits.max_bytes:
            return groups, rows[len(groups) - 1][0]
        groups.append(group)
    return groups, page.next_cursor


async def read_group(database: Database, group: str, limits: PageLimits) -> Group:
    """Read a group with a page of its jobs."""
    rows = await database.read(f"{_GROUPS} AND name = $2", database.organization_id, group)
    if not rows:
        raise no_group()
    group_id = rows[0][0]
    countries = await _read_countries(database, group_id)
    jobs = await _read_jobs(database, group_id, limits)
    return Group(group, _encode_settings(rows[0]), countries, jobs)


def _encode_settings(row: Row) -> bytes:
    id_, name, display_name, output_count, last_seq, key_fields, schema, *limits, _ = row
    retain_days, keep_versions, keep_days, run_timeout, after_runs, max_share = limits
    settings = GroupSettingsOut(
        group_id=name,
        id=id_,
        display_name=display_name,
        outputs=output_count,
        last_change=timestamps.render_microseconds(last_seq) if last_seq else None,
        cursor=last_seq,
        key_fields=None if key_fields is None else json_text.decode(key_fields.encode()),
        schema=None if schema is None else json_text.decode(schema.encode()),
        retain_days=retain_days,
        keep_versions=DEFAULT_KEEP_VERSIONS if keep_versions is None else keep_versions,
        keep_days=DEFAULT_KEEP_DAYS if keep_days is None else keep_days,
        run_timeout_minutes=DEFAULT_RUN_TIMEOUT_MINUTES if run_timeout is None else run_timeout,
        missing={
            "after_runs": after_runs,
            "max_share": DEFAULT_MAX_SHARE if max_share is None else max_share,
        },
    )
    return json_text.encode(settings)


async def _read_jobs(database: Database, group_id: int, limits: PageLimits) -> ListPage:
    query = ListQuery(database, _JOB_SIZES, _JOB_ROWS, (group_id,), _encode_job)
    return await paging.read_page(query, limits)


def _encode_job(row: Row) -> bytes:
    name, output_count, approved_count, review_id, *review, _ = row
    latest = None if review_id is None else reading.to_response(name, review_id, *review)
    return json_text.encode(
        JobOut(job_id=name, outputs=output_count, approved=approved_count, latest_review=latest)
    )


async def _read_countries(database: Database, group_id: int) -> Countries:
    key = (database.organization_id, group_id)
    return _to_countries(await database.read(_COUNTRIES, *key, _MAX_COUNTRIES + 1))


def _to_countries(rows: Sequence[Row]) -> Countries:
    """Leave out countries without outputs, which stay in the table."""
    counts = {country: count for country, count in rows[:_MAX_COUNTRIES] if count > 0}
    return Countries(counts, has_more=len(rows) > _MAX_COUNTRIES)


class _Details(NamedTuple):
    """Jobs and countries of a range of groups.

    They are read at once if there are few. Otherwise each group is read by itself.
    """

    database: Database
    max_bytes: int
    jobs: dict[int, list[Row]] | None
    """Jobs by group; None if they were not all read."""
    countries: dict[int, list[Row]] | None

    @classmethod
    async def read(
        cls, database: Database, first_id: int, last_id: int, max_bytes: int
    ) -> _Details:
        key = (database.organization_id, first_id, last_id, _MAX_ROWS_AT_ONCE)
        jobs = await database.read(_JOBS_OF_GROUPS, *key, _MAX_COMMENT_AT_ONCE)
        countries = await database.read(_COUNTRIES_OF_GROUPS, *key)
        has_long_comment = any(row[4] is not None and row[7] is None for row in jobs)
        return cls(
            database,
            max_bytes,
            None if has_long_comment else _by_group(jobs),
            _by_group(countries),
        )

    async def of_group(self, group_id: int) -> tuple[Countries, ListPage]:
        if self.countries is None:
            countries = await _read_countries(self.database, group_id)
        else:
            countries = _to_countries(self.countries.get(group_id, ()))
        if self.jobs is None:
            limits = PageLimits(0, _MAX_LISTED_JOBS, self.max_bytes)
            return countries, await _read_jobs(self.database, group_id, limits)
        jobs = self.jobs.get(group_id, [])
        page = ListPage(
            [_encode_job(row) for row in jobs[:_MAX_LISTED_JOBS]],
            jobs[_MAX_LISTED_JOBS - 1][-1] if len(jobs) > _MAX_LISTED_JOBS else None,
        )
        return countries, page


def _by_group(rows: Sequence[Row]) -> dict[int, list[Row]] | None:
    """Arranges rows by their first column, the id of a group; None if rows may be missing."""
    if len(rows) == _MAX_ROWS_AT_ONCE:
        return None
    by_group: defaultdict[int, list[Row]] = defaultdict(list)
    for group_id, *row in rows:
        by_group[group_id].append(row)
    return by_group


# --- deletion -----------------------------------------------------------------------------------


async def delete_job(database: Database, group: str, job: str, clock: Clock) -> int:
    """Delete a job with its reviews; each of its outputs leaves a tombstone.

    Return the number of outputs that it had.
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


async def delete_group(database: Database, group: str, clock: Clock, actor: Actor) -> int:
    """Delete a group in the same way, with its local storage.

    Its change feed stays, so that clients see the deletions.
    """

    async def start_deletion(locked: LockedGroup) -> int:
        await bulk_jobs.clear_settings(locked)
        await bulk_jobs.create(locked, "delete", None)
        await local_storage.audit_deletion_of_group(
            locked.transaction, locked.group_id, locked.now, actor
        )
        return locked.output_count

    return await bulk_jobs.run_and_finish_bulk_job(database, group, clock, start_deletion)


# --- changes of settings ------------------------------------------------------------------------

_DEFAULTS: dict[str, str | float | None] = {
    "display_name": None,
    "key_fields": None,
    "schema": None,
    "retain_days": None,
    "keep_versions": DEFAULT_KEEP_VERSIONS,
    "keep_days": DEFAULT_KEEP_DAYS,
    "run_timeout_minutes": DEFAULT_RUN_TIMEOUT_MINUTES,
    "missing_after_runs": None,
    "missing_max_share": DEFAULT_MAX_SHARE,
}
"""The columns of the settings, with the values of those that are null."""
_SETTINGS = {"missing_after_runs": "missing", "missing_max_share": "missing"}
"""The settings whose columns have other names."""
_READ_SETTINGS = f"SELECT {', '.join(_DEFAULTS)} FROM groups WHERE organization_id = $1 AND id = $2"
_SAVE_SETTINGS = """
UPDATE groups
SET display_name = $3, key_fields = $4, schema = $5, retain_days = $6, next_expiry_at = 0,
    keep_versions = $7, keep_days = $8, run_timeout_minutes = $9, missing_after_runs = $10,
    missing_max_share = $11
WHERE organization_id = $1 AND id = $2
"""
_Values = tuple[str | float | None, ...]


async def set_group(
    database: Database,
    validator: SchemaValidator,
    group: str,
    settings: GroupSettings,
    clock: Clock,
    actor: Actor,
) -> None:
    """Replace the settings of a group, which is created if it does not exist."""
    key_fields = None if settings.key_fields is None else _encode_ascii(settings.key_fields)
    schema = None if settings.schema_ is None else _encode_ascii(settings.schema_)
    await ingest.check_schema(validator, database.organization_id, schema)
    limits = (settings.retain_days, settings.keep_versions, settings.keep_days)
    missing = settings.missing or MissingSettings()
    runs = (settings.run_timeout_minutes, missing.after_runs, missing.max_share)
    values = (settings.display_name, key_fields, schema, *limits, *runs)

    async def save(locked: LockedGroup) -> bool:
        group_key = (locked.organization_id, locked.group_id)
        [before] = await locked.transaction.fetch(_READ_SETTINGS, *group_key)
        await locked.transaction.fetch(_SAVE_SETTINGS, *group_key, *values)
        await _audit_settings(locked, _changed_settings(tuple(before), values), actor)
        return True

    # Waits for a bulk job: the end of a removal would delete settings that are saved before it.
    await bulk_jobs.run_and_finish_bulk_job(database, group, clock, save, group_lock.lock_or_create)


def _encode_ascii(value: object) -> str:
    """Encode as ASCII, so that NUL stays an escape; PostgreSQL cannot store NUL in text."""
    return json.dumps(value)


def _changed_settings(before: _Values, after: _Values) -> list[str]:
    """Return the names of the settings that differ, as in the API."""
    pairs = zip(_with_defaults(before), _with_defaults(after), strict=True)
    changed = [name for name, (old, new) in zip(_DEFAULTS, pairs, strict=True) if old != new]
    return [*dict.fromkeys(_SETTINGS.get(column, column) for column in changed)]


def _with_defaults(values: _Values) -> list[str | float | None]:
    pairs = zip(values, _DEFAULTS.values(), strict=True)
    return [default if value is None else value for value, default in pairs]


async def _audit_settings(locked: LockedGroup, changed: list[str], actor: Actor) -> None:
    """Append an entry. Scrapers repeat their settings at each start, which changes nothing."""
    if changed:
        about = AuditAbout(group_id=locked.name, settings=changed)
        await log.append(locked.transaction, actor, locked.now, "set_group", about)
