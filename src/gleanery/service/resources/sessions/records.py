"""Session records of any kind: how lists of them are read, their versions, and their lock.

Every change of a record gives it a new, higher revision. So the number of records and the highest
revision identify the content of a list. An ETag also says which list it belongs to, so that a write
can read the version of that list again. Each transaction that changes records holds the lock of the
organization's session state.

See ``docs/explanation/session-records.md``.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from gleanery.service.foundation.errors import PreconditionFailed, Unavailable
from gleanery.service.foundation.field_types import MAX_INT64, check_stored_name
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.security.vault import DecryptionFailed, Key, UnknownKey, Vault
from gleanery.service.foundation.values import json_text
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.sessions.kinds import In, Out, RecordKind
from gleanery.service.resources.sessions.state_models import DEFAULT_PROFILE
from gleanery.service.storage import metadata, paging
from gleanery.service.storage.database import Database, Row, Transaction
from gleanery.service.storage.paging import ListPage, ListQuery, PageLimits
from gleanery.sessions.model import is_address, normalize_domain

_log = logging.getLogger("gleanery")

QUEUE_KEY = ("session state",)
"""Key of the writers' queue; a tuple, so that it differs from every group's name."""
ALL_GROUPS = 0
"""The ``group_id`` of a record that applies to every group."""
RECORDS_PER_PAUSE = 500
"""Records that are processed at a time, before other requests get their turn."""
_LOCK = """
INSERT INTO session_revisions (organization_id, revision) VALUES ($1, $2)
ON CONFLICT (organization_id) DO UPDATE SET revision = CASE
    WHEN session_revisions.revision < excluded.revision
    THEN excluded.revision ELSE session_revisions.revision + 1 END
RETURNING revision
"""
_KEY_MISSING = "Values are encrypted with a secret key that this service does not have"
_KEY_MISSING_HELP = "gleanery keys list shows the missing key; gleanery keys forget gives it up"
_TABLES = {"cookies": "c", "local_storage": "l"}
_LETTERS = {letter: table for table, letter in _TABLES.items()}
_HASH_LENGTH = 16
_NUMBER = re.compile(r"[0-9]{1,19}")
_CHANGED = "The records have changed since you read them: read them again, then repeat the request"
_OTHER_PROFILE = (
    "The ETag is of another profile than this request: read the records of this profile, then "
    "repeat the request"
)

HOST_IS_BELOW = "substr(host, length(host) - length($3)) = '.' || $3"
"""SQL condition: the host is a subdomain of host $3."""

Read = Callable[..., Awaitable[Sequence[Row]]]
IfMatch = tuple[str, ...] | None
"""The ETags of an If-Match header, of which one must be current; None without a condition."""


# --- reading ------------------------------------------------------------------------------------


class Filter(NamedTuple):
    """Filter of the records that a client requests; by default all."""

    domain: str | None = None
    """Only records that are visible to a page on this domain's host."""
    for_group: int | None = None
    """Only records of this group, and those that apply to every group."""
    profile: str = DEFAULT_PROFILE
    has_subdomains: bool = False
    """True for the records of the domain's subdomains as well. Lists do not have it."""

    @property
    def host(self) -> str | None:
        return None if self.domain is None else self.domain.removeprefix(".")

    def scope(self, *tables: str) -> ListScope:
        """Return the scope of these tables' ETag."""
        return ListScope(tables, self.profile, self.host, self.for_group, self.has_subdomains)


async def read(
    kind: RecordKind[In, Out],
    database: Database,
    vault: Vault,
    read_auditor: log.ReadAuditor,
    filter_: Filter,
    limits: PageLimits,
    now: int,
    actor: Actor,
) -> ListPage:
    """Read records in the order of first insertion, including expired ones; audit the read."""
    page = await paging.read_page(_list_query(kind, database, vault, filter_), limits)
    about = _audit_details(len(page.records), filter_)
    await read_auditor.record(database, log.Entry(actor, now, kind.read_action, about))
    return page


