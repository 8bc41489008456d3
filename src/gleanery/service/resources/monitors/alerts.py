"""The rows of alerts: they open, are updated with each run, and close; persons change them.

An alert belongs to a kind of rule and a job. If the kind compares runs with the same labels, there
can be one for each set of labels. All changes happen under the lock of the group, so at most one of
them is open.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gleanery.service.foundation.errors import AlertConflict, no_alert
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.monitors import alert_pages, messages
from gleanery.service.resources.monitors.judging import FieldFact, Level, Verdict
from gleanery.service.resources.monitors.models import (
    AlertIn,
    AlertOut,
    CloseReason,
    FactOut,
    FactsOut,
)
from gleanery.service.resources.monitors.rules import WITH_LABELS, Kind, Rule
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, indexed
from gleanery.service.storage.group_lock import Clock, LockedGroup

KEPT_ALERTS = 500
"""Closed alerts of a job that are kept."""
KEPT_OPEN = 1000
"""Open alerts of a job. No run may ever close them, if each run has other labels."""
_SHOWN_FIELDS = 20
_OPEN_OF_JOB = """
SELECT id, kind, labels, usual, muted_until, is_silent FROM alerts
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND closed_at IS NULL
"""
_OPEN_OF_GROUP = indexed(
    """
SELECT id, kind,
    (SELECT name FROM jobs WHERE organization_id = $1 AND jobs.id = alerts.job_id)
FROM {alerts} WHERE organization_id = $1 AND group_id = $2 AND closed_at IS NULL
ORDER BY id LIMIT $3
""",
    alerts="alerts_open_of_group",
)
# Alerts of a job are few, and its last alert of this kind is among the newest.
_LAST_MUTED = """
SELECT muted_until FROM alerts
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND kind = $4 AND labels = $5
ORDER BY id DESC LIMIT 1
"""
# Those that have opened most recently stay open.
_TOO_MANY = indexed(
    """
SELECT id FROM {alerts}
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND closed_at IS NULL
ORDER BY id DESC LIMIT 1 OFFSET $4
""",
    alerts="alerts_open_of_job",
)
# The newest alert whose run was said to be normal.
_ACCEPTED = """
SELECT kind, last_run, observed FROM alerts
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND labels = $4
    AND close_reason = 'normal'
ORDER BY id DESC LIMIT 100
"""
_INTERRUPTIONS = """
SELECT opened_at FROM alerts
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND kind = 'no_run'
    AND opened_at > $4 AND coalesce(close_reason, '') <> 'normal'
ORDER BY id DESC LIMIT 100
"""
_OPEN = """
INSERT INTO alerts (organization_id, alert_id, group_id, job_id, kind, labels, rule, facts, usual,
    observed, run_id, last_run_id, last_run, run_count, opened_at, muted_until, is_silent)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12, $13, $14, $15, $16)
RETURNING id
"""
_UPDATE = """
UPDATE alerts SET rule = $3, facts = $4, observed = $5, last_run_id = $6, last_run = $7,
    run_count = run_count + 1
WHERE organization_id = $1 AND id = $2
"""
_SET_FACTS = "UPDATE alerts SET facts = $3 WHERE organization_id = $1 AND id = $2"
_TELL = "UPDATE alerts SET is_silent = FALSE WHERE organization_id = $1 AND id = $2"
_CLOSE = """
UPDATE alerts SET closed_at = $3, close_reason = $4 WHERE organization_id = $1 AND id = $2
RETURNING muted_until
"""
_NEWEST = """
SELECT id FROM alerts WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
ORDER BY id DESC LIMIT 1 OFFSET $4
"""
_DELETE_OLD = """
DELETE FROM alerts WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND id <= $4
    AND closed_at IS NOT NULL AND close_reason <> 'normal'
"""
_GROUP_OF = """
SELECT name FROM groups WHERE organization_id = $1 AND id = (
    SELECT group_id FROM alerts WHERE organization_id = $1 AND alert_id = $2)
