"""Documents with session state: stored by an import, or as a part of another transaction.

A document is stored completely or not at all. An import audits it, and describes the changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple

from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.sessions import cookies, records, states, writing
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.kinds import In, Out, RecordKind
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.models import ImportCounts, ImportedRecord, ImportResult
from gleanery.service.resources.sessions.records import (
    ALL_GROUPS,
    IfMatch,
    LockedState,
)
from gleanery.service.resources.sessions.state_models import (
    DEFAULT_PROFILE,
    NOT_GIVEN,
    Cookie,
    LocalStorageEntry,
)
from gleanery.service.resources.sessions.states import StateFilter, is_empty
from gleanery.service.resources.sessions.writing import Prepared, RecordChange
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, Transaction
from gleanery.sessions import FORMATS, ReadResult, SessionState, StorageEntry, browser_rules
from gleanery.sessions import Cookie as BrowserCookie
from gleanery.sessions.model import host_of_origin

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


# --- preparation --------------------------------------------------------------------------------


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
            writing.prepare_at_once(COOKIES, organization_id, given, kept, keeps_expiry),
            writing.prepare_at_once(LOCAL_STORAGE, organization_id, entries),
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
        host_of_origin(entry.origin),
        entry.key,
        entry.value,
        destination.group_id,
        origin=entry.origin,
        profile=destination.profile,
    )


# --- storing ------------------------------------------------------------------------------------


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
    changes = await writing.store_prepared(COOKIES, locked, given, is_dry_run)
    stored = {one.identity for one in changes}
    others = {one.record.identity: one.record for one in found if _is_on(one.host, domains)}
    deleted = [record for identity, record in others.items() if identity not in stored]
    return changes + await writing.delete_records(COOKIES, transaction, deleted, is_dry_run)


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
    stored = await writing.store_prepared(kind, locked, prepared, is_dry_run)
    deleted = await writing.delete_hosts(
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


# --- imports ------------------------------------------------------------------------------------


class ImportOptions(NamedTuple):
    """What an import does besides storing the records of a document."""

    is_replacing: bool
    """True if other records of the document's hosts are deleted."""
    is_dry_run: bool
    """True if nothing is stored."""


class Imported(NamedTuple):
    """What an import did, and the new version of the profile."""

    result: ImportResult
    etag: str


async def import_state(
    database: Database,
    vault: Vault,
    document: ReadResult,
    destination: Destination,
    options: ImportOptions,
    now: int,
    actor: Actor,
    if_match: IfMatch = None,
) -> Imported:
    """Store a document completely or not at all. Audit it, and a dry run as well."""
    prepared = await prepare_state(database.organization_id, document, destination)
    replacement = _replacement(document) if options.is_replacing else NO_REPLACEMENT

    async def work(transaction: Transaction) -> tuple[StateChanges, str]:
        profile = destination.profile
        locked = await records.lock_session_state(transaction, vault, now, if_match, profile)
        await _check_group(transaction, destination.group_id)
        changes = await store_state(locked, prepared, replacement, options.is_dry_run)
        about = _about_import(prepared, document, changes, options)
        await log.append(transaction, actor, now, "import_session", about)
        scope = StateFilter(profile).scope
        return changes, await records.read_etag(
            transaction.fetch, transaction.organization_id, scope
        )

    changes, etag = await database.write(work, queue_key=records.QUEUE_KEY)
    result = partial(_to_result, document, destination, options, changes)
    is_long = len(changes.cookies) + len(changes.local_storage) > _RECORDS_IN_EVENT_LOOP
    return Imported(await asyncio.to_thread(result) if is_long else result(), etag)


def _replacement(document: ReadResult) -> Replacement:
    has_local_storage = "local_storage" in FORMATS[document.format].carries
    hosts = (records.visible_hosts(page.host) for page in document.pages)
    return Replacement(
        set(chain.from_iterable(hosts)) or _hosts_of(document.state), has_local_storage
    )


def _hosts_of(state: SessionState) -> set[str]:
    """Return the hosts of the cookies and of the entries."""
    origins = {entry.origin for entry in state.local_storage}
    return {cookie.host for cookie in state.cookies} | set(map(host_of_origin, origins))


async def _check_group(transaction: Transaction, group_id: int) -> None:
    """Raise NotFound if the group was deleted after the request began."""
    if group_id != ALL_GROUPS and not await group_lock.accepts_records(transaction, group_id):
        raise group_lock.no_group_in_query()


def _about_import(
    prepared: PreparedState, document: ReadResult, changes: StateChanges, options: ImportOptions
) -> AuditAbout:
    about = AuditAbout(
        records=len(changes.cookies) + len(changes.local_storage),
        domains=_audited_domains(changes),
        profile=prepared.destination.profile,
        format=document.format,
        dry_run=options.is_dry_run,
    )
    if prepared.destination.group_id != ALL_GROUPS:
        about["for_group"] = prepared.destination.group_id
    return about


def _audited_domains(changes: StateChanges) -> list[str]:
    of_cookie, of_entry = COOKIES.columns.index("domain"), LOCAL_STORAGE.columns.index("domain")
    return writing.audited_domains(
        chain(
            (one.columns[of_cookie] for one in changes.cookies),
            (one.columns[of_entry] for one in changes.local_storage),
        )
    )


def _to_result(
    document: ReadResult,
    destination: Destination,
    options: ImportOptions,
    changes: StateChanges,
) -> ImportResult:
    result = ImportResult(
        format=document.format,
        profile=destination.profile,
        dry_run=options.is_dry_run,
        cookies=count_changes(changes.cookies),
        local_storage=count_changes(changes.local_storage),
        losses=described_losses(document),
    )
    if options.is_dry_run:
        cookies_ = (_describe("cookie", COOKIES, one) for one in changes.cookies)
        entries = (_describe("local_storage", LOCAL_STORAGE, one) for one in changes.local_storage)
        result["records"] = [*cookies_, *entries]
    return result


def _describe(
    name: Literal["cookie", "local_storage"], kind: RecordKind[In, Out], made: RecordChange
) -> ImportedRecord:
    """Describe a record without its value."""
    columns = dict(zip(kind.columns, made.columns, strict=True))
    expires = columns["expires"]
    return ImportedRecord(
        kind=name,
        change=made.change,
        domain=columns["domain"],
        origin=columns.get("origin"),
        path=columns["path"],
        name=columns[kind.name_column],
        expires=None if expires is None else timestamps.render(expires),
    )
