"""Rows of outputs, changes and runs, made from their JSON text, and their columns in dlt."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

import dlt
from dlt.common import logger
from dlt.common.normalizers.json.helpers import normalize_identifier
from msgspec import Raw
from msgspec.json import Decoder

from gleanery.client import Fields

Row = dict[str, Any]

Paths = list[list[str]]

_decode = Decoder(dict[str, Any]).decode
_LONG_INTEGER = re.compile(rb"[0-9]{19}")
_BIGINT = range(-(2**63), 2**63)
_EXACT_DOUBLE = 2**53
_PLAIN_PATH = re.compile(r"\w+(\.\w+)*", re.ASCII)


def paths_of_doubles(fields: Fields) -> Paths:
    """Return the paths inside ``data`` that have integers and fractions.

    dlt chooses the type of a column by its first number. If that is an integer, fractions get a
    column of their own. So the rows have only doubles there.
    """
    return [
        field.path.split(".")
        for field in fields.fields
        if {"integer", "number"} <= field.kinds.keys() and _PLAIN_PATH.fullmatch(field.path)
    ]


def output_row(change: Raw, doubles: Paths) -> Row:
    """Return the row of an output. That of a deletion tells dlt to remove the row."""
    members = _read(change, doubles)
    is_deleted = members["change"] == "delete"
    return {**members["output"], "cursor": members["cursor"], "deleted": is_deleted}


def change_row(change: Raw, doubles: Paths) -> Row:
    """Return the row of a change: its own members, and those of its output."""
    members = _read(change, doubles)
    return {**members.pop("output"), **members}


def run_row(run: Raw) -> Row:
    """Return the row of a run. Each count has a column."""
    return _decode(run)


def restart_row(group: str, cursor: int) -> Row:
    """Return the row of a gap in the log: the deletions after the cursor are not all known."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    key = {"output_id": "", "change": "restart", "change_date": now}
    return {**key, "cursor": cursor, "group_id": group}


def _read(change: Raw, doubles: Paths) -> dict[str, Any]:
    members = _decode(change)
    output = members["output"]
    for path in doubles:
        _convert_to_double(output, ["data", *path])
    for file in output.get("files", ()):
        del file["blob_url"]  # differs in each response, and works for minutes only
    if _LONG_INTEGER.search(change):
        output |= {name: _loadable(output[name]) for name in ("data", "tags") if name in output}
    return members


def _convert_to_double(value: Any, path: list[str]) -> None:
    *outer, name = path
    for step in outer:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, dict):
        number = value.get(name)
        if type(number) is int and abs(number) <= _EXACT_DOUBLE:
            value[name] = float(number)


def _loadable(value: Any) -> Any:
    """Replace integers that no column of dlt has by their digits.

    dlt would convert digits alone to a number again. As a member ``v_text`` they get the column
    that dlt adds for texts among numbers.
    """
    if isinstance(value, dict):
        return {name: _loadable(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_loadable(element) for element in value]
    if type(value) is int and value not in _BIGINT:
        return {"v_text": str(value)}
    return value


# --- members that dlt would put into the same column --------------------------------------------


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
