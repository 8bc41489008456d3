"""Bulk jobs that wait to be run."""

from __future__ import annotations

import asyncio
from typing import Any

from gleanery.security import tokens
from gleanery.storage import group_lock
from gleanery.storage.bulk_jobs import jobs as bulk_jobs
from gleanery.storage.database import Transaction
from gleanery.storage.engines import open_engine
from gleanery.storage.organizations import find_grant
from gleanery.values import timestamps
from tests.support.service import Service


def create_bulk_job(
    service: Service, token: str, kind: Any, job: str | None = "job", as_of: int | None = None
) -> None:
    """Creates a bulk job without running it, like a process that is killed right after."""

    async def run() -> None:
        async with open_engine(service.settings) as database:
            grant = await find_grant(database, tokens.digest(token))
            assert grant is not None

            async def work(transaction: Transaction) -> None:
                locked = await group_lock.lock(transaction, "group", timestamps.now)
                job_id = None if job is None else await locked.find_job(job)
                await bulk_jobs.create(locked, kind, job_id, as_of)

            await database.for_tenant(grant.organization_id).write(work)

    asyncio.run(run())
