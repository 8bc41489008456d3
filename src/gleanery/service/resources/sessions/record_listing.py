"""The records of one session for people: listed without values, and one value at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.security.vault import Vault, encrypted_length
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.kinds import In, Out, RecordKind
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.records import decrypter
from gleanery.service.storage.database import Database, Row, indexed

MAX_TEXT = 500
"""Characters of a name or a path that are listed."""
# The position is an expression, because PostgreSQL would otherwise search all records of the
# organization in the order of their ids.
_LIST = """
SELECT id, domain, substr({name}, 1, $6), length({name}), substr(path, 1, $6), length(path),
    octet_length(encrypted_value), expires, updated_at, {others}
FROM {{{table}}}
WHERE organization_id = $1 AND host = $2 AND profile = $3 AND id + 0 > $4
ORDER BY id + 0 LIMIT $5
"""
_COOKIE_COLUMNS = "secure, http_only, host_only, same_site, partition_site, NULL, NULL"
_ENTRY_COLUMNS = "NULL, NULL, NULL, NULL, NULL, origin, group_id"
_LIST_COOKIES = indexed(
    _LIST.format(table="cookies", name="name", others=_COOKIE_COLUMNS), cookies="cookies_by_host"
)
_LIST_ENTRIES = indexed(
    _LIST.format(table="local_storage", name="key", others=_ENTRY_COLUMNS),
    local_storage="local_storage_by_host",
)
# A range in an order is always found by the primary key, also while the table is empty.
_FIND = """
SELECT identity, encrypted_value, {columns} FROM {table}
WHERE organization_id = $1 AND id > $2 AND id <= $3 ORDER BY id
"""
_FIND_COOKIE = _FIND.format(table="cookies", columns=", ".join(COOKIES.columns))
_FIND_ENTRY = _FIND.format(table="local_storage", columns=", ".join(LOCAL_STORAGE.columns))


class ListedText(NamedTuple):
    """The beginning of a text, and its length in characters."""

    beginning: str
    length: int


class ListedRecord(NamedTuple):
    """A record without its value."""

    id: int
    domain: str
    name: ListedText
    path: ListedText
    value_bytes: int
    expires: int | None
    updated_at: int
    secure: bool
    http_only: bool
    host_only: bool
    same_site: str | None
    partition_site: str | None
    origin: str | None
    group_id: int | None


class RecordPage(NamedTuple):
    """Records in the order of their first insertion, and the cursor of the next page."""

    records: list[ListedRecord]
    next_cursor: int | None


async def list_records(
    kind: RecordKind[In, Out], database: Database, host: str, profile: str, cursor: int, limit: int
) -> RecordPage:
    """List the records of a host and profile with ids above the cursor."""
    sql = _LIST_COOKIES if kind.table == COOKIES.table else _LIST_ENTRIES
    key = (database.organization_id, host, profile, cursor, limit + 1, MAX_TEXT)
    # Other requests run meanwhile: one host can have many records.
    rows = await database.read_large(sql, *key)
    records = [_to_record(row) for row in rows[:limit]]
    return RecordPage(records, records[-1].id if len(rows) > limit else None)


def _to_record(row: Row) -> ListedRecord:
    id_, domain, name, name_length, path, path_length, size, expires, updated_at, *others = row
    secure, http_only, host_only, same_site, partition_site, origin, group_id = others
    return ListedRecord(
        id_,
        domain,
        ListedText(name, name_length),
        ListedText(path, path_length),
        size - encrypted_length(""),
        expires,
        updated_at,
        bool(secure),
        bool(http_only),
        bool(host_only),
        same_site,
        partition_site,
        origin,
        group_id,
    )


async def reveal(
    kind: RecordKind[In, Out],
    database: Database,
    vault: Vault,
    read_auditor: log.ReadAuditor,
    id_: int,
    now: int,
    actor: Actor,
) -> str | None:
    """Return the value of a record after an entry in the audit log; None without a record."""
    sql = _FIND_COOKIE if kind.table == COOKIES.table else _FIND_ENTRY
    rows = await database.read(sql, database.organization_id, id_ - 1, id_)
    if not rows:
        return None
    [row] = rows
    columns: dict[str, Any] = dict(zip(kind.columns, row[2:], strict=True))
    about = AuditAbout(records=1, domains=[columns["domain"]], profile=columns["profile"])
    await read_auditor.record(database, log.Entry(actor, now, "reveal_value", about))
    return decrypter(kind, database, vault)(row)
