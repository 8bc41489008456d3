"""Session state as formats need it: reads what a page sees, and stores a whole document."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple

from gleanery.client.sessions import (
    FORMATS,
    InvalidSession,
    Loss,
    ReadResult,
    SessionState,
    StorageEntry,
    hostnames,
    visibility,
)
from gleanery.client.sessions import Cookie as BrowserCookie
from gleanery.client.sessions.losses import Losses
from gleanery.models.responses import AuditAbout, ImportCounts, ImportedRecord, ImportResult
from gleanery.models.session_state import (
    DEFAULT_PROFILE,
    NOT_GIVEN,
    Cookie,
    LocalStorageEntry,
)
from gleanery.security.vault import Vault
from gleanery.storage import audit, group_lock
from gleanery.storage.database import Database, Row, Transaction
from gleanery.storage.sessions import (
    cookies,
    local_storage,
    page_cookies,
    records,
    versions,
    whole_records,
)
from gleanery.storage.sessions.cookies import COOKIES, StoredCookie
from gleanery.storage.sessions.kinds import In, Out, RecordKind
from gleanery.storage.sessions.local_storage import LOCAL_STORAGE, StoredEntry
from gleanery.storage.sessions.records import ALL_GROUPS, LockedState, Prepared, RecordChange
from gleanery.storage.sessions.versions import IfMatch, ListScope
from gleanery.storage.sessions.whole_records import StateTooLarge as StateTooLarge  # for callers
from gleanery.values import timestamps

_RECORDS_IN_EVENT_LOOP = records.RECORDS_PER_PAUSE
_LARGE_BYTES = 256 * 1024
_KEPT_COLUMNS = ("secure", "http_only", "same_site")
_INVALID_COOKIE = "A stored cookie is left out, because no browser can have it"
_INVALID_ENTRY = "A stored entry is left out, because no browser can have it"
_EXPIRED_COOKIE = "A cookie is left out, because it has expired"
_EXPIRED_ENTRY = "An entry is left out, because it has expired"
_OTHER_GROUP = (
    "An entry is left out, because a newer one of another group has its origin and key: name the "
    "group"
)
_PATH_LOST = "The path of an entry is left out: local storage has none"
_EXPIRY_LOST = "The expiry of an entry is lost: local storage has none"


# --- reading ------------------------------------------------------------------------------------


_SUBDOMAIN = (
    "A record of a subdomain is left out: begin the domain with a dot to include subdomains"
)


class StateFilter(NamedTuple):
    """The records that belong to a document; by default all of the default profile."""

    profile: str = DEFAULT_PROFILE
    domain: str | None = None
    """Only what pages on this domain's host see. A leading dot includes its subdomains."""
    page: visibility.Page | None = None
    """Only what this page sees."""
    for_group: int | None = None
    """Only entries that this group uses. Its own ones win over those of every group."""

    @property
    def host(self) -> str | None:
        """Host whose records are read."""
        if self.page is not None:
            return self.page.host
        return None if self.domain is None else self.domain.removeprefix(".")

    @property
    def stored(self) -> records.Filter:
        """The filter of the stored records, of which the selection is a part."""
        return records.Filter(self.host, self.for_group, self.profile, self.has_subdomains)

    @property
    def has_subdomains(self) -> bool:
        return self.page is None and self.domain is not None and self.domain.startswith(".")

    @property
    def leaves_out_subdomains(self) -> bool:
        """True if a client may expect the records of subdomains, which are left out."""
        return self.page is None and self.host is not None and not self.has_subdomains

    @property
    def scope(self) -> ListScope:
        """The scope of the ETag."""
        return self.stored.scope(COOKIES.table, LOCAL_STORAGE.table)


class FoundState(NamedTuple):
    """The selected records, and what a browser cannot have of them."""

    state: SessionState
    losses: tuple[Loss, ...]
    has_expired: bool
    """True if there are expired records, which are left out."""


