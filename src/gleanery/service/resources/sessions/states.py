"""Session state as a format needs it: the stored records that a page or a domain sees.

Whole records are read: those of a profile, or of a host with its parent domains and subdomains.
Their bytes are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.sessions import cookies, local_storage, records
from gleanery.service.resources.sessions.cookies import COOKIES, StoredCookie
from gleanery.service.resources.sessions.kinds import In, Out, RecordKind
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE, StoredEntry
from gleanery.service.resources.sessions.records import (
    HOST_IS_BELOW,
    Filter,
    ListScope,
    host_condition,
    visible_hosts,
)
from gleanery.service.resources.sessions.state_models import DEFAULT_PROFILE
from gleanery.service.storage.database import Database, Row, Sql, Transaction, indexed
from gleanery.sessions import Cookie as BrowserCookie
from gleanery.sessions import InvalidSession, Loss, SessionState, StorageEntry, browser_rules
from gleanery.sessions.model import Losses

_RECORDS_IN_EVENT_LOOP = records.RECORDS_PER_PAUSE
_LARGE_BYTES = 256 * 1024
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
_SUBDOMAIN = (
    "A record of a subdomain is left out: begin the domain with a dot to include subdomains"
)
_RECORD_BYTES = 200  # of a document, around the name and the value
_COUNT_BELOW = f"""
SELECT count(*) FROM {{}} WHERE organization_id = $1 AND profile = $2 AND {HOST_IS_BELOW}
    AND (expires IS NULL OR expires > $4)
"""
_HOSTS_BELOW = f"""
SELECT DISTINCT host FROM {{}} WHERE organization_id = $1 AND profile = $2 AND {HOST_IS_BELOW}
"""


class StateFilter(NamedTuple):
    """The records that belong to a document; by default all of the default profile."""

    profile: str = DEFAULT_PROFILE
    domain: str | None = None
    """Only what pages on this domain's host see. A leading dot includes its subdomains."""
    page: browser_rules.Page | None = None
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
    """Read the records without the expired ones. Raise StateTooLarge. The caller audits it."""
    stored, left = filter_.stored, max_bytes
    cookie_rows, size = await read_rows(COOKIES, database, stored, left)
    left -= size
    entry_rows, entry_size = await read_rows(LOCAL_STORAGE, database, stored, left)
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
    count = await count_rows_below(COOKIES, database, stored, now)
    losses.add("cookie", _SUBDOMAIN, "cookie", count)
    count = await count_rows_below(LOCAL_STORAGE, database, stored, now)
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
    state = browser_rules.without_expired(selected, now)
    losses.add("cookie", _EXPIRED_COOKIE, "cookie", len(selected.cookies) - len(state.cookies))
    losses.add("local_storage", _EXPIRED_ENTRY, "entry", _expired(stored_entries, filter_, now))
    for entry in state.local_storage:
        _add_losses(entries[entry.identity], filter_, losses)
    return FoundState(state, losses.found(), has_expired)


def _selected(state: SessionState, filter_: StateFilter) -> SessionState:
    if filter_.domain is not None:
        state = browser_rules.of_domain(state, filter_.domain)
    return state if filter_.page is None else browser_rules.of_page(state, filter_.page)


def _expired(found: Iterable[StoredEntry], filter_: StateFilter, now: int) -> int:
    """Return the number of the selected entries that have expired."""
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
    """Return the cookies, without older ones that are the same for a browser."""
    newest: dict[Hashable, StoredCookie] = {}
    for one in found:
        older = newest.get(one.cookie.identity)
        if older is None or older.updated_at <= one.updated_at:
            newest[one.cookie.identity] = one
    return (one.cookie for one in newest.values())


def _by_identity(
    found: Iterable[StoredEntry], filter_: StateFilter
) -> dict[tuple[str, str], list[StoredEntry]]:
    """Return the entries by origin and key, of which a browser has one."""
    entries: dict[tuple[str, str], list[StoredEntry]] = {}
    for entry in found:
        if _is_on_host(entry, filter_):
            entries.setdefault((_origin(entry, filter_), entry.key), []).append(entry)
    return entries


