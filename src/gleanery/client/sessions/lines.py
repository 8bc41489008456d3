"""Lines of a text document, with their numbers, and the limit of what a document may have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

from gleanery.client.sessions.errors import InvalidSession

# str.splitlines also splits at characters that the value of a cookie may contain.
_LINE = re.compile(r"[^\n]+")

MAX_LINES = 100_000
"""More than a browser's cookies have. Reading this many takes seconds."""
_TOO_MANY = f"The document has more than {MAX_LINES} {{noun}}: read less at a time"

Found = TypeVar("Found")


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the content of each line that is not blank."""
    if text.count("\n") > MAX_LINES:
        raise InvalidSession(_TOO_MANY.format(noun="lines"))
    number, counted = 1, 0
    for match in _LINE.finditer(text):
        number += text.count("\n", counted, match.start())
        counted = match.start()
        line = match[0].removesuffix("\r")
        if line.strip(" \t"):
            yield number, line


def limited(found: Iterable[Found], noun: str) -> Iterator[Found]:
    """Yield what is found. Raise InvalidSession if it is more than a document has lines."""
    for count, one in enumerate(found, start=1):
        if count > MAX_LINES:
            raise InvalidSession(_TOO_MANY.format(noun=noun))
        yield one