"""
_STATE = """
SELECT id, kind, closed_at, close_reason FROM alerts
WHERE organization_id = $1 AND alert_id = $2
"""
_ACKNOWLEDGE = """
UPDATE alerts SET acknowledged_at = $3, acknowledged_by = $4
WHERE organization_id = $1 AND id = $2
"""
_MUTE = "UPDATE alerts SET muted_until = $3 WHERE organization_id = $1 AND id = $2"
_NO_LEVEL = (
    "Alerts of this kind have no normal level: change the threshold of the rule, or switch it "
    "off for the job"
)
_CLOSED = "This alert is closed"


# --- alerts that open and close -----------------------------------------------------------------


class OpenAlert(NamedTuple):
    """An alert that is open, and what was usual when it opened."""

    id: int
    kind: Kind
    labels: str
    usual: str
    muted_until: int | None
    is_silent: bool
    """True if it has opened while it was muted, and nobody was told since."""

    @property
    def level(self) -> Level:
        return decode_level(self.usual)


class OpenAlertOfGroup(NamedTuple):
    """An alert that is open, with the name of its job."""

    id: int
    kind: Kind
    job: str


class JudgedBy(NamedTuple):
    """The run that opens or updates an alert; without a run, there was none in time."""

    number: int
    run_id: str | None


class Accepted(NamedTuple):
    """What a person has said to be normal: the level of this run, and of later ones."""

    last_run: int
    level: Level


decode_level = msgspec.json.Decoder(Level).decode


async def read_open(
    source: Any, organization_id: int, group_id: int, job_id: int
) -> list[OpenAlert]:
    """Return the open alerts of a job. ``source`` is the read of a database or a transaction."""
    rows = await source(_OPEN_OF_JOB, organization_id, group_id, job_id)
    return sorted((OpenAlert(*row) for row in rows), key=lambda alert: alert.id)


async def read_open_of_group(locked: LockedGroup, limit: int) -> list[OpenAlertOfGroup]:
    """Return the first open alerts of a group."""
    key = (locked.organization_id, locked.group_id, limit)
    rows = await locked.transaction.fetch(_OPEN_OF_GROUP, *key)
    return [OpenAlertOfGroup(*row) for row in rows]


async def read_accepted(
    database: Database, group_id: int, job_id: int, labels: str
) -> dict[Kind, Accepted]:
    """Return what persons have said to be normal, by kind."""
    key = (database.organization_id, group_id, job_id, labels)
    found: dict[Kind, Accepted] = {}
    for kind, last_run, observed in await database.read(_ACCEPTED, *key):
        found.setdefault(kind, Accepted(last_run, decode_level(observed)))
    return found


async def read_interruptions(
    source: Any, organization_id: int, group_id: int, job_id: int, since: int
) -> list[int]:
    """Return when a job was overdue. ``source`` is the read of a database or a transaction."""
    key = (organization_id, group_id, job_id, since)
    return [row[0] for row in await source(_INTERRUPTIONS, *key)]


class Changes:
    """The alerts that one transaction opens and closes. ``finish`` tells the webhooks of them."""

    def __init__(self, locked: LockedGroup) -> None:
        self._locked = locked
        self._opened: list[int] = []
        self._closed: list[int] = []

    async def open(
        self,
        job_id: int,
        kind: Kind,
        labels: str,
        verdict: Verdict,
        usual: Level,
        observed: Level,
        run: JudgedBy,
    ) -> None:
        locked, rule = self._locked, verdict.rule
        assert rule is not None
        key = (locked.organization_id, locked.group_id, job_id)
        last = await locked.transaction.fetch(_LAST_MUTED, *key, kind, labels)
        muted_until = last[0][0] if last else None
        if muted_until is not None and muted_until <= locked.now:
            muted_until = None
        [[id_]] = await locked.transaction.fetch(
            _OPEN,
            locked.organization_id,
            uuid.uuid4().hex,
            *(locked.group_id, job_id, kind, labels),
            *(_encode(rule), _encode_facts(verdict), _encode(usual), _encode(observed)),
            *(run.run_id, run.number, 0 if run.run_id is None else 1),
            *(locked.now, muted_until, muted_until is not None),
        )
        if muted_until is None:
            self._opened.append(id_)
        for [old_id] in await locked.transaction.fetch(_TOO_MANY, *key, KEPT_OPEN):
            await self.close(old_id, "over")
        newest = await locked.transaction.fetch(_NEWEST, *key, KEPT_ALERTS)
        if newest:
            await locked.transaction.fetch(_DELETE_OLD, *key, newest[0][0])

    async def update(
        self, alert: OpenAlert, verdict: Verdict, observed: Level, run: JudgedBy
    ) -> None:
        rule = verdict.rule
        assert rule is not None
        values = (_encode(rule), _encode_facts(verdict), _encode(observed), run.run_id, run.number)
        key = (self._locked.organization_id, alert.id)
        await self._locked.transaction.fetch(_UPDATE, *key, *values)
        await self._tell_late(alert)

    async def set_facts(self, alert: OpenAlert, verdict: Verdict) -> None:
        """Store new numbers, although there was no other run."""
        key = (self._locked.organization_id, alert.id)
        await self._locked.transaction.fetch(_SET_FACTS, *key, _encode_facts(verdict))
        await self._tell_late(alert)

    async def _tell_late(self, alert: OpenAlert) -> None:
        """Tell of an alert that has opened while it was muted, if it is not muted any more."""
        locked = self._locked
        if alert.is_silent and (alert.muted_until is None or alert.muted_until <= locked.now):
            await locked.transaction.fetch(_TELL, locked.organization_id, alert.id)
            self._opened.append(alert.id)

    async def close(self, id_: int, reason: CloseReason) -> None:
        locked = self._locked
        key = (locked.organization_id, id_)
        [[muted_until]] = await locked.transaction.fetch(_CLOSE, *key, locked.now, reason)
        if muted_until is None or muted_until <= locked.now:
            self._closed.append(id_)

    async def finish(self) -> None:
        """Store the events of the alerts."""
        if self._opened:
            await messages.store(self._locked, "alert.opened", await self._read(self._opened))
        if self._closed:
            await messages.store(self._locked, "alert.closed", await self._read(self._closed))

    async def _read(self, ids: Sequence[int]) -> list[AlertOut]:
        key = self._locked.organization_id
        fetch = self._locked.transaction.fetch
        return [
            alert_pages.to_alert(row)
            for id_ in ids
            for row in await fetch(alert_pages.BY_ID, key, id_)
        ]


async def close_kind(locked: LockedGroup, job_id: int, kind: Kind) -> None:
    """Close the alerts of this kind, because a person has ended their cause."""
    changes = Changes(locked)
    key = (locked.organization_id, locked.group_id, job_id)
    for alert in await read_open(locked.transaction.fetch, *key):
        if alert.kind == kind:
            await changes.close(alert.id, "over")
    await changes.finish()


def _encode(value: Rule | Level) -> str:
    members = value._asdict() if isinstance(value, Rule) else value
    return msgspec.json.encode(members).decode()


def _encode_facts(verdict: Verdict) -> str:
    facts = FactsOut(
        value=verdict.value,
        usual=verdict.usual,
        fields=[_to_fact(fact) for fact in verdict.fields[:_SHOWN_FIELDS]],
        field_count=len(verdict.fields),
    )
    return msgspec.json.encode(facts).decode()


def _to_fact(fact: FieldFact) -> FactOut:
    return FactOut(path=fact.path, usual=fact.usual, value=fact.value, detail=fact.detail)


# --- what persons say about alerts --------------------------------------------------------------


async def change(
    database: Database, alert_id: str, wanted: AlertIn, clock: Clock, actor: Actor
) -> AlertOut:
    """Acknowledge or mute an alert, or accept what it is about. Raise NotFound, AlertConflict."""
    groups = await database.read(_GROUP_OF, database.organization_id, alert_id)
    if not groups:
        raise no_alert()
    group = str(groups[0][0])

    async def work(transaction: Any) -> AlertOut:
        locked = await group_lock.lock(transaction, group, clock)
        organization_id = locked.organization_id
        rows = await transaction.fetch(_STATE, organization_id, alert_id)
        if not rows:
            raise no_alert()
        [[id_, kind, closed_at, close_reason]] = rows
        given = wanted.model_fields_set
        if "muted_until" in given:
            await transaction.fetch(_MUTE, organization_id, id_, wanted.muted_until)
        if wanted.acknowledged is not None:
            by = actor.person or "the API" if wanted.acknowledged else None
            at = locked.now if wanted.acknowledged else None
            await transaction.fetch(_ACKNOWLEDGE, organization_id, id_, at, by)
        if wanted.normal and close_reason != "normal":  # a request may be repeated
            if closed_at is not None:
                raise AlertConflict(("body", "normal"), _CLOSED)
            if kind not in WITH_LABELS:
                raise AlertConflict(("body", "normal"), _NO_LEVEL)
            changes = Changes(locked)
            await changes.close(id_, "normal")
            await changes.finish()
        [row] = await transaction.fetch(alert_pages.BY_ID, organization_id, id_)
        about = AuditAbout(group_id=group, alert_id=alert_id, settings=sorted(given))
        await log.append(transaction, actor, locked.now, "set_alert", about)
        return alert_pages.to_alert(row)

    return await database.write(work, queue_key=group)