def _is_on_host(entry: StoredEntry, filter_: StateFilter) -> bool:
    """Return True if pages on the host see the entry. A leading dot includes subdomains."""
    is_any = filter_.host is None or filter_.has_subdomains
    return is_any or entry.domain.startswith(".") or entry.domain == filter_.host


def _origin(entry: StoredEntry, filter_: StateFilter) -> str:
    """Return the entry's origin. An entry without one belongs to every origin of its host."""
    if entry.origin is not None:
        return entry.origin
    if filter_.page is not None:
        return filter_.page.origin
    own_host = entry.domain.removeprefix(".")
    if filter_.host is None or own_host.endswith(f".{filter_.host}"):
        return f"https://{own_host}"
    return f"https://{filter_.host}"


def _best(rivals: Sequence[StoredEntry], filter_: StateFilter) -> StoredEntry:
    """Return one of the entries that a browser cannot have together.

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


def is_empty(state: SessionState) -> bool:
    """Return True if there is no record."""
    return not state.cookies and not state.local_storage


# --- the rows -----------------------------------------------------------------------------------


class StateTooLarge(Exception):
    """The selected records have too many bytes for one document."""


class WholeRows(NamedTuple):
    """Rows in the order of first insertion, for ``records.decrypter``."""

    rows: list[Row]
    size: int
    """About the bytes that they have in a document."""


class _Statements(NamedTuple):
    """$1 is the organization and $2 the profile. Then come the hosts, and perhaps a group."""

    size: Sql
    rows: Sql


async def read_rows(
    kind: RecordKind[In, Out], database: Database, filter_: Filter, max_bytes: int
) -> WholeRows:
    """Return the rows and their size. Raise StateTooLarge.

    A host's records are found by an index, however many others there are. The caller leaves out
    those of parent domains that are not for subdomains.
    """
    hosts = [] if filter_.host is None else visible_hosts(filter_.host)
    has_group = kind.has_groups and filter_.for_group is not None
    statements = _statements(kind, len(hosts), has_group, filter_.has_subdomains)
    values = (database.organization_id, filter_.profile, *hosts, *[filter_.for_group] * has_group)
    [[size]] = await database.read_large(statements.size, *values)
    if size > max_bytes:
        raise StateTooLarge
    rows = await database.read_large(statements.rows, *values)
    return WholeRows(sorted(rows, key=_position), size)


async def count_rows_below(
    kind: RecordKind[In, Out], database: Database, filter_: Filter, now: int
) -> int:
    """Count the records of the host's subdomains that have not expired at this second."""
    key = (database.organization_id, filter_.profile, filter_.host, now)
    [[count]] = await database.read_large(_COUNT_BELOW.format(kind.table), *key)
    return int(count)


async def hosts_below(
    kind: RecordKind[In, Out], transaction: Transaction, profile: str, host: str
) -> list[str]:
    """Return the subdomains of a host that have records."""
    sql = _HOSTS_BELOW.format(kind.table)
    rows = await transaction.fetch(sql, transaction.organization_id, profile, host)
    return [row[0] for row in rows]


def _position(row: Row) -> int:
    """Return the id of a record; ids are in the order of first insertion."""
    return int(row[-1])


@lru_cache(maxsize=512)
def _statements(
    kind: RecordKind[Any, Any], host_count: int, has_group: bool, has_subdomains: bool
) -> _Statements:
    conditions = ["organization_id = $1", "profile = $2"]
    if host_count:
        conditions.append(host_condition(host_count, has_subdomains))
    if has_group:
        conditions.append(f"(group_id = 0 OR group_id = ${host_count + 3})")
    # The index has the host, so no row of another host is read.
    index = {kind.table: f"{kind.table}_by_host"}
    source = f"FROM {{{kind.table}}} WHERE {' AND '.join(conditions)}"
    columns = ("identity", "encrypted_value", *kind.columns, *kind.extra_columns, "id AS position")
    lengths = [f"octet_length({one})" for one in ("encrypted_value", kind.name_column, "path")]
    size = " + ".join((*lengths, str(_RECORD_BYTES)))
    return _Statements(
        indexed(f"SELECT COALESCE(SUM({size}), 0) {source}", **index),
        indexed(f"SELECT {', '.join(columns)} {source}", **index),
    )
