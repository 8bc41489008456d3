"""What a removed job or group leaves behind when its outputs are gone: taken away in steps.

Rows are found first and then removed by their keys, one by one: a plan for both at once that was
made while a table was small would be kept while it grows. No review comes into being during a
removal, because a review waits for the group's bulk_job to end.
"""

from __future__ import annotations

from gleanery.storage import group_lock

_REVIEWS_OF_GROUP = """
SELECT job_id, id FROM reviews WHERE organization_id = $1 AND group_id = $2 LIMIT $3
"""
_REVIEWS_OF_JOB = """
SELECT job_id, id FROM reviews
WHERE organization_id = $1 AND group_id = $2 AND job_id = $4 LIMIT $3
"""
_NO_LATEST = """
UPDATE jobs SET latest_review = NULL WHERE organization_id = $1 AND id = $2 AND latest_review = $3
"""
_DELETE_REVIEW = "DELETE FROM reviews WHERE organization_id = $1 AND id = $2"
_EMPTY_JOBS = """
SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $2 AND outputs = 0 LIMIT $3
"""
_DELETE_JOB = "DELETE FROM jobs WHERE organization_id = $1 AND id = $2 AND outputs = 0"
_NO_COUNTRIES = """
SELECT country FROM countries WHERE organization_id = $1 AND group_id = $2 AND outputs = 0 LIMIT $3
"""
_DELETE_COUNTRY = """
DELETE FROM countries WHERE organization_id = $1 AND group_id = $2 AND country = $3
"""
_CLEAR = """
UPDATE groups SET display_name = NULL, key_fields = NULL, schema = NULL, retain_days = NULL
WHERE organization_id = $1 AND id = $2
"""
_DELETE_GROUP = """
UPDATE groups SET deleted = TRUE WHERE organization_id = $1 AND id = $2 AND outputs = 0
"""


async def clear_settings(locked: group_lock.LockedGroup) -> None:
    """What is stored from now on goes into a new group under the old name."""
    await locked.transaction.fetch(_CLEAR, locked.organization_id, locked.group_id)


async def forget(locked: group_lock.LockedGroup, job_id: int | None, limit: int) -> bool:
    """Takes away at most ``limit`` of each kind; tells whether that was all."""
    await locked.save_counts()
    if job_id is None:
        return await _forget_group(locked, limit)
    if not await _forget_reviews(locked, _REVIEWS_OF_JOB, limit, job_id):
        return False
    await locked.transaction.fetch(_DELETE_JOB, locked.organization_id, job_id)
    return await _forget_countries(locked, limit)


async def _forget_group(locked: group_lock.LockedGroup, limit: int) -> bool:
    of_group = (locked.organization_id, locked.group_id)
    if not await _forget_reviews(locked, _REVIEWS_OF_GROUP, limit):
        return False
    jobs = await locked.transaction.fetch(_EMPTY_JOBS, *of_group, limit)
    await locked.transaction.execute_many(
        _DELETE_JOB, [(locked.organization_id, *row) for row in jobs]
    )
    if len(jobs) == limit or not await _forget_countries(locked, limit):
        return False
    await locked.transaction.fetch(_DELETE_GROUP, *of_group)
    return True


async def _forget_reviews(
    locked: group_lock.LockedGroup, found_by: str, limit: int, *job_id: int
) -> bool:
    rows = await locked.transaction.fetch(
        found_by, locked.organization_id, locked.group_id, limit, *job_id
    )
    of_organization = [(locked.organization_id, *row) for row in rows]
    await locked.transaction.execute_many(_NO_LATEST, of_organization)
    await locked.transaction.execute_many(
        _DELETE_REVIEW, [(organization_id, id_) for organization_id, _, id_ in of_organization]
    )
    return len(rows) < limit


async def _forget_countries(locked: group_lock.LockedGroup, limit: int) -> bool:
    of_group = (locked.organization_id, locked.group_id)
    rows = await locked.transaction.fetch(_NO_COUNTRIES, *of_group, limit)
    await locked.transaction.execute_many(_DELETE_COUNTRY, [(*of_group, *row) for row in rows])
    return len(rows) < limit
