"""Whole records of a profile or of a host and its parent domains, bounded in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from gleanery.client.sessions.hostnames import is_address
from gleanery.storage.database import Database, Row
from gleanery.storage.sessions.kinds import In, Out, RecordKind
from gleanery.storage.sessions.records import Filter

_RECORD_BYTES = 200  # of a document, around the name and the value


class StateTooLarge(Exception):
    """The selected records have too many bytes for one document."""


class _Statements(NamedTuple):
    """$1 is the organization, $2 the profile, then perhaps the host, and a group or null."""

    size: str
    rows: str


async def read(
    kind: RecordKind[In, Out], database: Database, filter_: Filter, max_bytes: int
) -> tuple[list[Row], int]:
    """Returns the rows for ``records.decrypter``, and their size. Raises StateTooLarge.

    A host's records are found by an index, however many others there are. The caller leaves out
    those of parent domains that are not for subdomains.
    """
    searches = list(_searches(kind, database, filter_))
    statements = _statements(kind, filter_.domain is not None)
    size = 0
    for values in searches:
        [[found]] = await database.read_large(statements.size, *values)
        size += found
        if size > max_bytes:
            raise StateTooLarge
    rows: list[Row] = []
    for values in searches:
        rows += await database.read_large(statements.rows, *values)
    return sorted(rows, key=_position), size


def _searches(
    kind: RecordKind[In, Out], database: Database, filter_: Filter
) -> Sequence[tuple[Any, ...]]:
    """Returns the parameters of each search."""
    group = (filter_.for_group,) if kind.has_groups else ()
    key = (database.organization_id, filter_.profile)
    if filter_.domain is None:
        return [(*key, *group)]
    return [(*key, host, *group) for host in _with_parents(filter_.domain.removeprefix("."))]


def _with_parents(host: str) -> list[str]:
    """Returns the host and its parent domains; an address has none."""
    if is_address(host):
        return [host]
    labels = host.split(".")
    return list(accumulate(reversed(labels), lambda parent, label: f"{label}.{parent}"))


def _position(row: Row) -> int:
    """Returns the id of a record, which is in the order of first insertion."""
    return int(row[-1])


@cache
def _statements(kind: RecordKind[Any, Any], is_of_host: bool) -> _Statements:
    condition = "organization_id = $1 AND profile = $2" + " AND host = $3" * is_of_host
    if kind.has_groups:
        group = "$4" if is_of_host else "$3"
        condition += f" AND (CAST({group} AS BIGINT) IS NULL OR group_id IN (0, {group}))"
    columns = ("identity", "encrypted_value", *kind.columns, *kind.extra_columns)
    lengths = [f"octet_length({one})" for one in ("encrypted_value", kind.name_column, "path")]
    size = " + ".join((*lengths, str(_RECORD_BYTES)))
    return _Statements(
        f"SELECT COALESCE(SUM({size}), 0) FROM {kind.table} WHERE {condition}",
        f"SELECT {', '.join(columns)}, id AS position FROM {kind.table} WHERE {condition}",
    )
