"""Paths of fields inside a JSON value, such as ``offer.price`` or ``images[0]``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce

from gleanery.service.foundation.values import json_text

# A dollar sign at the start is for what is outside ``data``.
_PLAIN_NAME = re.compile(r'[^\s.\[\]"\\$\x00-\x1f][^\s.\[\]"\\\x00-\x1f]*')

_PART = re.compile(
    rf'(?P<dot>\.)?(?:(?P<plain>{_PLAIN_NAME.pattern})|\[(?P<quoted>"(?:[^"\\]|\\.)*")\])'
)


def member(parent: str, name: str) -> str:
    """Return the path of a member. An unusual name is quoted: ``["a.b"]``."""
    if not _PLAIN_NAME.fullmatch(name):
        return f"{parent}[{json_text.encode(name).decode()}]"
    return f"{parent}.{name}" if parent else name


def of_names(names: Iterable[str]) -> str:
    """Return the path of a member of a member, and so on."""
    return reduce(member, names, "")


def element(parent: str, index: int) -> str:
    """Return the path of an element of an array."""
    return f"{parent}[{index}]"


def names(path: str) -> list[str]:
    """Return the names of a path of members. Raise ValueError if it is no such path."""
    found: list[str] = []
    at = 0
    while at < len(path):
        part = _PART.match(path, at)
        if part is None or (part["dot"] is not None) != (at > 0 and part["quoted"] is None):
            raise ValueError("must be the path of a field, such as offer.price")
        quoted = part["quoted"]
        found.append(part["plain"] if quoted is None else str(json_text.decode(quoted.encode())))
        at = part.end()
    return found