def _list_query(
    kind: RecordKind[In, Out], database: Database, vault: Vault, filter_: Filter
) -> ListQuery:
    statements, values = kind.statements, list[Any]([filter_.profile])
    sizes, rows = statements.sizes_of_all, statements.list_all
    if filter_.domain is not None:
        sizes, rows = statements.sizes_of_visible, statements.list_visible
        host = filter_.domain.removeprefix(".")
        values += [host, not is_address(host)]
    if kind.has_groups:
        values.append(filter_.for_group)
    return ListQuery(database, sizes, rows, tuple(values), _encoder(kind, database, vault))


def _encoder(kind: RecordKind[In, Out], database: Database, vault: Vault) -> Callable[[Row], bytes]:
    """Return the function that decrypts a record and renders it as JSON text."""
    organization_id, decrypt = database.organization_id, decrypter(kind, database, vault)

    def encode(row: Row) -> bytes:
        return json_text.encode(kind.to_response(organization_id, decrypt(row), row[:-1]))

    return encode


def decrypter(kind: RecordKind[In, Out], database: Database, vault: Vault) -> Callable[[Row], str]:
    """Return the function that decrypts the value in a row of a list."""
    organization_id = database.organization_id
    identity_values = itemgetter(*[2 + kind.columns.index(c) for c in kind.identity_columns])

    def decrypt(row: Row) -> str:
        return _decrypt(vault, row[1], kind.hash_identity(organization_id, *identity_values(row)))

    return decrypt


def _decrypt(vault: Vault, encrypted_value: bytes, identity: bytes) -> str:
    """Decrypts a value. The error names the record, so that an operator can find it.

    The identity is computed from the record's current columns, not read from the table. So an
    attacker who can write to the database but has no key cannot move a value to another domain.
    """
    try:
        return vault.decrypt(encrypted_value, identity)
    except UnknownKey as error:
        raise _key_missing(error) from None
    except DecryptionFailed:
        raise DecryptionFailed(
            f"the record with identity {identity.hex()} is damaged or was changed: store it "
            "again, or delete it with DELETE or gleanery keys forget"
        ) from None


def _key_missing(error: UnknownKey) -> Unavailable:
    extra = {"key": error.fingerprint, "help": _KEY_MISSING_HELP}
    _log.error("a secret key is missing", extra=extra)
    return Unavailable(_KEY_MISSING)


def _audit_details(count: int, filter_: Filter) -> AuditAbout:
    about = AuditAbout(records=count)
    if filter_.domain is not None:
        about["domains"] = [filter_.domain]
    if filter_.for_group is not None:
        about["for_group"] = filter_.for_group
    return about


# --- versions -----------------------------------------------------------------------------------


class ListScope(NamedTuple):
    """The records of a list."""

    tables: tuple[str, ...]
    profile: str
    host: str | None = None
    """Only records that are visible to a page on this host."""
    for_group: int | None = None
    """Only entries of this group, and those that apply to every group."""
    has_subdomains: bool = False
    """True if the records of the host's subdomains belong to the list, too."""


async def read_etag(read: Read, organization_id: int, scope: ListScope) -> str:
    """Return the ETag of a list, without quotes. Read it before the records of the list."""
    numbers: list[int] = []
    for table in scope.tables:
        [row] = await read(*_version_query(table, organization_id, scope))
        numbers += row
    version = hash_parts(organization_id, *numbers).hex()[:_HASH_LENGTH]
    return f"{_encode_scope(scope)}.{version}"


async def check_versions(transaction: Transaction, if_match: IfMatch, profile: str) -> None:
    """Raise PreconditionFailed if no ETag of If-Match is current and of the profile.

    Call it under the lock.
    """
    if if_match is None:
        return
    scopes = {etag: _decode_scope(etag.partition(".")[0]) for etag in if_match}
    own = {etag: scope for etag, scope in scopes.items() if scope and scope.profile == profile}
    for etag, scope in own.items():
        if etag == await read_etag(transaction.fetch, transaction.organization_id, scope):
            return
    is_of_other = not own and any(scopes.values())
    raise PreconditionFailed(_OTHER_PROFILE if is_of_other else _CHANGED)


def _version_query(table: str, organization_id: int, scope: ListScope) -> tuple[Any, ...]:
    """Return the statement, and then its values."""
    hosts = [] if scope.host is None else visible_hosts(scope.host)
    has_group = table == "local_storage" and scope.for_group is not None
    values = (organization_id, scope.profile, *hosts, *[scope.for_group] * has_group)
    return _version_statement(table, len(hosts), has_group, scope.has_subdomains), *values


