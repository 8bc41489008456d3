"""Bulk jobs that wait to be run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access.organizations import find_grant
from gleanery.service.resources.outputs import bulk_jobs
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Transaction
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.group_lock import LockedGroup
from tests.support.service import Service


def create_bulk_job(
    service: Service, token: str, kind: Any, job: str | None = "job", as_of: int | None = None
) -> None:
    """Creates a bulk job without running it, like a process that is killed right after."""

    async def create(locked: LockedGroup) -> None:
        job_id = None if job is None else await locked.find_job(job)
        await bulk_jobs.create(locked, kind, job_id, as_of)

    _run_locked(service, token, create)


def run_bulk_job_step(service: Service, token: str) -> None:
    """Runs one step of the bulk job, like a process that is killed right after."""

    async def step(locked: LockedGroup) -> None:
        bulk_job = await locked.pending_bulk_job()
        assert bulk_job is not None
        assert not await bulk_jobs._run_step(locked, bulk_job)
        await locked.commit_counts()

    _run_locked(service, token, step)


def _run_locked(
    service: Service, token: str, action: Callable[[LockedGroup], Awaitable[None]]
) -> None:
    async def run() -> None:
        async with open_engine(service.settings) as database:
            grant = await find_grant(database, tokens.digest(token))
            assert grant is not None

            async def work(transaction: Transaction) -> None:
                await action(await group_lock.lock(transaction, "group", timestamps.now))

            await database.for_tenant(grant.organization_id).write(work)

    asyncio.run(run())
