"""The description of a kind of session record, and the SQL that is generated from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from gleanery.service.resources.audit.models import AuditAction
from gleanery.service.storage.database import Row, Sql, Transaction, indexed

In = TypeVar("In")
Out = TypeVar("Out")

HOST_IS_PARENT = "$6 AND substr($5, length($5) - length(host)) = '.' || host"
"""SQL condition (domain-match of RFC 6265): host is a parent domain of $5.

$6 is false if $5 is an IP address, which has no parent domain.
"""


class PreparedRecord(NamedTuple):
    """A record ready to be stored."""

    identity: bytes
    """Hash of the columns that identify the record. It is the associated data of the encryption."""
    domain: str
    columns: tuple[Any, ...]
    """The values of ``RecordKind.columns``."""
    value: str
    kept: tuple[int, ...] = ()
    """Positions of the columns that keep the values of a stored record."""
    alternative: tuple[Any, ...] | None = None
    """Parameters of ``find_alternatives``; None if the client names the partition or origin."""
    keeps_expiry: bool = False
    """True if a stored record with the same value keeps its expiry, unless it has passed."""


class StoredRecord(NamedTuple):
    """A row of ``Statements.find``."""

    encrypted_value: bytes | None
    """None unless it has the expected length."""
    columns: tuple[Any, ...]
    """The values of ``RecordKind.columns``."""


class HostRecord(NamedTuple):
    """A row of ``Statements.list_host``."""

    identity: bytes
    columns: Sequence[Any]
    """The values of ``RecordKind.columns``."""


class Statements(NamedTuple):
    """The SQL of one kind of record. $1 is always the organization."""

    find: str
    """Identity, encrypted value and columns of the record with identity $2.

    The value is null unless it has $3 bytes, so that no large value is read in vain.
    """
    find_length: str
    """Identity and length of the encrypted value of the record with identity $2."""
    any_alternative: Sql
    """One row if the organization has a partitioned cookie, or an entry with an origin."""
    find_alternatives: str
    """Identity and parameters of the records that a client can mean; see ``RecordKind``."""
    store: str
    """Inserts or replaces a record.

    $2 is the identity, $3 the encrypted value, $4 the time, $5 the revision, then the columns.
    """
    list_all: str
    """Identity, encrypted value, columns, extra columns and id of all records of profile $4.

    The records have ids above $2 and up to $3, in the order of first insertion. If the kind has
    groups, the last parameter is null or the group whose records are listed.
    """
    list_visible: str
    """The same for records that are visible to a page on host $5; see ``HOST_IS_PARENT``."""
    sizes_of_all: str
    """Id and size of the first $3 records with ids above $2; 0 if the record is not listed."""
    sizes_of_visible: str
    """The same for records that are visible to a page on host $5."""
    delete: str
    """Deletes the records of profile $2, host $3, domain $4 and, unless $5 is null, name $5.

    Returns their ids.
    """
    list_host: str
    """Identity and columns of the records of profile $2 and host $3.

    If the kind has groups, $4 is null or the group of the records.
    """
    delete_one: str
    """Deletes the record with identity $2."""


@dataclass(frozen=True)
class RecordKind(Generic[In, Out]):
    """Describes a kind of session record: table, columns, identity, conversions, audit actions."""

    table: str
    columns: tuple[str, ...]
    """All columns that clients can change or see, except the encrypted value."""
    identity_columns: tuple[str, ...]
    name_column: str
    replaced_columns: tuple[str, ...]
    """Columns that can differ when a record with the same identity is stored again."""
    visible_if: str
    """SQL condition: the record is visible to a page on host $5; see ``HOST_IS_PARENT``."""
    alternative_column: str
    """The column of the partition or of the origin."""
    alternative_index: str
    """The index of the records in which this column is not null."""
    alternative_member: str
    """The member of a body that names the partition or the origin."""
    ambiguous: str
    """Message of the error if it is not clear which partition or origin a client means."""
    find_alternatives: str
    """Finds the partitioned cookies, or the entries with an origin, that a client can mean.

    The client names neither. The statement returns the identity and then its own parameters after
    $1, which are those of ``PreparedRecord.alternative``.
    """
    hash_identity: Callable[..., bytes]
    """Hashes the organization's id and the values of ``identity_columns``."""
    prepare: Callable[[int, In], PreparedRecord]
    """Converts a client's input to a record; takes the organization's id."""
    to_response: Callable[[int, str, Row], Out]
    """Converts organization id, decrypted value and row to the record that a client gets."""
    read_action: AuditAction
    store_action: AuditAction
    delete_action: AuditAction
    uncompared_columns: tuple[str, ...] = ()
    """Columns that do not say which stored record a client means."""
    extra_columns: tuple[str, ...] = ()
    """Columns that only ``to_response`` needs."""
    has_created_at: bool = False
    check: Callable[[Transaction, Sequence[In]], Awaitable[None]] | None = None
    """Checks an array against the database, under the lock of the session state."""

    @cached_property
    def statements(self) -> Statements:
        value = "CASE WHEN octet_length(encrypted_value) = $3 THEN encrypted_value END"
        select = f"SELECT identity, {value}, {', '.join(self.columns)}"
        source = f"FROM {self.table} WHERE organization_id = $1"
        return Statements(
            find=f"{select} {source} AND identity = $2",
            find_length=f"""
SELECT identity, octet_length(encrypted_value) {source} AND identity = $2
""",
            any_alternative=indexed(
                f"""
SELECT 1 FROM {{{self.table}}}
WHERE organization_id = $1 AND {self.alternative_column} IS NOT NULL LIMIT 1
""",
                **{self.table: self.alternative_index},
            ),
            find_alternatives=self.find_alternatives,
            store=self._store_statement(),
            list_all=self._list_statement(self._group_condition(5)),
            list_visible=self._list_statement(f"({self.visible_if})", self._group_condition(7)),
            sizes_of_all=self._sizes_statement(self._group_condition(5)),
            sizes_of_visible=self._sizes_statement(
                f"({self.visible_if})", self._group_condition(7)
            ),
            delete=f"""
DELETE FROM {self.table}
WHERE organization_id = $1 AND profile = $2 AND host = $3 AND domain = $4
    AND (CAST($5 AS TEXT) IS NULL OR {self.name_column} = $5)
RETURNING id
""",
            list_host=f"""
SELECT identity, {", ".join(self.columns)} {source} AND profile = $2 AND host = $3
{"AND (CAST($4 AS BIGINT) IS NULL OR group_id = $4)" if self.has_groups else ""}
""",
            delete_one=f"DELETE {source} AND identity = $2",
        )

    @cached_property
    def has_groups(self) -> bool:
        return "group_id" in self.columns

    def _group_condition(self, parameter: int) -> str:
        if not self.has_groups:
            return "TRUE"
        group = f"${parameter}"
        return f"(CAST({group} AS BIGINT) IS NULL OR group_id = 0 OR group_id = {group})"

    def _list_statement(self, *conditions: str) -> str:
        columns = ("identity", "encrypted_value", *self.columns, *self.extra_columns)
        return f"""
SELECT {", ".join(columns)}, id AS position FROM {self.table}
WHERE organization_id = $1 AND id > $2 AND id <= $3 AND profile = $4
    AND {" AND ".join(conditions)}
ORDER BY id
"""

    def _sizes_statement(self, *conditions: str) -> str:
        long_columns = ("encrypted_value", self.name_column, "path")  # the others have a maximum
        size = " + ".join(f"octet_length({column})" for column in long_columns)
        return f"""
SELECT id, CASE WHEN profile = $4 AND {" AND ".join(conditions)} THEN {size} ELSE 0 END
FROM {self.table} WHERE organization_id = $1 AND id > $2 ORDER BY id LIMIT $3
"""

    def _store_statement(self) -> str:
        created_at = {"created_at": "$4"} if self.has_created_at else {}
        fixed = {"organization_id": "$1", "identity": "$2", "encrypted_value": "$3"}
        values = fixed | created_at | {"updated_at": "$4", "revision": "$5"}
        values |= {column: f"${number}" for number, column in enumerate(self.columns, 6)}
        replaced = ("encrypted_value", "updated_at", "revision", *self.replaced_columns)
        return f"""
INSERT INTO {self.table} ({", ".join(values)}) VALUES ({", ".join(values.values())})
ON CONFLICT (organization_id, identity) DO UPDATE SET
    {", ".join(f"{column} = excluded.{column}" for column in replaced)}
"""