async def read_state(
    database: Database, vault: Vault, filter_: StateFilter, now: int, max_bytes: int
) -> FoundState:
    """Reads the records without the expired ones. Raises StateTooLarge. The caller audits it."""
    stored, left = filter_.stored, max_bytes
    cookie_rows, size = await whole_records.read(COOKIES, database, stored, left)
    left -= size
    entry_rows, entry_size = await whole_records.read(LOCAL_STORAGE, database, stored, left)
    losses = Losses()
    if filter_.leaves_out_subdomains:
        await _count_subdomains(database, stored, now // timestamps.SECOND, losses)

    def select() -> FoundState:
        cookie_value = records.decrypter(COOKIES, database, vault)
        entry_value = records.decrypter(LOCAL_STORAGE, database, vault)
        found_cookies = ((cookie_value(row), row[:-1]) for row in cookie_rows)
        found_entries = ((entry_value(row), row[:-1]) for row in entry_rows)
        return _select(found_cookies, found_entries, filter_, now // timestamps.SECOND, losses)

    is_long = (
        len(cookie_rows) + len(entry_rows) > _RECORDS_IN_EVENT_LOOP
        or size + entry_size > _LARGE_BYTES
    )
    return await asyncio.to_thread(select) if is_long else select()


async def _count_subdomains(
    database: Database, stored: records.Filter, now: int, losses: Losses
) -> None:
    count = await whole_records.count_below(COOKIES, database, stored, now)
    losses.add("cookie", _SUBDOMAIN, "cookie", count)
    count = await whole_records.count_below(LOCAL_STORAGE, database, stored, now)
    losses.add("local_storage", _SUBDOMAIN, "entry", count)


def _select(
    found_cookies: Iterable[tuple[str, Row]],
    found_entries: Iterable[tuple[str, Row]],
    filter_: StateFilter,
    now: int,
    losses: Losses,
) -> FoundState:
    stored_cookies = list(_valid_cookies(found_cookies, losses))
    stored_entries = [local_storage.to_stored(*found) for found in found_entries]
    current = (entry for entry in stored_entries if not _is_expired(entry, now))
    entries = _by_identity(current, filter_)
    state = SessionState(
        tuple(_newest_cookies(stored_cookies)), tuple(_valid_entries(entries, filter_, losses))
    )
    has_expired = _has_expired(stored_cookies, stored_entries, now)
    selected = _selected(state, filter_)
    state = visibility.without_expired(selected, now)
    losses.add("cookie", _EXPIRED_COOKIE, "cookie", len(selected.cookies) - len(state.cookies))
    losses.add("local_storage", _EXPIRED_ENTRY, "entry", _expired(stored_entries, filter_, now))
    for entry in state.local_storage:
        _add_losses(entries[entry.identity], filter_, losses)
    return FoundState(state, losses.found(), has_expired)


def _selected(state: SessionState, filter_: StateFilter) -> SessionState:
    if filter_.domain is not None:
        state = visibility.of_domain(state, filter_.domain)
    return state if filter_.page is None else visibility.of_page(state, filter_.page)


def _expired(found: Iterable[StoredEntry], filter_: StateFilter, now: int) -> int:
    """Returns the number of the selected entries that have expired."""
    entries = _by_identity((entry for entry in found if _is_expired(entry, now)), filter_)
    valid = tuple(_valid_entries(entries, filter_, Losses()))
    return len(_selected(SessionState((), valid), filter_).local_storage)


def _is_expired(entry: StoredEntry, now: int) -> bool:
    return entry.expires is not None and entry.expires <= now


def _has_expired(
    found_cookies: Iterable[StoredCookie], found_entries: Iterable[StoredEntry], now: int
) -> bool:
    dates = chain((one.cookie.expires for one in found_cookies), (e.expires for e in found_entries))
    return any(date is not None and date <= now for date in dates)


def _valid_cookies(found: Iterable[tuple[str, Row]], losses: Losses) -> Iterator[StoredCookie]:
    for value, row in found:
        try:
            yield cookies.to_stored(value, row)
        except InvalidSession:
            losses.add("cookie", _INVALID_COOKIE)


def _valid_entries(
    entries: Mapping[tuple[str, str], Sequence[StoredEntry]], filter_: StateFilter, losses: Losses
) -> Iterator[StorageEntry]:
    for (origin, key), rivals in entries.items():
        try:
            yield StorageEntry(origin, key, _best(rivals, filter_).value)
        except InvalidSession:
            losses.add("local_storage", _INVALID_ENTRY, "entry")


def _newest_cookies(found: Iterable[StoredCookie]) -> Iterable[BrowserCookie]:
    """Returns the cookies, without older ones that are the same for a browser."""
    newest: dict[Hashable, StoredCookie] = {}
    for one in found:
        older = newest.get(one.cookie.identity)
        if older is None or older.updated_at <= one.updated_at:
            newest[one.cookie.identity] = one
    return (one.cookie for one in newest.values())


def _by_identity(
    found: Iterable[StoredEntry], filter_: StateFilter
) -> dict[tuple[str, str], list[StoredEntry]]:
    """Returns the entries by origin and key, of which a browser has one."""
    entries: dict[tuple[str, str], list[StoredEntry]] = {}
    for entry in found:
        if _is_on_host(entry, filter_):
            entries.setdefault((_origin(entry, filter_), entry.key), []).append(entry)
    return entries


def _is_on_host(entry: StoredEntry, filter_: StateFilter) -> bool:
    """Returns True if pages on the host see the entry. A leading dot includes subdomains."""
    is_any = filter_.host is None or filter_.has_subdomains
    return is_any or entry.domain.startswith(".") or entry.domain == filter_.host


def _origin(entry: StoredEntry, filter_: StateFilter) -> str:
    """Returns the entry's origin. An entry without one belongs to every origin of its host."""
    if entry.origin is not None:
        return entry.origin
    if filter_.page is not None:
        return filter_.page.origin
    own_host = entry.domain.removeprefix(".")
    if filter_.host is None or own_host.endswith(f".{filter_.host}"):
        return f"https://{own_host}"
    return f"https://{filter_.host}"


def _best(rivals: Sequence[StoredEntry], filter_: StateFilter) -> StoredEntry:
    """Returns one of the entries that a browser cannot have together.

    The own entry of the group wins, then one with an origin, then the newest.
    """

    def rank(entry: StoredEntry) -> tuple[bool, bool, int]:
        is_own = filter_.for_group is not None and entry.group_id == filter_.for_group
        return is_own, entry.origin is not None, entry.updated_at

    return max(rivals, key=rank)


def _add_losses(rivals: Sequence[StoredEntry], filter_: StateFilter, losses: Losses) -> None:
    kept = _best(rivals, filter_)
    if filter_.for_group is None:
        others = {rival.group_id for rival in rivals} - {kept.group_id}
        losses.add("local_storage", _OTHER_GROUP, "entry", len(others))
    if kept.path != "/":
        losses.add("local_storage", _PATH_LOST, "entry")
    if kept.expires is not None:
        losses.add("local_storage", _EXPIRY_LOST, "entry")


# --- storing ------------------------------------------------------------------------------------


class Destination(NamedTuple):
    """Where a document is stored."""

    profile: str = DEFAULT_PROFILE
    group_id: int = ALL_GROUPS
    """The group that uses the entries."""


def is_empty(state: SessionState) -> bool:
    """Returns True if there is no record."""
    return not state.cookies and not state.local_storage


class PreparedState(NamedTuple):
    """A document that is ready to be stored."""

    destination: Destination
    cookies: Prepared[Cookie]
    local_storage: Prepared[LocalStorageEntry]
    pages: Sequence[visibility.Page]
    """The pages that the cookies were sent to, if the format does not say domain and path."""


async def prepare_state(
    organization_id: int, document: ReadResult, destination: Destination
) -> PreparedState:
    """Prepares a document for ``store_state``.

    A stored cookie keeps what the format of the document does not carry. It keeps its expiry only
    with its value.
    """
    state, carries = document.state, FORMATS[document.format].carries
    names_partition = "partition_key" in carries or bool(document.pages)
    kept = [column for column in _KEPT_COLUMNS if column not in carries]
    keeps_expiry = "expires" not in carries

    def work() -> PreparedState:
        given = [_to_cookie(cookie, destination, names_partition) for cookie in state.cookies]
        entries = [_to_input(entry, destination) for entry in state.local_storage]
        return PreparedState(
            destination,
            records.prepare_at_once(COOKIES, organization_id, given, kept, keeps_expiry),
            records.prepare_at_once(LOCAL_STORAGE, organization_id, entries),
            document.pages,
        )

    is_long = len(state.cookies) + len(state.local_storage) > _RECORDS_IN_EVENT_LOOP
    return await asyncio.to_thread(work) if is_long else work()


def _to_cookie(cookie: BrowserCookie, destination: Destination, names_partition: bool) -> Cookie:
    return Cookie(
        cookie.domain,
        cookie.name,
        cookie.value,
        cookie.secure,
        cookie.http_only,
        cookie.expires,
        cookie.path,
        cookie.host_only,
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
    """Returns the hosts of the cookies and of the entries."""
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
    """Stores a document as a part of a transaction. The caller audits it.

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
    found = await page_cookies.find(transaction, destination.profile, prepared.pages)
    given = page_cookies.meant(given, found, locked.now // timestamps.SECOND)
    changes = await records.store_prepared(COOKIES, locked, given, is_dry_run)
    stored = {one.identity for one in changes}
    others = {one.identity: one.row for one in found if _is_on(one.host, domains)}
    deleted = [row for identity, row in others.items() if identity not in stored]
    return changes + await records.delete_rows(COOKIES, transaction, deleted, is_dry_run)


def _is_on(host: str, domains: Iterable[str]) -> bool:
    """Returns True if the host is one of the domains. A leading dot includes the subdomains."""
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
    """Returns the hosts of the domains, with the subdomains of those with a leading dot."""
    hosts: list[str] = []
    for domain in domains:
        host = domain.removeprefix(".")
        hosts.append(host)
        if domain != host:
            hosts += await whole_records.hosts_below(kind, transaction, profile, host)
    return hosts


# --- import -------------------------------------------------------------------------------------


NOTHING_STORED = (
    "Nothing is stored, because the document has no cookie and no local-storage entry that can be "
    "kept."
)
NOTHING_TO_REPLACE_WITH = (
    "The document has no cookie and no local-storage entry that can be kept, so replace would only "
    "delete: use DELETE /v1/sessions for that"
)


def described_losses(document: ReadResult) -> list[str]:
    """Returns the losses as sentences. One of them says if nothing is stored."""
    losses = [str(loss) for loss in document.losses]
    return [*losses, NOTHING_STORED] if is_empty(document.state) else losses


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
    actor: audit.Actor,
    if_match: IfMatch = None,
) -> Imported:
    """Stores a document completely or not at all; audits it, and a dry run, too."""
    prepared = await prepare_state(database.organization_id, document, destination)
    replacement = _replacement(document) if options.is_replacing else NO_REPLACEMENT

    async def work(transaction: Transaction) -> tuple[StateChanges, str]:
        profile = destination.profile
        locked = await records.lock_session_state(transaction, vault, now, if_match, profile)
        await _check_group(transaction, destination.group_id)
        changes = await store_state(locked, prepared, replacement, options.is_dry_run)
        about = _about_import(prepared, document, changes, options)
        await audit.append(transaction, actor, now, "import_session", about)
        scope = StateFilter(profile).scope
        return changes, await versions.read_etag(
            transaction.fetch, transaction.organization_id, scope
        )

    changes, etag = await database.write(work, queue_key=records.QUEUE_KEY)
    result = partial(_to_result, document, destination, options, changes)
    is_long = len(changes.cookies) + len(changes.local_storage) > _RECORDS_IN_EVENT_LOOP
    return Imported(await asyncio.to_thread(result) if is_long else result(), etag)


def _replacement(document: ReadResult) -> Replacement:
    has_local_storage = "local_storage" in FORMATS[document.format].carries
    hosts = (versions.visible_hosts(page.host) for page in document.pages)
    return Replacement(
        set(chain.from_iterable(hosts)) or hosts_of(document.state), has_local_storage
    )


async def _check_group(transaction: Transaction, group_id: int) -> None:
    """Raises NotFound if the group was deleted after the request began."""
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
    return records.audited_domains(
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


def count_changes(changes: Iterable[RecordChange]) -> ImportCounts:
    counts = Counter(one.change for one in changes)
    return ImportCounts(
        created=counts["created"],
        updated=counts["updated"],
        unchanged=counts["unchanged"],
        deleted=counts["deleted"],
    )


def _describe(
    name: Literal["cookie", "local_storage"], kind: RecordKind[In, Out], made: RecordChange
) -> ImportedRecord:
    """Describes a record without its value."""
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
