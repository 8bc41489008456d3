"""Whole records of a profile or of a host and its parent domains, bounded in bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from gleanery.storage.database import Database, Row
from gleanery.storage.sessions.kinds import In, Out, RecordKind
from gleanery.storage.sessions.records import Filter
from gleanery.storage.sessions.versions import visible_hosts

_RECORD_BYTES = 200  # of a document, around the name and the value


class StateTooLarge(Exception):
    """The selected records have too many bytes for one document."""


class _Statements(NamedTuple):
    """$1 is the organization and $2 the profile. Then come the hosts, and perhaps a group."""

    size: str
    rows: str


async def read(
    kind: RecordKind[In, Out], database: Database, filter_: Filter, max_bytes: int
) -> tuple[list[Row], int]:
    """Returns the rows for ``records.decrypter``, and their size. Raises StateTooLarge.

    A host's records are found by an index, however many others there are. The caller leaves out
    those of parent domains that are not for subdomains.
    """
    hosts = [] if filter_.domain is None else visible_hosts(filter_.domain.removeprefix("."))
    has_group = kind.has_groups and filter_.for_group is not None
    statements = _statements(kind, len(hosts), has_group)
    values = (database.organization_id, filter_.profile, *hosts, *[filter_.for_group] * has_group)
    [[size]] = await database.read_large(statements.size, *values)
    if size > max_bytes:
        raise StateTooLarge
    rows = await database.read_large(statements.rows, *values)
    return sorted(rows, key=_position), size


def _position(row: Row) -> int:
    """Returns the id of a record; ids are in the order of first insertion."""
    return int(row[-1])


@lru_cache(maxsize=512)
def _statements(kind: RecordKind[Any, Any], host_count: int, has_group: bool) -> _Statements:
    conditions = ["organization_id = $1", "profile = $2"]
    if host_count:
        hosts = ", ".join(f"${number}" for number in range(3, host_count + 3))
        conditions.append(f"host IN ({hosts})")
    if has_group:
        conditions.append(f"(group_id = 0 OR group_id = ${host_count + 3})")
    source = f"FROM {kind.table} WHERE {' AND '.join(conditions)}"
    columns = ("identity", "encrypted_value", *kind.columns, *kind.extra_columns, "id AS position")
    lengths = [f"octet_length({one})" for one in ("encrypted_value", kind.name_column, "path")]
    size = " + ".join((*lengths, str(_RECORD_BYTES)))
    return _Statements(
        f"SELECT COALESCE(SUM({size}), 0) {source}", f"SELECT {', '.join(columns)} {source}"
    )
