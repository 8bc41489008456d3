"""What a removed job or group leaves behind when its outputs are gone: taken away in steps."""

from __future__ import annotations

from gleanery.store import groups

# What has come into being since the removal was decided on stays, and so does what holds it.
_REVIEWS = """
DELETE FROM reviews WHERE organization_id = $1 AND id IN (
    SELECT id FROM reviews
    WHERE organization_id = $1 AND group_id = $2 AND created <= $3 {of_job} LIMIT $4)
RETURNING job_id, id
"""
_NO_LATEST = """
UPDATE jobs SET latest_review = NULL WHERE organization_id = $1 AND id = $2 AND latest_review = $3
"""
_JOBS = """
DELETE FROM jobs WHERE organization_id = $1 AND id IN (
    SELECT id FROM jobs
    WHERE organization_id = $1 AND group_id = $2 AND outputs = 0 AND latest_review IS NULL
        {of_job} LIMIT $3)
RETURNING id
"""
_COUNTRIES = """
DELETE FROM countries WHERE organization_id = $1 AND group_id = $2 AND country IN (
    SELECT country FROM countries
    WHERE organization_id = $1 AND group_id = $2 AND outputs = 0 LIMIT $3)
RETURNING country
"""
_GROUP = """
UPDATE groups SET deleted = TRUE, display_name = NULL, key_fields = NULL, schema = NULL,
    retain_days = NULL
WHERE organization_id = $1 AND id = $2 AND outputs = 0
"""


async def forget(turn: groups.Turn, chore: groups.Chore, limit: int) -> bool:
    """Takes away some of it, at most ``limit`` of each kind; tells whether that was the last."""
    await turn.keep_counts()
    fetch = turn.transaction.fetch
    of_group = (turn.organization_id, turn.group_id)
    of_job = () if chore.job_id is None else (chore.job_id,)

    reviews_sql = _REVIEWS.format(of_job="AND job_id = $5" if of_job else "")
    reviews = await fetch(reviews_sql, *of_group, chore.until, limit, *of_job)
    await turn.transaction.run_each(_NO_LATEST, [(turn.organization_id, *row) for row in reviews])
    if len(reviews) == limit:
        return False
    jobs_sql = _JOBS.format(of_job="AND id = $4" if of_job else "")
    if len(await fetch(jobs_sql, *of_group, limit, *of_job)) == limit:
        return False
    if len(await fetch(_COUNTRIES, *of_group, limit)) == limit:
        return False
    if chore.job_id is None:
        await fetch(_GROUP, *of_group)
    return True