def visible_hosts(host: str) -> list[str]:
    """Return the host and its parent domains, whose records a page on the host can see."""
    if is_address(host):
        return [host]
    labels = host.split(".")
    parents = (".".join(labels[start:]) for start in range(len(labels)))
    return [parent for parent in parents if parent]


def host_condition(host_count: int, has_subdomains: bool) -> str:
    """Return the SQL condition that the host is one of ``visible_hosts``, of which $3 is the first.

    With subdomains, the host may also be below $3.
    """
    hosts = ", ".join(f"${number}" for number in range(3, host_count + 3))
    visible = f"host IN ({hosts})"
    return f"({visible} OR {HOST_IS_BELOW})" if has_subdomains else visible


@lru_cache(maxsize=512)
def _version_statement(table: str, host_count: int, has_group: bool, has_subdomains: bool) -> str:
    """Count the records and find their highest revision, of one to all hosts."""
    conditions = ["organization_id = $1", "profile = $2"]
    if host_count:
        conditions.append(host_condition(host_count, has_subdomains))
    if host_count and table == "local_storage" and not has_subdomains:
        conditions.append("(host = $3 OR domain <> host)")  # as in the list
    if has_group:
        conditions.append(f"(group_id = 0 OR group_id = ${host_count + 3})")
    source = f"FROM {table} WHERE {' AND '.join(conditions)}"
    return f"SELECT count(*), coalesce(max(revision), 0) {source}"


def _encode_scope(scope: ListScope) -> str:
    letters = "".join(_TABLES[table] for table in scope.tables)
    group = "" if scope.for_group is None else str(scope.for_group)
    host = f".{scope.host}" if scope.has_subdomains else scope.host or ""
    text = "\n".join((letters, scope.profile, host, group))
    return base64.urlsafe_b64encode(text.encode()).decode("ascii").rstrip("=")


def _decode_scope(encoded: str) -> ListScope | None:
    """Return the scope in an ETag; None for a text that is no ETag of this service."""
    try:
        padding = "=" * (-len(encoded) % 4)
        text = base64.urlsafe_b64decode(encoded + padding).decode()
        letters, profile, host, group = text.split("\n")
        tables = tuple(_LETTERS[letter] for letter in dict.fromkeys(letters))
        return ListScope(
            tables,
            check_stored_name(profile),
            normalize_domain(host).removeprefix(".") if host else None,
            _parse_group(group) if group else None,
            host.startswith("."),
        )
    except (ValueError, KeyError):
        return None


def _parse_group(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > MAX_INT64:
        raise ValueError("no number of a group")
    return int(text)


# --- the lock -----------------------------------------------------------------------------------


class LockedState(NamedTuple):
    """An organization's session state, locked until the transaction ends."""

    transaction: Transaction
    vault: Vault
    key: Key
    """The active key. The vault decrypts values under other keys."""
    revision: int
    """The revision of the records that this transaction changes."""
    now: int


async def lock_session_state(
    transaction: Transaction,
    vault: Vault,
    now: int = 0,
    if_match: IfMatch = None,
    profile: str = DEFAULT_PROFILE,
) -> LockedState:
    """Locks the organization's session state until the commit, to store or re-encrypt values.

    The key is read after the wait for the lock. A key rotation takes this lock once it has selected
    the new key, so after that no writer uses the old key. See ``lock_without_key``.
    """
    revision = await lock_without_key(transaction, now, if_match, profile)
    try:
        key = vault.key(await metadata.active_key(transaction))
    except UnknownKey as error:
        raise _key_missing(error) from None
    return LockedState(transaction, vault, key, revision, now)


async def lock_without_key(
    transaction: Transaction,
    now: int = 0,
    if_match: IfMatch = None,
    profile: str = DEFAULT_PROFILE,
) -> int:
    """Locks the organization's session state until the commit, for a deletion of records.

    Returns the new revision. It is at least ``now``, so that it is new after a restore, too.
    Raises PreconditionFailed if the lists of ``if_match`` have changed, or are of another profile.
    """
    [[revision]] = await transaction.fetch(_LOCK, transaction.organization_id, now)
    await check_versions(transaction, if_match, profile)
    return int(revision)
