"""Rows of outputs and of changes, made from the JSON text of a change."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

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
