"""Documents with session state: stores their cookies and entries as a part of a transaction."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.sessions import cookies, records, states
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.kinds import In, Out, RecordKind
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.models import ImportCounts
from gleanery.service.resources.sessions.records import (
    ALL_GROUPS,
    LockedState,
    Prepared,
    RecordChange,
)
from gleanery.service.resources.sessions.state_models import (
    DEFAULT_PROFILE,
    NOT_GIVEN,
    Cookie,
    LocalStorageEntry,
)
from gleanery.service.resources.sessions.states import is_empty
from gleanery.service.storage.database import Transaction
from gleanery.sessions import (
    FORMATS,
    ReadResult,
    SessionState,
    StorageEntry,
    browser_rules,
    hostnames,
)
from gleanery.sessions import Cookie as BrowserCookie

_RECORDS_IN_EVENT_LOOP = records.RECORDS_PER_PAUSE
# No format carries the last one: an export would otherwise state it when it is imported again.
_KEPT_COLUMNS = ("secure", "http_only", "same_site", "host_only_stated")
NOTHING_STORED = (
    "Nothing is stored, because the document has no cookie and no local-storage entry that can be "
    "kept."
)
NOTHING_TO_REPLACE_WITH = (
    "The document has no cookie and no local-storage entry that can be kept, so replace would only "
    "delete: use DELETE /v1/sessions for that"
)


class Destination(NamedTuple):
    """Where a document is stored."""

    profile: str = DEFAULT_PROFILE
    group_id: int = ALL_GROUPS
    """The group that uses the entries."""


class PreparedState(NamedTuple):
    """A document that is ready to be stored."""

    destination: Destination
    cookies: Prepared[Cookie]
    local_storage: Prepared[LocalStorageEntry]
    pages: Sequence[browser_rules.Page]
    """The pages that the cookies were sent to, if the format does not say domain and path."""


async def prepare_state(
    organization_id: int, document: ReadResult, destination: Destination
) -> PreparedState:
    """Prepare a document for ``store_state``.

    A stored cookie keeps what the format of the document does not carry. It keeps its expiry only
    with its value.
    """
    state, carries = document.state, FORMATS[document.format].carries
    names_host_only = "host_only" in carries
    names_partition = "partition_key" in carries or bool(document.pages)
    kept = [column for column in _KEPT_COLUMNS if column not in carries]
    keeps_expiry = "expires" not in carries

    def work() -> PreparedState:
        given = [
            _to_cookie(cookie, destination, names_host_only, names_partition)
            for cookie in state.cookies
        ]
        entries = [_to_input(entry, destination) for entry in state.local_storage]
        return PreparedState(
            destination,
            records.prepare_at_once(COOKIES, organization_id, given, kept, keeps_expiry),
            records.prepare_at_once(LOCAL_STORAGE, organization_id, entries),
            document.pages,
        )

    is_long = len(state.cookies) + len(state.local_storage) > _RECORDS_IN_EVENT_LOOP
    return await asyncio.to_thread(work) if is_long else work()


def _to_cookie(
    cookie: BrowserCookie, destination: Destination, names_host_only: bool, names_partition: bool
) -> Cookie:
    return Cookie(
        cookie.domain,
        cookie.name,
        cookie.value,
        cookie.secure,
        cookie.http_only,
        cookie.expires,
        cookie.path,
        cookie.host_only if names_host_only else NOT_GIVEN,
        cookie.same_site,
        cookie.partition_key if names_partition else NOT_GIVEN,
        destination.profile,
    )


def _to_input(entry: StorageEntry, destination: Destination) -> LocalStorageEntry:
    return LocalStorageEntry(
        hostnames.host_of_origin(entry.origin),
        entry.key,
        entry.value,
        destination.group_id,
        origin=entry.origin,
        profile=destination.profile,
    )


def hosts_of(state: SessionState) -> set[str]:
    """Return the hosts of the cookies and of the entries."""
    origins = {entry.origin for entry in state.local_storage}
    return {cookie.host for cookie in state.cookies} | set(map(hostnames.host_of_origin, origins))


class Replacement(NamedTuple):
    """Domains whose other records are deleted.

    If the document has the cookies that pages get, only cookies of these pages are deleted.
    """

    domains: Collection[str] = ()
    """Hosts. A leading dot includes the subdomains."""
    has_local_storage: bool = True
    """False if the document has only cookies, so that entries stay."""


NO_REPLACEMENT = Replacement()


class StateChanges(NamedTuple):
    """What storing a document changes, or would change."""

    cookies: Sequence[RecordChange]
    local_storage: Sequence[RecordChange]


async def store_state(
    locked: LockedState,
    prepared: PreparedState,
    replacement: Replacement = NO_REPLACEMENT,
    is_dry_run: bool = False,
) -> StateChanges:
    """Store a document as a part of a transaction. The caller audits it.

    A dry run compares the document with the stored records, and writes nothing.
    """
    of_entries = replacement.domains if replacement.has_local_storage else ()
    return StateChanges(
        await _store_cookies(locked, prepared, replacement.domains, is_dry_run),
        await _store_kind(
            LOCAL_STORAGE,
            locked,
            prepared.local_storage,
            prepared.destination,
            of_entries,
            is_dry_run,
        ),
    )


async def _store_cookies(
    locked: LockedState, prepared: PreparedState, domains: Collection[str], is_dry_run: bool
) -> list[RecordChange]:
    given, destination, transaction = prepared.cookies, prepared.destination, locked.transaction
    if not prepared.pages:
        return await _store_kind(COOKIES, locked, given, destination, domains, is_dry_run)
    found = await cookies.find_of_pages(transaction, destination.profile, prepared.pages)
    given = cookies.match_stored(given, found, locked.now // timestamps.SECOND)
    changes = await records.store_prepared(COOKIES, locked, given, is_dry_run)
    stored = {one.identity for one in changes}
    others = {one.identity: one.row for one in found if _is_on(one.host, domains)}
    deleted = [row for identity, row in others.items() if identity not in stored]
    return changes + await records.delete_rows(COOKIES, transaction, deleted, is_dry_run)


def _is_on(host: str, domains: Iterable[str]) -> bool:
    """Return True if the host is one of the domains. A leading dot includes the subdomains."""
    return any(host == domain.removeprefix(".") or _is_below(host, domain) for domain in domains)


def _is_below(host: str, domain: str) -> bool:
    return domain.startswith(".") and host.endswith(domain)


async def _store_kind(
    kind: RecordKind[In, Out],
    locked: LockedState,
    prepared: Prepared[In],
    destination: Destination,
    domains: Collection[str],
    is_dry_run: bool,
) -> list[RecordChange]:
    stored = await records.store_prepared(kind, locked, prepared, is_dry_run)
    deleted = await records.delete_hosts(
        kind,
        locked.transaction,
        destination.profile,
        await _hosts(kind, locked.transaction, destination.profile, domains),
        kept={one.identity for one in stored},
        group_id=destination.group_id,
        is_dry_run=is_dry_run,
    )
    return [*stored, *deleted]


async def _hosts(
    kind: RecordKind[In, Out], transaction: Transaction, profile: str, domains: Iterable[str]
) -> list[str]:
    """Return the hosts of the domains, with the subdomains of those with a leading dot."""
    hosts: list[str] = []
    for domain in domains:
        host = domain.removeprefix(".")
        hosts.append(host)
        if domain != host:
            hosts += await states.hosts_below(kind, transaction, profile, host)
    return hosts


def described_losses(document: ReadResult) -> list[str]:
    """Return the losses as sentences. One of them says if nothing is stored."""
    losses = [str(loss) for loss in document.losses]
    return [*losses, NOTHING_STORED] if is_empty(document.state) else losses


def count_changes(changes: Iterable[RecordChange]) -> ImportCounts:
    counts = Counter(one.change for one in changes)
    return ImportCounts(
        created=counts["created"],
        updated=counts["updated"],
        unchanged=counts["unchanged"],
        deleted=counts["deleted"],
    )
