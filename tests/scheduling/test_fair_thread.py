"""The thread for computations: one at a time, for the tenants in rotation."""

from __future__ import annotations

import asyncio
import threading

from gleanery.service.foundation.scheduling.fair_shares import FairThread

CROWD, SINGLE = 1, 2


def test_computations_run_one_at_a_time_for_the_tenants_in_rotation() -> None:
    running, most_at_once, order = 0, 0, []
    may_start = threading.Event()

    def compute(organization_id: int) -> None:
        nonlocal running, most_at_once
        running += 1
        most_at_once = max(most_at_once, running)
        assert may_start.wait(60)
        order.append(organization_id)
        running -= 1

    async def run_all() -> None:
        thread = FairThread()
        started = []
        for organization_id in (CROWD, CROWD, CROWD, SINGLE):
            started.append(
                asyncio.create_task(thread.run(organization_id, compute, organization_id))
            )
            await asyncio.sleep(0)  # it has its place in the queue
        may_start.set()
        await asyncio.gather(*started)

    asyncio.run(run_all())
    assert most_at_once == 1
    assert order.index(SINGLE) <= 2  # it waits for one computation of the crowd, or for two


def test_each_tenant_writes_one_large_batch_at_a_time() -> None:
    async def run() -> None:
        thread, entered, may_leave = FairThread(), asyncio.Event(), asyncio.Event()

        async def write() -> None:
            async with thread.large_write(CROWD):
                entered.set()
                await may_leave.wait()

        first = asyncio.create_task(write())
        await entered.wait()
        entered.clear()
        second = asyncio.create_task(write())
        async with asyncio.timeout(60), thread.large_write(SINGLE):
            assert not entered.is_set()  # the second one of the crowd waits
        may_leave.set()
        await asyncio.gather(first, second)
        assert entered.is_set()

    asyncio.run(run())
