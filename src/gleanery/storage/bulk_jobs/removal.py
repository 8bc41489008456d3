"""Deletes what belongs to a deleted job or group, after its outputs, in steps.

These are the reviews, jobs, counts and statistics, and the history and local-storage entries of a
group.

Each step first finds rows and then deletes them by their keys. A single statement for both could
keep a query plan from the time when the table was small. That plan would be slow on a large table.
No review is added during a removal, because a new review waits for the group's bulk job.
"""

from __future__ import annotations

from gleanery.storage.group_lock import BulkJob, LockedGroup
from gleanery.storage.history import expiry
from gleanery.storage.sessions import local_storage
from gleanery.storage.statistics.removal import delete_of_jobs

_REVIEWS_OF_GROUP = """
SELECT job_id, id FROM reviews WHERE organization_id = $1 AND group_id = $2 LIMIT $3
"""
_REVIEWS_OF_JOB = """
SELECT job_id, id FROM reviews
WHERE organization_id = $1 AND group_id = $2 AND job_id = $4 LIMIT $3
"""
_UNSET_LATEST_REVIEW = """
UPDATE jobs SET latest_review_id = NULL
WHERE organization_id = $1 AND id = $2 AND latest_review_id = $3
"""
_DELETE_REVIEW = "DELETE FROM reviews WHERE organization_id = $1 AND id = $2"
_EMPTY_JOBS = """
SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $2 AND output_count = 0 LIMIT $3
"""
_DELETE_JOB = """
DELETE FROM jobs WHERE organization_id = $1 AND id = $2 AND output_count = 0 RETURNING id
"""
_EMPTY_COUNTRIES = """
SELECT country FROM country_counts
WHERE organization_id = $1 AND group_id = $2 AND output_count = 0 LIMIT $3
"""
_DELETE_COUNTRY = """
DELETE FROM country_counts WHERE organization_id = $1 AND group_id = $2 AND country = $3
"""
_CLEAR_SETTINGS = """
UPDATE groups SET display_name = NULL, key_fields = NULL, schema = NULL, retain_days = NULL,
    keep_versions = NULL, keep_days = NULL
WHERE organization_id = $1 AND id = $2
"""
_DELETE_GROUP = """
UPDATE groups SET deleted = TRUE WHERE organization_id = $1 AND id = $2 AND output_count = 0
"""


async def clear_settings(locked: LockedGroup) -> None:
    """Remove the settings; outputs stored from now on form a new group with the same name."""
    await locked.transaction.fetch(_CLEAR_SETTINGS, locked.organization_id, locked.group_id)


async def delete_dependents(locked: LockedGroup, bulk_job: BulkJob, limit: int) -> bool:
    """Delete at most ``limit`` rows of each table. Return True if nothing is left to delete.

    The history of outputs that were stored again after the request stays.
    """
    await locked.save_counts()
    if bulk_job.job_id is None:
        is_empty = await expiry.delete_with_group(locked, bulk_job.until_seq, limit)
        return is_empty and await _delete_group(locked, limit)
    if not await _delete_reviews(locked, _REVIEWS_OF_JOB, limit, bulk_job.job_id):
        return False
    job_key = (locked.organization_id, bulk_job.job_id)
    deleted = await locked.transaction.fetch(_DELETE_JOB, *job_key)
    await delete_of_jobs(locked, [row[0] for row in deleted])
    return await _delete_countries(locked, limit)


async def _delete_group(locked: LockedGroup, limit: int) -> bool:
    group_key = (locked.organization_id, locked.group_id)
    if not await _delete_reviews(locked, _REVIEWS_OF_GROUP, limit):
        return False
    jobs = await locked.transaction.fetch(_EMPTY_JOBS, *group_key, limit)
    deleted = await locked.transaction.fetch_many(
        _DELETE_JOB, [(locked.organization_id, *row) for row in jobs]
    )
    await delete_of_jobs(locked, [row[0] for row in deleted])
    if len(jobs) == limit or not await _delete_countries(locked, limit):
        return False
    if not await local_storage.delete_of_group(locked.transaction, locked.group_id, limit):
        return False
    await locked.transaction.fetch(_DELETE_GROUP, *group_key)
    return True


async def _delete_reviews(locked: LockedGroup, search: str, limit: int, *job_id: int) -> bool:
    group_key = (locked.organization_id, locked.group_id)
    rows = await locked.transaction.fetch(search, *group_key, limit, *job_id)
    await locked.transaction.execute_many(
        _UNSET_LATEST_REVIEW, [(locked.organization_id, *row) for row in rows]
    )
    await locked.transaction.execute_many(
        _DELETE_REVIEW, [(locked.organization_id, review_id) for _, review_id in rows]
    )
    return len(rows) < limit


async def _delete_countries(locked: LockedGroup, limit: int) -> bool:
    group_key = (locked.organization_id, locked.group_id)
    rows = await locked.transaction.fetch(_EMPTY_COUNTRIES, *group_key, limit)
    await locked.transaction.execute_many(_DELETE_COUNTRY, [(*group_key, *row) for row in rows])
    return len(rows) < limit
