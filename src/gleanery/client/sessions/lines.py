"""Lines of a text document, with their numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

# str.splitlines also splits at characters that the value of a cookie may contain.
_LINE = re.compile(r"[^\n]+")


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Yields the number and the content of each line that is not blank."""
    number, counted = 1, 0
    for match in _LINE.finditer(text):
        number += text.count("\n", counted, match.start())
        counted = match.start()
        line = match[0].removesuffix("\r")
        if line.strip(" \t"):
            yield number, line
