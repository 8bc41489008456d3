"""The description of a kind of session record, and the SQL that is generated from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from gleanery.models.responses import AuditAction
from gleanery.storage.database import Row, Transaction

In = TypeVar("In")
Out = TypeVar("Out")

HOST_IS_PARENT = "$5 AND substr($4, length($4) - length(host)) = '.' || host"
"""SQL condition (domain-match of RFC 6265): host is a parent domain of $4.

$5 is false if $4 is an IP address, which has no parent domain.
"""


class PreparedRecord(NamedTuple):
    """A record ready to be stored."""

    identity: bytes
    """Hash of the columns that identify the record. It is the associated data of the encryption."""
    domain: str
    columns: tuple[Any, ...]
    """The values of ``RecordKind.columns``."""
    value: str


class Statements(NamedTuple):
    """The SQL of one kind of record. $1 is always the organization."""

    find: str
    """Identity, encrypted value and columns of the record with identity $2.

    The value is null unless it has $3 bytes, so that no large value is read in vain.
    """
    store: str
    """Inserts or replaces a record: $2 identity, $3 encrypted value, $4 time, then the columns."""
    list_all: str
    """Identity, encrypted value, columns, extra columns and id of all records.

    The records have ids above $2 and up to $3, in the order of first insertion. If the kind has
    groups, the last parameter is null or the group whose records are listed.
    """
    list_visible: str
    """The same for records that are visible to a page on host $4; see ``HOST_IS_PARENT``."""
    sizes_of_all: str
    """Id and size of the first $3 records with ids above $2; 0 if the record is not listed."""
    sizes_of_visible: str
    """The same for records that are visible to a page on host $4."""
    delete: str
    """Deletes the records of domain $2 and, unless $3 is null, of name $3. Returns their ids."""


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
    """SQL condition: the record is visible to a page on host $4; see ``HOST_IS_PARENT``."""
    hash_identity: Callable[..., bytes]
    """Hashes the organization's id and the values of ``identity_columns``."""
    prepare: Callable[[int, In], PreparedRecord]
    """Converts a client's input to a record; takes the organization's id."""
    to_response: Callable[[int, str, Row], Out]
    """Converts organization id, decrypted value and row to the record that a client gets."""
    read_action: AuditAction
    store_action: AuditAction
    delete_action: AuditAction
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
            store=self._store_statement(),
            list_all=self._list_statement(self._group_condition(4)),
            list_visible=self._list_statement(f"({self.visible_if})", self._group_condition(6)),
            sizes_of_all=self._sizes_statement(self._group_condition(4)),
            sizes_of_visible=self._sizes_statement(
                f"({self.visible_if})", self._group_condition(6)
            ),
            delete=f"""
DELETE FROM {self.table}
WHERE organization_id = $1 AND domain = $2
    AND (CAST($3 AS TEXT) IS NULL OR {self.name_column} = $3)
RETURNING id
""",
        )

    @property
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
WHERE organization_id = $1 AND id > $2 AND id <= $3 AND {" AND ".join(conditions)}
ORDER BY id
"""

    def _sizes_statement(self, *conditions: str) -> str:
        long_columns = ("encrypted_value", self.name_column, "path")  # the others have a maximum
        size = " + ".join(f"octet_length({column})" for column in long_columns)
        return f"""
SELECT id, CASE WHEN {" AND ".join(conditions)} THEN {size} ELSE 0 END
FROM {self.table} WHERE organization_id = $1 AND id > $2 ORDER BY id LIMIT $3
"""

    def _store_statement(self) -> str:
        created_at = {"created_at": "$4"} if self.has_created_at else {}
        fixed = {"organization_id": "$1", "identity": "$2", "encrypted_value": "$3"}
        values = fixed | created_at | {"updated_at": "$4"}
        values |= {column: f"${number}" for number, column in enumerate(self.columns, 5)}
        replaced = ("encrypted_value", "updated_at", *self.replaced_columns)
        return f"""
INSERT INTO {self.table} ({", ".join(values)}) VALUES ({", ".join(values.values())})
ON CONFLICT (organization_id, identity) DO UPDATE SET
    {", ".join(f"{column} = excluded.{column}" for column in replaced)}
"""
