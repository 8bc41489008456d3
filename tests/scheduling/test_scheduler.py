"""Slots, the fair queue and the scheduler by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gleanery.service.foundation.errors import Overloaded
from gleanery.service.foundation.scheduling.fair_shares import (
    ConcurrencyLimit,
    FairQueue,
    RequestScheduler,
    Slot,
)

# --- slots ----------------------------------------------------------------------------------------


def slots_of(limit: ConcurrencyLimit, organization_id: int) -> int:
    """Takes as many slots as the organization gets."""
    count = 0
    while limit.can_acquire(organization_id):
        Slot(limit, organization_id)
        count += 1
    return count


def test_tenants_share_the_slots() -> None:
    limit = ConcurrencyLimit(100)
    assert [slots_of(limit, organization_id) for organization_id in (1, 2, 3)] == [50, 25, 13]


def test_an_idle_tenant_gets_the_last_slot() -> None:
    limit = ConcurrencyLimit(3)
    for organization_id in (1, 1, 2):
        Slot(limit, organization_id)
    assert not limit.can_acquire(3)
    limit.release(2)
    assert limit.can_acquire(3)
    assert not limit.can_acquire(1)


def test_a_slot_moves_between_tenants_and_limits() -> None:
    work, transfers = ConcurrencyLimit(2), ConcurrencyLimit(1)
    slot = Slot(work, 0)
    slot.assign_tenant(7)
    assert slot.organization_id == 7
    slot.transfer(transfers)
    with pytest.raises(Overloaded):
        Slot(work, 7).transfer(transfers)
    slot.release()
    assert transfers.can_acquire(7)


def test_a_parked_slot_comes_back_if_there_is_room() -> None:
    work, waits = ConcurrencyLimit(1), ConcurrencyLimit(10)
    slot = Slot(work, 1)
    with slot.parked_in(waits):
        assert work.can_acquire(1)
    assert not work.can_acquire(1)
    with slot.parked_in(waits):
        other = Slot(work, 2)
    assert not work.can_acquire(1)  # the other one has it
    slot.release()
    assert not work.can_acquire(1)
    other.release()
    assert work.can_acquire(1)


# --- the fair queue -------------------------------------------------------------------------------


def test_tenants_take_turns() -> None:
    queue = FairQueue[str]()
    for organization_id, entry in ((1, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e"), (2, "f")):
        queue.add(organization_id, entry)
    taken = []
    while queue:
        taken.append(queue.take())
    assert taken == ["a", "d", "e", "b", "f", "c"]


# --- the scheduler --------------------------------------------------------------------------------


def scheduled(test: Callable[[RequestScheduler, ConcurrencyLimit, list[Any]], None]) -> list[Any]:
    """Runs the test in an event loop; returns the notes of each round."""

    async def run() -> list[Any]:
        limit, notes = ConcurrencyLimit(1000), list[Any]()
        scheduler = RequestScheduler(limit)
        scheduler.after_each_round(partial(notes.append, "end of round"))
        test(scheduler, limit, notes)
        for _ in range(10):
            await asyncio.sleep(0)
        return notes

    return asyncio.run(run())


def test_among_few_a_request_starts_at_once() -> None:
    def test(scheduler: RequestScheduler, limit: ConcurrencyLimit, notes: list[Any]) -> None:
        scheduler.add(Slot(limit, 1), partial(notes.append, 1))
        scheduler.defer_rejection(partial(notes.append, 2))
        notes.append("returned")

    assert scheduled(test) == [1, 2, "returned"]


def test_among_many_a_few_start_per_round() -> None:
    def test(scheduler: RequestScheduler, limit: ConcurrencyLimit, notes: list[Any]) -> None:
        slots = [Slot(limit, 1) for _ in range(20)]
        for number, slot in enumerate(slots):
            scheduler.add(slot, partial(notes.append, number))
        for number in range(10):
            scheduler.defer_rejection(partial(notes.append, f"rejection {number}"))
        notes.append("returned")

    rejections = [f"rejection {number}" for number in range(10)]
    assert scheduled(test) == [
        "returned",
        *(*range(8), "end of round", *rejections[:8]),
        *(*range(8, 16), "end of round", *rejections[8:]),
        *(*range(16, 20), "end of round"),
    ]


def test_a_round_is_shared_by_the_tenants() -> None:
    def test(scheduler: RequestScheduler, limit: ConcurrencyLimit, notes: list[Any]) -> None:
        crowd = [Slot(limit, 1) for _ in range(50)]
        for slot in crowd:
            scheduler.add_to_next_round(slot, partial(notes.append, "crowd"))
        scheduler.add_to_next_round(Slot(limit, 2), partial(notes.append, "other"))

    assert scheduled(test).index("other") == 1


def test_a_request_that_fails_to_start_delays_no_other() -> None:
    def fail() -> None:
        raise RuntimeError("it fails")

    def test(scheduler: RequestScheduler, limit: ConcurrencyLimit, notes: list[Any]) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: notes.append(str(context["exception"]))
        )
        scheduler.add_to_next_round(Slot(limit, 1), fail)
        scheduler.add_to_next_round(Slot(limit, 1), partial(notes.append, "other"))

    assert scheduled(test) == ["it fails", "other", "end of round"]
