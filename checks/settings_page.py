"""Table of settings in docs/settings.md, written by ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

from gleanery.common.setting_rows import Setting
from gleanery.common.settings import table

_START, _END = "<!-- settings -->", "<!-- end -->"
_COLUMNS = ("option", "variable", "default", "allowed", "meaning")
_TYPES = {bool: "on or off", float: "a number", int: "an integer", Path: "a path", str: "text"}


def with_table(page: str) -> str:
    """Return the page with a current table between the two markers."""
    before, _, rest = page.partition(_START)
    _, _, after = rest.partition(_END)
    return f"{before}{_START}\n\n{markdown()}\n{_END}{after}"


def markdown() -> str:
    rows = [_COLUMNS, ("---",) * len(_COLUMNS), *map(_cells, table())]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def _cells(row: Setting) -> tuple[str, ...]:
    option = f"`{row.option}`" if row.has_option else ""
    allowed = row.check.rule if row.check is not None else _type_name(row)
    return option, f"`{row.variable}`", _default(row), allowed, row.help


def _default(row: Setting) -> str:
    if row.default_text:
        return row.default_text
    if row.default is None:
        return "none"
    return "off" if row.default is False else f"`{row.default}`"


def _type_name(row: Setting) -> str:
    """Name the type of a setting; an optional one has the type of its value."""
    return _TYPES[(get_args(row.type) or (row.type,))[0]]


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
