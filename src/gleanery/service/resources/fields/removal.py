"""Deletes the statistics of deleted jobs."""

from __future__ import annotations

from collections.abc import Collection

from gleanery.service.storage.group_lock import LockedGroup

_DELETIONS = [
    f"DELETE FROM {table} WHERE organization_id = $1 AND group_id = $2 AND job_id = $3"
    for table in ("deleted_in_scrape", "job_scrapes", "job_statistics")
]


async def delete_of_jobs(locked: LockedGroup, jobs: Collection[int]) -> None:
    """Delete the statistics of jobs of the group, which have no outputs."""
    key = (locked.organization_id, locked.group_id)
    for deletion in _DELETIONS:
        await locked.transaction.execute_many(deletion, [(*key, job_id) for job_id in jobs])
