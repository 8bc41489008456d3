"""Members of an output that dlt would put into the same column."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from zlib import crc32

import dlt
from dlt.common import logger
from dlt.common.normalizers.json.helpers import normalize_identifier

from gleanery.integrations.dlt.rows import Row


class MemberNames:
    """Gives each member of an object a column of its own, and reports the names that share one.

    dlt makes names lower-case and replaces letters of other scripts. Of two members of an object
    with the same column it would keep one.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._schema = dlt.current.source_schema()
        self._reported: set[tuple[str, ...]] = set()
        nesting = (dlt.current.resource().max_table_nesting, dlt.current.source().max_table_nesting)
        self._has_columns = 0 not in nesting  # otherwise data is JSON, with the given names

    def separate(self, rows: list[Row]) -> list[Row]:
        """Rename members in place, and return the rows."""
        if self._has_columns:
            for row in rows:
                self._separate([row.get("data"), row.get("tags")])
        return rows

    def _separate(self, value: dict[str, Any] | list[Any]) -> None:
        if isinstance(value, dict) and len(set(map(self._column, value))) < len(value):
            self._rename(value)
        for child in value.values() if isinstance(value, dict) else value:
            if isinstance(child, (dict, list)):
                self._separate(child)

    def _column(self, name: str) -> str:
        if not name or name.isspace():
            return "_empty"
        return normalize_identifier(self._schema, self._schema.naming, name)

    def _rename(self, members: dict[str, Any]) -> None:
        """Add the checksum of its name to each member that shares a column.

        So the new name does not depend on the other members, and is the same in each run.
        """
        names_of: dict[str, list[str]] = defaultdict(list)
        for name in members:
            names_of[self._column(name)].append(name)
        for column, names in names_of.items():
            if len(names) > 1:
                self._report(names)
                for name in names:
                    if name != column:
                        members[f"{name}_{crc32(name.encode()):08x}"] = members.pop(name)

    def _report(self, names: list[str]) -> None:
        reported = tuple(sorted(names))
        if reported not in self._reported:
            self._reported.add(reported)
            logger.warning(
                f"In the group {self._group!r}, the members {', '.join(map(repr, reported))} of an "
                "output have the same column in dlt. They get columns with a checksum at the end. "
                "To keep their names, set max_table_nesting = 0, or choose another naming "
                "convention, such as SCHEMA__NAMING=duck_case"
            )
