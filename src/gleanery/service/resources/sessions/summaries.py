"""Summaries of session state: how many records a host has, and when they expire; never a value."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from gleanery.service.foundation.field_types import SessionPosition
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.sessions import leases, records, writing
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.models import SessionOut
from gleanery.service.resources.sessions.records import IfMatch
from gleanery.service.storage.database import Database, Engine, Sql, Transaction, indexed

_EXPIRING_SECONDS = 86_400
# The index by host has all these columns, in this order. So the statement reads the index only, and
# ends after the last host of the page.
_SUMMARIES_OF_KIND = """
SELECT * FROM (
SELECT '{table}' AS kind, host, profile, count(*) AS records,
    count(CASE WHEN expires <= $4 THEN 1 END) AS expired,
    count(CASE WHEN expires > $4 AND expires <= $5 THEN 1 END) AS expiring,
    min(expires) AS first_expiry, max(updated_at) AS last_change
FROM {{{table}}}
WHERE organization_id = $1 AND (host, profile) > ($2, $3){conditions}
GROUP BY host, profile ORDER BY host, profile LIMIT $6
) AS {table}_found
"""


def _summaries(conditions: str = "") -> Sql:
    """Return the statement. The database merges, because its order depends on its collation."""
    tables = (COOKIES.table, LOCAL_STORAGE.table)
    kinds = [_SUMMARIES_OF_KIND.format(table=table, conditions=conditions) for table in tables]
    indexes = {table: f"{table}_by_host" for table in tables}
    return indexed(f"{' UNION ALL '.join(kinds)} ORDER BY host, profile", **indexes)


_ALL = _summaries()
_OF_HOST = _summaries(" AND host = $7")
_OF_PROFILE = _summaries(" AND profile = $7")
_OF_HOST_AND_PROFILE = _summaries(" AND host = $7 AND profile = $8")
_EXPIRED_COOKIES = "SELECT count(*) FROM cookies WHERE expires <= $1"
_EXPIRED_ENTRIES = "SELECT count(*) FROM local_storage WHERE expires <= $1"
_EXPIRING_COOKIES = "SELECT count(*) FROM cookies WHERE expires > $1 AND expires <= $2"
_EXPIRING_ENTRIES = "SELECT count(*) FROM local_storage WHERE expires > $1 AND expires <= $2"
MAX_EXPIRING = 5000
"""Records of each kind that are read: those that expire last. Others have long expired."""
_EXPIRING_OF_KIND = """
SELECT host, profile, expires FROM {{{table}}}
WHERE organization_id = $1 AND expires <= $2
ORDER BY expires DESC, host DESC, profile DESC LIMIT $3
"""
EXPIRING_STATEMENTS = [
    indexed(_EXPIRING_OF_KIND.format(table=kind.table), **{kind.table: f"{kind.table}_expiring"})
    for kind in (COOKIES, LOCAL_STORAGE)
]


# --- the list -----------------------------------------------------------------------------------


class SummaryFilter(NamedTuple):
    """The sessions that a client requests; by default all."""

    host: str | None = None
    profile: str | None = None


class SummaryPage(NamedTuple):
    """Sessions in the order of host and profile, and the cursor of the next page."""

    sessions: list[SessionOut]
    next_cursor: str | None


async def list_sessions(
    database: Database,
    filter_: SummaryFilter,
    after: SessionPosition,
    limit: int,
    now: int,
    expiring_seconds: int = _EXPIRING_SECONDS,
) -> SummaryPage:
    """Return the sessions after a position, each with the records of one host and profile."""
    seconds = now // timestamps.SECOND
    key = (database.organization_id, *after, seconds, seconds + expiring_seconds, limit + 1)
    values = [value for value in filter_ if value is not None]
    # Other requests run meanwhile: one host can have many records.
    rows = await database.read_large(_statement(filter_), *key, *values)
    sessions = [
        _to_response(host, profile, (_Summary(*row) for row in of_session))
        for (host, profile), of_session in groupby(rows, itemgetter(1, 2))
    ]
    page = sessions[:limit]
    has_more = len(sessions) > limit
    return SummaryPage(page, _cursor(page[-1]) if has_more else None)


def _statement(filter_: SummaryFilter) -> Sql:
    if filter_.profile is None:
        return _ALL if filter_.host is None else _OF_HOST
    return _OF_PROFILE if filter_.host is None else _OF_HOST_AND_PROFILE


class _Summary(NamedTuple):
    """The records of one kind, host and profile: a row of ``_SUMMARIES_OF_KIND``."""

    kind: str
    host: str
    profile: str
    records: int
    expired: int
    expiring: int
    first_expiry: int | None
    last_change: int


def _to_response(host: str, profile: str, summaries: Iterable[_Summary]) -> SessionOut:
    """Return the session from the summary of each kind."""
    by_kind = {one.kind: one for one in summaries}
    counts = {kind: one.records for kind, one in by_kind.items()}
    expiries = [one.first_expiry for one in by_kind.values() if one.first_expiry is not None]
    return SessionOut(
        domain=host,
        profile=profile,
        cookies=counts.get(COOKIES.table, 0),
        local_storage=counts.get(LOCAL_STORAGE.table, 0),
        expired=sum(one.expired for one in by_kind.values()),
        expiring=sum(one.expiring for one in by_kind.values()),
        first_expiry=timestamps.render(min(expiries)) if expiries else None,
        last_change=timestamps.render_microseconds(
            max(one.last_change for one in by_kind.values())
        ),
    )


def _cursor(last: SessionOut) -> str:
    return f"{last['domain']}/{last['profile']}"


# --- deletion -----------------------------------------------------------------------------------


async def delete_session(
    database: Database, host: str, profile: str, now: int, actor: Actor, if_match: IfMatch
) -> int:
    """Delete the records of a host and profile, with and without a leading dot of the domain.

    End the leases whose holders may have them. Return the number of deleted records.
    """

    async def work(transaction: Transaction) -> int:
        await records.lock_without_key(transaction, now, if_match, profile)
        cookies = await writing.delete_hosts(COOKIES, transaction, profile, [host])
        entries = await writing.delete_hosts(LOCAL_STORAGE, transaction, profile, [host])
        await leases.end_of_host(transaction, host, profile)
        deleted = len(cookies) + len(entries)
        about = AuditAbout(records=deleted, domains=[host], profile=profile)
        await log.append(transaction, actor, now, "delete_session", about)
        return deleted

    return await database.write(work, queue_key=records.QUEUE_KEY)


# --- the metric ---------------------------------------------------------------------------------


class ExpiryCounts(NamedTuple):
    """Number of session records of all organizations that have expired, or soon will."""

    expired: int = 0
    expiring: int = 0


async def count_expiring(engine: Engine, now: int) -> ExpiryCounts:
    """Count the records that have expired, and those that expire within a day."""
    database, seconds = engine.for_all_tenants(), now // timestamps.SECOND
    expired = expiring = 0
    for sql in (_EXPIRED_COOKIES, _EXPIRED_ENTRIES):
        [[count]] = await database.read_large(sql, seconds)
        expired += count
    for sql in (_EXPIRING_COOKIES, _EXPIRING_ENTRIES):
        [[count]] = await database.read_large(sql, seconds, seconds + _EXPIRING_SECONDS)
        expiring += count
    return ExpiryCounts(expired, expiring)


# --- sessions that expire soon ------------------------------------------------------------------


class ExpiringSession(NamedTuple):
    """A host and profile, with its records that have expired or soon will. Times are in seconds."""

    host: str
    profile: str
    expired: int
    expiring: int
    first_expiry: int


class ExpiringSessions(NamedTuple):
    """Sessions by their first expiry."""

    sessions: list[ExpiringSession]
    is_complete: bool
    """False if there are more records than were read."""


async def find_expiring(database: Database, now: int, seconds: int) -> ExpiringSessions:
    """Find the sessions with a record that expires within so many seconds."""
    key = (database.organization_id, now + seconds, MAX_EXPIRING + 1)
    expiries: dict[tuple[str, str], list[int]] = {}
    is_complete = True
    for statement in EXPIRING_STATEMENTS:
        rows = await database.read_large(statement, *key)
        is_complete = is_complete and len(rows) <= MAX_EXPIRING
        for host, profile, expires in rows[:MAX_EXPIRING]:
            expiries.setdefault((host, profile), []).append(expires)
    found = [_to_session(*key, times, now) for key, times in expiries.items()]
    return ExpiringSessions(sorted(found, key=lambda one: one.first_expiry), is_complete)


def _to_session(host: str, profile: str, expiries: list[int], now: int) -> ExpiringSession:
    expired = sum(expires <= now for expires in expiries)
    return ExpiringSession(host, profile, expired, len(expiries) - expired, min(expiries))
