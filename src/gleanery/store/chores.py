"""Long work on a group, such as approving a million outputs: in short steps that survive a crash.

A chore is noted in the transaction that decides on it, with the place in the change order up to
which it reaches: what comes later is not its business, and an output that is stored again before
the chore has come to it is worked on first. Each step is a transaction of its own, so
that others get their turns in between. A group has one chore at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from gleanery.errors import NotFound
from gleanery.store import groups, outputs
from gleanery.store.database import Database, Transaction

T = TypeVar("T")
Kind = Literal["approve", "withdraw", "delete"]

_NOTE = """
INSERT INTO chores (organization_id, group_id, job_id, kind, until, done)
VALUES ($1, $2, $3, $4, $5, 0)
"""
_PROGRESS = "UPDATE chores SET done = $3 WHERE organization_id = $1 AND id = $2"
_FINISH = "DELETE FROM chores WHERE organization_id = $1 AND id = $2"
_LEFT_OVER = """
SELECT DISTINCT chores.organization_id, groups.name FROM chores
JOIN groups ON groups.organization_id = chores.organization_id AND groups.id = chores.group_id
"""
_AT_ONCE = 1000


async def note(turn: groups.Turn, kind: Kind, job_id: int | None) -> None:
    """Decides on a chore for all that the job, or the whole group, holds at this moment."""
    await turn.transaction.fetch(
        _NOTE, turn.organization_id, turn.group_id, job_id, kind, turn.clock
    )


async def decide_and_carry_out(
    database: Database,
    organization_id: int,
    group: str,
    clock: groups.Clock,
    decide: Callable[[groups.Turn], Awaitable[T]],
) -> tuple[T, int]:
    """Lets ``decide`` note a chore as soon as no other is under way, and carries it out.

    Gives what ``decide`` gave, and how many outputs the chore concerned.
    """

    async def work(transaction: Transaction) -> T | None:
        turn = await groups.enter(transaction, organization_id, group, clock)
        if await turn.chore() is not None:
            return None
        decided = await decide(turn)
        await turn.end()
        return decided

    line = groups.line(organization_id, group)
    while (decided := await database.write(work, line=line)) is None:
        await carry_out(database, organization_id, group, clock)
    return decided, await carry_out(database, organization_id, group, clock)


async def carry_out(
    database: Database, organization_id: int, group: str, clock: groups.Clock
) -> int:
    """Takes steps until the group has no chore left; tells how many outputs that concerned."""
    concerned = 0
    while True:
        stepped = await _step(database, organization_id, group, clock)
        if stepped is None:
            return concerned
        concerned += stepped


async def carry_out_left_over(database: Database, clock: groups.Clock) -> None:
    """Goes on with what a crash has interrupted."""
    for organization_id, group in await database.read(_LEFT_OVER):
        await carry_out(database, organization_id, group, clock)


async def _step(
    database: Database, organization_id: int, group: str, clock: groups.Clock
) -> int | None:
    async def work(transaction: Transaction) -> int | None:
        try:
            turn = await groups.enter(transaction, organization_id, group, clock)
        except NotFound:  # its last chore has removed it
            return None
        chore = await turn.chore()
        if chore is None:
            return None
        stepped = await _take_step(turn, chore)
        if len(stepped) < _AT_ONCE:
            await transaction.fetch(_FINISH, organization_id, chore.id)
            if chore.kind == "delete":
                await turn.forget(chore.job_id)
        else:
            await transaction.fetch(_PROGRESS, organization_id, chore.id, stepped[-1])
        await turn.end()
        return len(stepped)

    return await database.write(work, line=groups.line(organization_id, group))


async def _take_step(turn: groups.Turn, chore: groups.Chore) -> list[int]:
    """The places in the change order from which this step has taken outputs."""
    found: dict[str, Any] = {"after": chore.done, "until": chore.until, "limit": _AT_ONCE}
    if chore.kind == "delete":
        return await outputs.delete_some(turn, chore.job_id, **found)
    assert chore.job_id is not None, "only a job is approved"
    return await outputs.approve_some(turn, chore.job_id, chore.kind == "approve", **found)


# --- removing -----------------------------------------------------------------------------------


async def delete_job(
    database: Database, organization_id: int, group: str, job: str, clock: groups.Clock
) -> int:
    """Removes a job: its outputs one by one through the change order, then its reviews."""

    async def decide(turn: groups.Turn) -> bool:
        job_id = await turn.find_job(job)
        if job_id is None:
            raise NotFound
        await note(turn, "delete", job_id)
        return True

    _, deleted = await decide_and_carry_out(database, organization_id, group, clock, decide)
    return deleted


async def delete_group(
    database: Database, organization_id: int, group: str, clock: groups.Clock
) -> int:
    """Removes a group likewise; its change feed stays, so that clients hear of it."""

    async def decide(turn: groups.Turn) -> bool:
        await note(turn, "delete", None)
        return True

    _, deleted = await decide_and_carry_out(database, organization_id, group, clock, decide)
    return deleted
