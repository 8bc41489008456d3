"""The commands of a page of the documentation, and the output that the page shows for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Example(NamedTuple):
    """A command of a page, and the output that the page shows for it."""

    command: str
    output: str


def examples(text: str) -> Iterator[Example]:
    """Commands of all console blocks of a page."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        yield from examples_of_block(block)


def examples_of_block(block: str) -> Iterator[Example]:
    """Commands of one console block. Each starts with a dollar sign."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        lines = part.splitlines()
        end = _command_length(lines)
        yield Example("\n".join(lines[:end]), "\n".join(lines[end:]))


def _command_length(lines: list[str]) -> int:
    """Counts the lines of a command: up to a here-document's end, or without an open quote."""
    if "<<" in lines[0]:
        return lines.index("END") + 1
    for number, line in enumerate(lines, 1):
        if not line.endswith("\\") and "\n".join(lines[:number]).count("'") % 2 == 0:
            return number
    raise ValueError(lines)


def is_shown(printed: str, shown: str) -> bool:
    """Returns True if the page shows this output; … matches any text, white space is ignored."""
    pattern = ".*".join(map(re.escape, re.sub(r"\s", "", shown).split("…")))
    return re.fullmatch(pattern, re.sub(r"\s", "", printed), re.S) is not None
