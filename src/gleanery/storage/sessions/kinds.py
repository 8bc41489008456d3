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

HOST_IS_PARENT = "$3 AND substr($2, length($2) - length(host)) = '.' || host"
"""SQL condition (domain-match of RFC 6265): host is a parent domain of $2.

$3 is false if $2 is an IP address, which has no parent domain.
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
    """Identity, encrypted value and columns of the record with identity $2."""
    store: str
    """Inserts or replaces a record: $2 identity, $3 encrypted value, $4 time, then the columns."""
    list_all: str
    """Identity, encrypted value, columns and extra columns, in the order of first insertion."""
    list_visible: str
    """The same for records that are visible to a page on host $2; see ``HOST_IS_PARENT``."""
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
    """SQL condition: the record is visible to a page on host $2; see ``HOST_IS_PARENT``."""
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
        select = f"SELECT identity, encrypted_value, {', '.join(self.columns)}"
        source = f"FROM {self.table} WHERE organization_id = $1"
        list_ = f"{', '.join((select, *self.extra_columns))} {source}"
        return Statements(
            find=f"{select} {source} AND identity = $2",
            store=self._store_statement(),
            list_all=f"{list_} ORDER BY id",
            list_visible=f"{list_} AND ({self.visible_if}) ORDER BY id",
            delete=f"""
DELETE FROM {self.table}
WHERE organization_id = $1 AND domain = $2
    AND (CAST($3 AS TEXT) IS NULL OR {self.name_column} = $3)
RETURNING id
""",
        )

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
