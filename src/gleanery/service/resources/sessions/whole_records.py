"""Whole records of a profile, or of a host with its parent and subdomains, bounded in bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from gleanery.service.resources.sessions.kinds import In, Out, RecordKind
from gleanery.service.resources.sessions.records import Filter
from gleanery.service.resources.sessions.versions import (
    HOST_IS_BELOW,
    host_condition,
    visible_hosts,
)
from gleanery.service.storage.database import Database, Row, Sql, Transaction, indexed

_RECORD_BYTES = 200  # of a document, around the name and the value


_COUNT_BELOW = f"""
SELECT count(*) FROM {{}} WHERE organization_id = $1 AND profile = $2 AND {HOST_IS_BELOW}
    AND (expires IS NULL OR expires > $4)
"""
_HOSTS_BELOW = f"""
SELECT DISTINCT host FROM {{}} WHERE organization_id = $1 AND profile = $2 AND {HOST_IS_BELOW}
"""


class StateTooLarge(Exception):
    """The selected records have too many bytes for one document."""


class _Statements(NamedTuple):
    """$1 is the organization and $2 the profile. Then come the hosts, and perhaps a group."""

    size: Sql
    rows: Sql


async def read_rows(
    kind: RecordKind[In, Out], database: Database, filter_: Filter, max_bytes: int
) -> tuple[list[Row], int]:
    """Return the rows for ``records.decrypter``, and their size. Raise StateTooLarge.

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
    return sorted(rows, key=_position), size


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
