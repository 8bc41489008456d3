"""The fair semaphore: tenants in rotation, and waiting requests that are cancelled."""

from __future__ import annotations

import asyncio

import pytest

from gleanery.service.foundation.errors import Overloaded
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore


def one_slot() -> FairSemaphore:
    return FairSemaphore(1, 60.0, "Try again")


async def hold(semaphore: FairSemaphore, tenant: int, name: str, order: list[str]) -> None:
    async with semaphore.held_for(tenant):
        order.append(name)
        await asyncio.sleep(0)


def test_tenants_get_the_slot_in_rotation() -> None:
    async def run() -> list[str]:
        semaphore, order = one_slot(), list[str]()
        requests = [(1, "a"), (1, "b"), (1, "c"), (2, "d"), (2, "e")]
        await asyncio.gather(*(hold(semaphore, tenant, name, order) for tenant, name in requests))
        return order

    assert asyncio.run(run()) == ["a", "b", "d", "c", "e"]


def test_a_cancelled_request_passes_the_slot_on() -> None:
    async def run(steps: int) -> list[str]:
        """Cancels the second request when it waits, or when it has just been given the slot."""
        semaphore, order = one_slot(), list[str]()
        tasks = [asyncio.create_task(hold(semaphore, 1, name, order)) for name in "abc"]
        for _ in range(steps):
            await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await hold(semaphore, 1, "d", order)
        return order

    for steps in range(1, 5):
        assert [name for name in asyncio.run(run(steps)) if name != "b"] == ["a", "c", "d"]


def test_a_request_does_not_wait_without_limit() -> None:
    async def run() -> None:
        semaphore = FairSemaphore(1, 0.0, "Try again")
        async with semaphore.held_for(1):
            with pytest.raises(Overloaded, match="Try again"):
                await semaphore.acquire(1)
        async with semaphore.held_for(1):  # the rejected request has left the queue
            pass

    asyncio.run(run())
