"""The fair lock: tenants in rotation, and waiting requests that are cancelled."""

from __future__ import annotations

import asyncio

from gleanery.scheduling.fair_lock import FairLock


async def hold(lock: FairLock, tenant: int, name: str, order: list[str]) -> None:
    async with lock.held_for(tenant):
        order.append(name)
        await asyncio.sleep(0)


def test_tenants_get_the_lock_in_rotation() -> None:
    async def run() -> list[str]:
        lock, order = FairLock(), list[str]()
        requests = [(1, "a"), (1, "b"), (1, "c"), (2, "d"), (2, "e")]
        await asyncio.gather(*(hold(lock, tenant, name, order) for tenant, name in requests))
        return order

    assert asyncio.run(run()) == ["a", "b", "d", "c", "e"]


def test_a_cancelled_request_passes_the_lock_on() -> None:
    async def run(steps: int) -> list[str]:
        """Cancels the second request when it waits, or when it has just been given the lock."""
        lock, order = FairLock(), list[str]()
        tasks = [asyncio.create_task(hold(lock, 1, name, order)) for name in "abc"]
        for _ in range(steps):
            await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await hold(lock, 1, "d", order)
        return order

    for steps in range(1, 5):
        assert [name for name in asyncio.run(run(steps)) if name != "b"] == ["a", "c", "d"]
