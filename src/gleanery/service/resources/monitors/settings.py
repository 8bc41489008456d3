"""The rules of a group as they are stored."""

from __future__ import annotations

from collections.abc import Sequence

from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.monitors import rules
from gleanery.service.resources.monitors.alerts import Changes, read_open_of_group
from gleanery.service.resources.monitors.models import MAX_RULES
from gleanery.service.resources.monitors.rules import JobRules, Rule
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, Transaction, indexed
from gleanery.service.storage.group_lock import Clock

_READ = "SELECT monitors FROM groups WHERE organization_id = $1 AND id = $2"
_SAVE = "UPDATE groups SET monitors = $3 WHERE organization_id = $1 AND id = $2"
# The next sweep looks at all jobs again, because the limits of their schedules may be others.
_LOOK_AGAIN = indexed(
    """
UPDATE {jobs} SET run_due_at = $3 WHERE organization_id = $1 AND group_id = $2 AND id > 0
    AND (run_due_at IS NULL OR run_due_at > $3)
""",
    jobs="jobs_in_order",
)
_TWICE = "another rule has the same kind, job_id and path"
_CLOSED_AT_ONCE = 1000


async def read(database: Database, group: str) -> tuple[Rule, ...]:
    """Return the rules of a group. Raise NotFound."""
    group_id = await group_lock.require_group(database, group)
    [[stored]] = await database.read(_READ, database.organization_id, group_id)
    return rules.decode(stored)


async def replace(
    database: Database, group: str, wanted: Sequence[Rule], clock: Clock, actor: Actor
) -> Sequence[Rule]:
    """Replace the rules of a group. Alerts whose rule is gone close. Raise NotFound."""
    check(wanted)

    async def work(transaction: Transaction) -> None:
        locked = await group_lock.lock(transaction, group, clock)
        key = (locked.organization_id, locked.group_id)
        [[before]] = await transaction.fetch(_READ, *key)
        await transaction.fetch(_SAVE, *key, rules.encode(wanted))
        changes = Changes(locked)
        for alert in await read_open_of_group(locked, _CLOSED_AT_ONCE):
            if not JobRules(wanted, alert.job).has(alert.kind):
                await changes.close(alert.id, "rule_removed")
        await changes.finish()
        if _schedules(wanted) != _schedules(rules.decode(before)):
            await transaction.fetch(_LOOK_AGAIN, *key, locked.now)
        about = AuditAbout(group_id=group)
        await log.append(transaction, actor, locked.now, "set_monitors", about)

    await database.write(work, queue_key=group)
    return wanted


def check(wanted: Sequence[Rule]) -> None:
    """Raise InvalidRequest if a group cannot have these rules."""
    if len(wanted) > MAX_RULES:
        msg = f"A group has at most {MAX_RULES} rules"
        raise InvalidRequest(ErrorDetail(("body",), msg, "too_long"))
    seen = set()
    for index, rule in enumerate(wanted):
        key = (rule.kind, rule.job_id, rule.path)
        if key in seen:
            raise InvalidRequest(ErrorDetail(("body", str(index)), _TWICE, "rule_twice"))
        seen.add(key)


def _schedules(of_group: Sequence[Rule]) -> set[Rule]:
    """Return the rules that decide whether a job is overdue; see ``evaluation``."""
    return {rule for rule in of_group if rule.kind in ("no_run", "failed_run")}
