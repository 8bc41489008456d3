"""Tables of the resources in dlt's schema: columns, names, write disposition, and truncation."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import dlt
from dlt.common.configuration.container import Container
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.utils import resolve_merge_strategy
from dlt.common.schema.typing import TColumnSchema, TTableSchema

Columns = dict[str, TColumnSchema]

_DATES: Columns = {
    name: {"data_type": "timestamp"} for name in ("create_date", "update_date", "last_scraped_date")
}
# Of the rows with the same key in a run, dlt keeps the one with the last position.
_CURSOR: TColumnSchema = {"data_type": "bigint", "dedup_sort": "desc"}
OUTPUT_COLUMNS: Columns = {
    **_DATES,
    "cursor": _CURSOR,
    "deleted": {"data_type": "bool", "hard_delete": True},
}
CHANGE_COLUMNS: Columns = {
    **_DATES,
    "cursor": _CURSOR,
    "change_date": {"data_type": "timestamp"},
}


def require_distinct(groups: Sequence[str]) -> None:
    """Raise ValueError if two groups would have the same table."""
    naming = dlt.current.source_schema().naming
    group_of: dict[str, str] = {}
    for group in groups:
        table = naming.normalize_table_identifier(f"outputs_{group}")
        if table in group_of:
            raise ValueError(
                f"The groups {group_of[table]!r} and {group!r} have the same table {table!r}: "
                "load them with two pipelines, each with a dataset_name of its own"
            )
        group_of[table] = group


def require_exact_merge() -> None:
    """Raise ValueError if the table of the current resource would keep old or deleted rows.

    dlt falls back to append where a destination has no merge. Its other strategies do not use the
    order of two rows of an output, and store the row of a deletion.
    """
    if DestinationCapabilitiesContext not in Container():
        return  # the rows are extracted without a destination
    table = dlt.current.resource().compute_table_schema()
    name = table["name"] or ""
    if resolve_merge_strategy({name: table}, table) != "delete-insert":
        raise ValueError(
            f"The table {name!r} would keep old and deleted rows, because it is not loaded with "
            "the merge strategy 'delete-insert'. Load into a destination that supports it, such "
            "as a database, without another write_disposition. Or load only the log of changes: "
            "gleanery_source(…, changes=True).with_resources('changes_…')"
        )


def truncate(resource: str) -> None:
    """Let dlt empty the tables of a resource before it loads the rows of this run."""
    package = dlt.current.load_package_state()["state"]
    package.setdefault("truncated_tables", []).extend(deepcopy(_loaded_tables(resource)))


def _loaded_tables(resource: str) -> list[TTableSchema]:
    """Return the table of a resource and those nested in it, as far as they have had rows."""
    found: dict[str | None, TTableSchema] = {}
    for table in dlt.current.source_schema().data_tables(seen_data_only=True):
        if table.get("resource") == resource or table.get("parent") in found:
            found[table["name"]] = table
    return list(found.values())
