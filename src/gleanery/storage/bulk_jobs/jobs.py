"""Long work on a group, such as approving a million outputs: in short steps that survive a crash.

A chore is noted in the transaction that decides on it, with the place in the change order up to
which it reaches: what comes later is not its business, and an output that is stored again before
the chore has come to it is worked on first. Each step is a transaction of its own, so
that others get their turns in between. A group has one chore at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from gleanery.errors import NotFound
from gleanery.storage import group_lock
from gleanery.storage.bulk_jobs import removal
from gleanery.storage.database import Database, Engine, Transaction
from gleanery.storage.outputs import mutations

T = TypeVar("T")
_log = logging.getLogger("gleanery")

_NOTE = """
INSERT INTO chores (organization_id, group_id, job_id, kind, until, done)
VALUES ($1, $2, $3, $4, $5, 0)
"""
_PROGRESS = "UPDATE chores SET done = $3 WHERE organization_id = $1 AND id = $2"
_FINISH = "DELETE FROM chores WHERE organization_id = $1 AND id = $2"
_LEFT_OVER = """
SELECT chores.organization_id, groups.name, chores.id FROM chores
JOIN groups ON groups.organization_id = chores.organization_id AND groups.id = chores.group_id
ORDER BY chores.id
"""
_AT_ONCE = 1000


async def note(turn: group_lock.Turn, kind: group_lock.ChoreKind, job_id: int | None) -> None:
    """Decides on a chore for all that the job, or the whole group, holds at this moment."""
    await turn.transaction.fetch(
        _NOTE, turn.organization_id, turn.group_id, job_id, kind, turn.clock
    )


async def decide_and_carry_out(
    database: Database,
    organization_id: int,
    group: str,
    clock: group_lock.Clock,
    decide: Callable[[group_lock.Turn], Awaitable[T]],
    enter: group_lock.Enter = group_lock.enter,
) -> T:
    """Lets ``decide`` note a chore as soon as no other is under way, and carries it out.

    Once it is decided, it is done sooner or later: if this fails on the way, the sweep goes on.
    """

    async def work(transaction: Transaction) -> tuple[group_lock.Chore | None, T | None]:
        turn = await enter(transaction, organization_id, group, clock)
        under_way = await turn.chore()
        if under_way is not None:
            return under_way, None
        decided = await decide(turn)
        await turn.end()
        return await turn.chore(), decided

    line = group_lock.line(organization_id, group)
    while True:
        chore, decided = await database.write(work, line=line)
        try:
            if chore is not None:
                await _carry_out(database, organization_id, group, clock, chore.id)
        except Exception:
            if decided is None:
                raise
            _log.exception("a chore is left to the sweep")
        if decided is not None:
            return decided


async def left_over(engine: Engine, clock: group_lock.Clock) -> list[Callable[[], Awaitable[None]]]:
    """What a crash has interrupted, each to be carried out on its own."""
    return [
        partial(
            _carry_out, engine.for_tenant(organization_id), organization_id, group, clock, chore_id
        )
        for organization_id, group, chore_id in await engine.for_all_tenants().read(_LEFT_OVER)
    ]


async def _carry_out(
    database: Database, organization_id: int, group: str, clock: group_lock.Clock, chore_id: int
) -> None:
    """Takes steps until this chore is done, by whomever."""

    async def step(transaction: Transaction) -> bool:
        try:
            turn = await group_lock.enter(transaction, organization_id, group, clock)
        except NotFound:  # the chore was to remove it
            return False
        chore = await turn.chore()
        if chore is None or chore.id != chore_id:
            return False
        last = await _take_step(turn, chore)
        if last:
            await transaction.fetch(_FINISH, organization_id, chore.id)
        await turn.end()
        return not last

    while await database.write(step, line=group_lock.line(organization_id, group)):
        pass


async def _take_step(turn: group_lock.Turn, chore: group_lock.Chore) -> bool:
    """Works on the next of the chore's outputs; tells whether nothing is left to do."""
    span = mutations.Span(chore.done, chore.until, _AT_ONCE)
    if chore.kind == "delete":
        places = await mutations.delete_some(turn, chore.job_id, span)
    else:
        assert chore.job_id is not None, "only a job is approved"
        places = await mutations.approve_some(turn, chore.job_id, chore.kind == "approve", span)
    if len(places) == _AT_ONCE:
        await turn.transaction.fetch(_PROGRESS, turn.organization_id, chore.id, places[-1])
        return False
    return chore.kind != "delete" or await removal.forget(turn, chore.job_id, _AT_ONCE)
