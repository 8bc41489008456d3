"""Sessions that have expired, or soon will: found by the expiry of their records."""

from __future__ import annotations

from typing import NamedTuple

from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.storage.database import Database, indexed

_MAX_EXPIRING = 5000
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
    key = (database.organization_id, now + seconds, _MAX_EXPIRING + 1)
    expiries: dict[tuple[str, str], list[int]] = {}
    is_complete = True
    for statement in EXPIRING_STATEMENTS:
        rows = await database.read_large(statement, *key)
        is_complete = is_complete and len(rows) <= _MAX_EXPIRING
        for host, profile, expires in rows[:_MAX_EXPIRING]:
            expiries.setdefault((host, profile), []).append(expires)
    found = [_to_session(*key, times, now) for key, times in expiries.items()]
    return ExpiringSessions(sorted(found, key=lambda one: one.first_expiry), is_complete)


def _to_session(host: str, profile: str, expiries: list[int], now: int) -> ExpiringSession:
    expired = sum(expires <= now for expires in expiries)
    return ExpiringSession(host, profile, expired, len(expiries) - expired, min(expiries))
