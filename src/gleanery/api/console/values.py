"""Values for the console: exact numbers, and long texts and lists truncated.

A browser cannot read large numbers exactly, and a value of many megabytes would freeze it. So every
value becomes an array whose first element is its kind:

- ``["s", text]``, or ``["s", beginning, length]`` for a truncated text
- ``["n", digits]``: a number as it is stored
- ``["b", true]``, ``["z"]`` for null
- ``["a", elements, length]`` and ``["o", [[name, value], …], length]``, where fewer elements than
  ``length`` mean that the rest is left out; a truncated name is ``[beginning, value, length]``
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

Node = list[Any]


class Limits(NamedTuple):
    """How much of a value is kept."""

    text: int = 500
    """Characters of a text."""
    children: int = 100
    """Elements of an array, or members of an object."""
    depth: int = 8
    nodes: int = 2000
    """Values in total."""
    characters: int = 300_000
    """Characters of all texts and names together."""


CELL = Limits(text=120, children=6, depth=2, nodes=20)
"""A cell of a grid."""
DETAILS = Limits(text=2000)
"""One output, beside others."""


_SHORT = 20  # characters of each text, whatever the other texts have


class Number(str):
    """The text of a number."""

    __slots__ = ()


def parse(text: bytes | memoryview) -> Any:
    """Parse JSON of the database. Numbers become texts, so that no digit is lost."""
    return json.loads(bytes(text), parse_int=Number, parse_float=Number)


def truncate(value: Any, limits: Limits = DETAILS) -> Node:
    """Return a parsed value in the form of the console."""
    return _Truncation(limits).node(value, limits.depth)


class _Truncation:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.nodes
        self._characters_left = limits.characters

    def node(self, value: Any, depth: int) -> Node:
        self._left -= 1
        match value:
            case Number():
                return ["n", *self._text(value)]
            case str():
                return ["s", *self._text(value)]
            case bool():
                return ["b", value]
            case None:
                return ["z"]
            case int() | float():
                return ["n", json.dumps(value)]
            case list():
                return [
                    "a",
                    [self.node(one, depth - 1) for one in self._some(value, depth)],
                    len(value),
                ]
            case dict():
                some = self._some(list(value.items()), depth)
                return ["o", [self._member(name, one, depth) for name, one in some], len(value)]
        raise TypeError(type(value).__name__)

    def _member(self, name: str, value: Any, depth: int) -> list[Any]:
        beginning, *length = self._text(name)
        return [beginning, self.node(value, depth - 1), *length]

    def _text(self, text: str) -> list[Any]:
        limit = min(self._limits.text, max(self._characters_left, _SHORT))
        self._characters_left -= min(len(text), limit)
        return [str(text)] if len(text) <= limit else [text[:limit], len(text)]

    def _some(self, children: list[Any], depth: int) -> list[Any]:
        count = 0 if depth <= 0 else min(self._limits.children, max(self._left, 0))
        return children[:count]
