"""Lines of a text document, with their numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gleanery.client.sessions.errors import InvalidSession

# str.splitlines also splits at characters that the value of a cookie may contain.
_LINE = re.compile(r"[^\n]+")

MAX_LINES = 100_000
"""More than a browser's cookies have. Reading this many takes seconds."""
_TOO_MANY_LINES = f"The document has more than {MAX_LINES} lines: read less at a time"


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Yields the number and the content of each line that is not blank."""
    if text.count("\n") > MAX_LINES:
        raise InvalidSession(_TOO_MANY_LINES)
    number, counted = 1, 0
    for match in _LINE.finditer(text):
        number += text.count("\n", counted, match.start())
        counted = match.start()
        line = match[0].removesuffix("\r")
        if line.strip(" \t"):
            yield number, line
