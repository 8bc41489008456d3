"""The two change feeds, of all outputs and of the approved view: their statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gleanery.service.resources.outputs.models import View
from gleanery.storage import metadata, paging
from gleanery.storage.database import Sql, indexed

_IN_GROUP = "WHERE organization_id = $1 AND group_id = $2"
_IN_RANGE = "AND seq > $3 AND seq <= $4"
_IN_ORDER = "ORDER BY seq LIMIT $5"


class FeedSource(NamedTuple):
    """The statements that read a feed, and those that purge its tombstones."""

    values: tuple[bool, ...]
    """Values of ``changes`` and ``sizes``, after the values of their range and limit."""
    group: str
    """Reads a group: its id, its last purged number, its last number and the restore time."""
    changes: Sql
    """Reads changes. A change is a deletion if it has the name of a job, and a creation if its
    number is ``created_seq``. The last value is the maximum size of an item."""
    sizes: Sql
    expired_groups: str
    purge: str
    set_purged: str


class _Rows(NamedTuple):
    """Outputs of a feed: a table with its condition, and where each output entered the feed."""

    table: Sql
    created_seq: str

    def changes(self, max_item_bytes: str) -> Sql:
        return self.table.within(
            f"""
SELECT seq, {self.created_seq} AS created_seq,
    CASE WHEN octet_length(item) <= {max_item_bytes} THEN item END AS item,
    id, identity, NULL AS job_name
FROM """,
            f" {_IN_RANGE}\n",
        )

    @property
    def sizes(self) -> Sql:
        return self.table.within(f"SELECT seq, {paging.ITEM_SIZE} AS size FROM ", f" {_IN_RANGE}")


def _source(
    purged_seq: str, tombstones: str, *outputs: _Rows, values: tuple[bool, ...] = ()
) -> FeedSource:
    deletions = f"""
SELECT seq, 0 AS created_seq, CAST(NULL AS BYTEA) AS item, id, identity, job_name
FROM {tombstones} {_IN_GROUP} {_IN_RANGE}
"""
    deletion_sizes = f"""
SELECT seq, octet_length(job_name) AS size FROM {tombstones} {_IN_GROUP} {_IN_RANGE}
"""
    return FeedSource(
        values,
        group=f"""
SELECT id, {purged_seq}, last_seq, {metadata.RESTORE_TIME} FROM groups
WHERE organization_id = $1 AND name = $2
""",
        changes=_merge([rows.changes(f"${6 + len(values)}") for rows in outputs], deletions),
        sizes=_merge([rows.sizes for rows in outputs], deletion_sizes),
        expired_groups=f"""
SELECT organization_id, name, id FROM groups
WHERE EXISTS (SELECT 1 FROM {tombstones} WHERE {tombstones}.organization_id = groups.organization_id
              AND {tombstones}.group_id = groups.id AND seq <= $1)
""",
        purge=f"""
DELETE FROM {tombstones} {_IN_GROUP} AND seq <= $3 AND seq IN (
    SELECT seq FROM {tombstones} {_IN_GROUP} AND seq <= $3 ORDER BY seq LIMIT $4)
RETURNING seq, identity
""",
        set_purged=f"""
UPDATE groups SET {purged_seq} = $3 WHERE organization_id = $1 AND id = $2 AND {purged_seq} < $3
""",
    )


def _merge(outputs: Sequence[Sql], deletions: str) -> Sql:
    """Return one statement, so that no output is missed while it moves between two tables.

    Each part is in order. SQLite merges the parts. PostgreSQL sorts them, so they need limits.
    """
    sqlite = [*(part.sqlite for part in outputs), deletions]
    postgres = [f"({part} {_IN_ORDER})" for part in (*(one.postgres for one in outputs), deletions)]
    return Sql(
        f"{' UNION ALL '.join(sqlite)} {_IN_ORDER}", f"{' UNION ALL '.join(postgres)} {_IN_ORDER}"
    )


FULL = _source("purged_seq", "tombstones", _Rows(indexed(f"outputs {_IN_GROUP}"), "created_seq"))
# The approval is a parameter. With a constant, PostgreSQL would also read outputs without approval.
APPROVED = _source(
    "view_purged_seq",
    "view_tombstones",
    _Rows(
        indexed(f"{{outputs}} {_IN_GROUP} AND approved = $6", outputs="outputs_by_approval"),
        "view_seq",
    ),
    _Rows(indexed(f"approved_versions {_IN_GROUP}"), "view_seq"),
    values=(True,),
)
BY_VIEW: dict[View, FeedSource] = {"full": FULL, "approved": APPROVED}
