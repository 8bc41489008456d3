"""Leases: one holder at a time has the session state of a domain and a profile.

A lease is a row of ``session_leases``. Its state follows from the row and the time::

    free      no row
    held      a row whose ``expires_at`` is in the future
    expired   a row whose ``expires_at`` has passed; it counts as free

``acquire`` makes a free session held, and ``change`` extends it. A session becomes free again by
``change`` with a return, by ``release``, by ``end_of_host``, and when its time is over. Nothing has
to happen when a lease expires: the next ``acquire`` or the sweep (``delete_expired``) deletes its
row.

What always holds:

- Two held leases of one profile never have the same host, or a parent and a child host: these
  share cookies.
- A transaction that changes leases locks the organization's session state first. It then
  reads the time from the database server or, with SQLite, from the clock of the machine. So a
  lease ends for everybody at the same moment.
- A lease lasts for at most ``MAX_LEASE_SECONDS``. If the clock was set back,
  ``acquire`` shortens the leases to this length.
- A change of the session and of its lease are one transaction. It fails if the lease has ended.
- A lease excludes other leases only. A write without a lease is always possible.

::

    handlers.acquire_lease
      ├─ acquire           refuses without the lock if it can; lock, remove ended, insert, audit
      ├─ states.read_state after the commit; if this fails, the lease is released
      └─ release
    handlers.renew_lease
      ├─ read              finds the lease
      ├─ within            leaves out the records that the lease does not cover
      └─ change            lock, find, check If-Match, store records, extend or end, audit

See ``docs/explanation/leases.md``.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gleanery.service.foundation import errors
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout, AuditAction
from gleanery.service.resources.sessions import records
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.documents import (
    PreparedState,
    Replacement,
    StateChanges,
    store_state,
)
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.models import MAX_LEASE_SECONDS, LeaseOut
from gleanery.service.resources.sessions.records import (
    ALL_GROUPS,
    QUEUE_KEY,
    IfMatch,
    lock_session_state,
    lock_without_key,
)
from gleanery.service.storage.database import Database, Engine, Row, Transaction
from gleanery.service.storage.group_lock import Clock
from gleanery.sessions import ReadResult, browser_rules
from gleanery.sessions.model import Losses

MAX_LEASES = 1000
"""The most leases that an organization has at a time."""
_COLUMNS = "id, profile, domain, holder, token_id, acquired_at, expires_at"
_CURRENT = f"""
SELECT {_COLUMNS} FROM session_leases
WHERE organization_id = $1 AND expires_at > $2 ORDER BY acquired_at, id
"""
_FIND = f"""
SELECT {_COLUMNS} FROM session_leases WHERE organization_id = $1 AND id = $2 AND expires_at > $3
"""
_DELETE_ENDED = "DELETE FROM session_leases WHERE organization_id = $1 AND expires_at <= $2"
_SHORTEN = """
UPDATE session_leases SET expires_at = $2 WHERE organization_id = $1 AND expires_at > $2
RETURNING id
"""
_INSERT = f"""
INSERT INTO session_leases (organization_id, {_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
_SET_EXPIRY = "UPDATE session_leases SET expires_at = $3 WHERE organization_id = $1 AND id = $2"
_DELETE = "DELETE FROM session_leases WHERE organization_id = $1 AND id = $2"
_ANY_EXPIRED = "SELECT 1 FROM session_leases WHERE expires_at < $1 LIMIT 1"
# The condition is there twice: a lease may be renewed while the deletion waits for its row.
_DELETE_EXPIRED = """
DELETE FROM session_leases WHERE expires_at < $1 AND (organization_id, id) IN (
    SELECT organization_id, id FROM session_leases
    WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)
RETURNING id
"""
_HELD = "Another holder has this session, or that of a parent or child host; try again later"
_TOO_MANY = f"Your organization has {MAX_LEASES} leases: return some, or try again later"
_OTHER_HOST = (
    "A record is left out, because pages on the leased domain do not see it. A leading dot of the "
    "domain includes subdomains"
)
_DELETED_PER_TRANSACTION = 1000
_MAX_RETRY_SECONDS = 2  # most holders return their lease early


class Lease(NamedTuple):
    """A lease as it is stored."""

    id: str
    profile: str
    domain: str
    """A host. A leading dot includes its subdomains."""
    holder: str | None
    token_id: int
    acquired_at: int
    expires_at: int

    @property
    def host(self) -> str:
        return self.domain.removeprefix(".")

    def seconds_left(self, now: int) -> int:
        """Return the whole seconds that are left: a holder must never count too many."""
        return max(self.expires_at - now, 0) // timestamps.SECOND

    def to_response(self, now: int) -> LeaseOut:
        return LeaseOut(
            id=self.id,
            domain=self.domain,
            profile=self.profile,
            holder=self.holder,
            token_id=self.token_id,
            acquire_date=timestamps.render_microseconds(self.acquired_at),
            expires=timestamps.render_microseconds(self.expires_at),
            seconds=self.seconds_left(now),
        )


class Wanted(NamedTuple):
    """A lease that a client wants."""

    domain: str
    profile: str
    seconds: int
    holder: str | None
    format: str
    """Format in which the client gets the session."""

    @property
    def host(self) -> str:
        return self.domain.removeprefix(".")

    def starting(self, now: int, token_id: int) -> Lease:
        """Return a new lease that starts now."""
        id_, expires_at = secrets.token_hex(16), now + self.seconds * timestamps.SECOND
        return Lease(id_, self.profile, self.domain, self.holder, token_id, now, expires_at)


class Timed(NamedTuple):
    """A lease, and the time at which it was read or changed."""

    lease: Lease
    now: int

    def to_response(self) -> LeaseOut:
        return self.lease.to_response(self.now)


# --- acquisition --------------------------------------------------------------------------------


async def acquire(
    engine: Engine, organization_id: int, wanted: Wanted, clock: Clock, actor: Actor
) -> Timed:
    """Store a lease and return when it is durable. Raise Leased if another one excludes it.

    A read before the transaction refuses most requests of clients that wait, so that they do not
    delay writers.

    Whoever holds the lease may read the session, so the audit entry is in the same transaction. If
    the response is lost, nobody knows the lease, and it expires.
    """
    assert actor.token_id is not None
    token_id = actor.token_id
    found = await _read_current(engine, organization_id, clock)
    if not found.has_too_long_lease:
        _require_free(found.leases, wanted, found.now)

    async def work(transaction: Transaction) -> Timed | None:
        now = await _lock(transaction, clock)
        lease = wanted.starting(now, token_id)
        was_clock_set_back = await _remove_ended(transaction, now)
        try:
            rows = await transaction.fetch(_CURRENT, organization_id, now)
            _require_free([Lease(*row) for row in rows], wanted, now)
        except errors.Leased:
            if was_clock_set_back:
                return None  # an error would undo that leases are shortened
            raise
        await transaction.fetch(_INSERT, organization_id, *lease)
        await _audit(
            transaction, lease, clock, actor, "acquire_lease", AuditAbout(format=wanted.format)
        )
        return Timed(lease, now)

    database = engine.for_tenant(organization_id)
    acquired = await database.write(work, queue_key=QUEUE_KEY)
    if acquired is None:
        raise errors.Leased(_HELD, _MAX_RETRY_SECONDS)
    return acquired


async def _lock(transaction: Transaction, clock: Clock) -> int:
    """Locks the session state, and returns the time after that."""
    await lock_without_key(transaction)
    server_time = await transaction.server_time()
    return clock() if server_time is None else server_time


async def _remove_ended(transaction: Transaction, now: int) -> bool:
    """Delete ended leases. Return True if the clock was set back since a lease was acquired.

    Such a lease would last too long. Its holder counts an hour at most, so it ends in an hour.
    """
    organization_id = transaction.organization_id
    await transaction.fetch(_DELETE_ENDED, organization_id, now)
    latest = now + MAX_LEASE_SECONDS * timestamps.SECOND
    return bool(await transaction.fetch(_SHORTEN, organization_id, latest))


def _require_free(current: Sequence[Lease], wanted: Wanted, now: int) -> None:
    """Raise Leased if a current lease excludes the wanted one, or if there are too many."""
    if excluding := [lease.seconds_left(now) for lease in current if _excludes(lease, wanted)]:
        raise errors.Leased(_HELD, _retry_after(max(excluding)))
    if len(current) >= MAX_LEASES:
        left = [lease.seconds_left(now) for lease in current]
        raise errors.Leased(_TOO_MANY, _retry_after(min(left)))


def _excludes(lease: Lease, wanted: Wanted) -> bool:
    if lease.profile != wanted.profile:
        return False
    return (
        lease.host == wanted.host
        or lease.host.endswith(f".{wanted.host}")
        or wanted.host.endswith(f".{lease.host}")
    )


def _retry_after(seconds_left: int) -> int:
    return min(seconds_left + 1, _MAX_RETRY_SECONDS)


# --- the holder's changes -----------------------------------------------------------------------


class Change(NamedTuple):
    """What a holder does with its lease and the session."""

    seconds: int | None
    """Time until the lease expires; None keeps its expiry."""
    is_returned: bool
    state: PreparedState | None
    """Records to store, of the lease's profile."""
    replacement: Replacement
    if_match: IfMatch


class Changed(NamedTuple):
    """A lease after a change, and the changes of the session."""

    timed: Timed
    changes: StateChanges
    etag: str
    """The new version of the session."""


def within(lease: Lease, document: ReadResult) -> ReadResult:
    """Leaves out the records that pages on the leased domain do not see; counts them as losses.

    Another holder may have their hosts.
    """
    given, losses = document.state, Losses()
    state = browser_rules.of_domain(given, lease.domain)
    losses.add("cookie", _OTHER_HOST, "cookie", len(given.cookies) - len(state.cookies))
    entries = len(given.local_storage) - len(state.local_storage)
    losses.add("local_storage", _OTHER_HOST, "entry", entries)
    pages = tuple(page for page in document.pages if _has_host(lease, page.host))
    all_losses = (*document.losses, *losses.found())
    return replace(document, state=state, losses=all_losses, pages=pages)


def _has_host(lease: Lease, host: str) -> bool:
    """Return True if the lease is of pages on the host."""
    return host == lease.host or (lease.domain != lease.host and host.endswith(lease.domain))


async def change(
    database: Database,
    vault: Vault,
    lease_id: str,
    wanted: Change,
    clock: Clock,
    actor: Actor,
) -> Changed:
    """Store records, and renew or return a lease, completely or not at all.

    Raise NotFound if the lease has ended, so that a late holder cannot overwrite the changes of
    the next one. Raise PreconditionFailed if ``if_match`` is old.

    A renewal never shortens a lease: a holder whose renewal gets no response still knows a time
    until which it has the session.
    """

    async def work(transaction: Transaction) -> Changed:
        now = await _lock(transaction, clock)
        lease = await _find(transaction, lease_id, now)
        await records.check_versions(transaction, wanted.if_match, lease.profile)
        changes = await _store(transaction, vault, wanted, clock)
        if wanted.is_returned:
            lease = await _end(transaction, lease, now)
        elif wanted.seconds is not None:
            lease = await _extend(transaction, lease, now + wanted.seconds * timestamps.SECOND)
        action: AuditAction = "release_lease" if wanted.is_returned else "renew_lease"
        about = AuditAbout(records=len(changes.cookies) + len(changes.local_storage))
        await _audit(transaction, lease, clock, actor, action, about)
        etag = await read_etag(transaction.fetch, transaction.organization_id, lease)
        return Changed(Timed(lease, now), changes, etag)

    return await database.write(work, queue_key=QUEUE_KEY)


async def read_etag(read: records.Read, organization_id: int, lease: Lease) -> str:
    """Return the version of the leased session. Read it before the session."""
    tables = (COOKIES.table, LOCAL_STORAGE.table)
    has_subdomains = lease.domain != lease.host
    scope = records.ListScope(tables, lease.profile, lease.host, ALL_GROUPS, has_subdomains)
    return await records.read_etag(read, organization_id, scope)


async def _store(
    transaction: Transaction, vault: Vault, wanted: Change, clock: Clock
) -> StateChanges:
    if wanted.state is None:
        return StateChanges((), ())
    locked = await lock_session_state(transaction, vault, clock())
    return await store_state(locked, wanted.state, wanted.replacement)


async def release(database: Database, lease_id: str, clock: Clock, actor: Actor) -> None:
    """Return a lease without changes. Raise NotFound if the lease has ended."""

    async def work(transaction: Transaction) -> None:
        now = await _lock(transaction, clock)
        lease = await _find(transaction, lease_id, now)
        await _end(transaction, lease, now)
        await _audit(transaction, lease, clock, actor, "release_lease", AuditAbout())

    await database.write(work, queue_key=QUEUE_KEY)


async def read(database: Database, lease_id: str) -> Lease:
    """Return a lease, which may have expired. Raise NotFound if there is none."""
    return _one(await database.read(_FIND, database.organization_id, lease_id, 0))


async def _find(transaction: Transaction, lease_id: str, now: int) -> Lease:
    return _one(await transaction.fetch(_FIND, transaction.organization_id, lease_id, now))


def _one(rows: Sequence[Row]) -> Lease:
    if not rows:
        raise errors.no_lease()
    return Lease(*rows[0])


async def end_of_host(transaction: Transaction, host: str, profile: str) -> None:
    """End the leases whose holders may have records of a host, as a part of its deletion.

    Otherwise a holder that returns its state would store the deleted records again. The caller
    locks the session state.
    """
    organization_id = transaction.organization_id
    for row in await transaction.fetch(_CURRENT, organization_id, 0):
        lease = Lease(*row)
        if lease.profile == profile and (_has_host(lease, host) or lease.host.endswith(f".{host}")):
            await transaction.fetch(_DELETE, organization_id, lease.id)


async def _end(transaction: Transaction, lease: Lease, now: int) -> Lease:
    await transaction.fetch(_DELETE, transaction.organization_id, lease.id)
    return lease._replace(expires_at=now)


async def _extend(transaction: Transaction, lease: Lease, expires_at: int) -> Lease:
    extended = lease._replace(expires_at=max(lease.expires_at, expires_at))
    key = (transaction.organization_id, lease.id)
    await transaction.fetch(_SET_EXPIRY, *key, extended.expires_at)
    return extended


async def _audit(
    transaction: Transaction,
    lease: Lease,
    clock: Clock,
    actor: Actor,
    action: AuditAction,
    more: AuditAbout,
) -> None:
    about = AuditAbout(domains=[lease.domain], profile=lease.profile)
    about.update(more)
    await log.append(transaction, actor, clock(), action, about)


# --- lists and expiry ---------------------------------------------------------------------------


class _Current(NamedTuple):
    """The current leases of an organization at a time, oldest first."""

    leases: list[Lease]
    now: int

    @property
    def has_too_long_lease(self) -> bool:
        """True if the clock was set back since a lease was acquired."""
        latest = self.now + MAX_LEASE_SECONDS * timestamps.SECOND
        return any(lease.expires_at > latest for lease in self.leases)


async def _read_current(engine: Engine, organization_id: int, clock: Clock) -> _Current:
    server_time = await engine.server_time()
    now = clock() if server_time is None else server_time
    rows = await engine.for_tenant(organization_id).read(_CURRENT, organization_id, now)
    return _Current([Lease(*row) for row in rows], now)


async def list_current(engine: Engine, organization_id: int, clock: Clock) -> list[LeaseOut]:
    """List the organization's current leases, oldest first."""
    found = await _read_current(engine, organization_id, clock)
    return [lease.to_response(found.now) for lease in found.leases]


async def delete_expired(engine: Engine, before: int) -> None:
    """Delete the leases that expired before this time, of all organizations."""
    database = engine.for_all_tenants()

    async def delete_some(transaction: Transaction) -> int:
        return len(await transaction.fetch(_DELETE_EXPIRED, before, _DELETED_PER_TRANSACTION))

    if await database.read(_ANY_EXPIRED, before):
        while await database.write(delete_some) == _DELETED_PER_TRANSACTION:
            pass
