"""Values for the console: exact numbers, and long texts and lists truncated.

A browser cannot read large numbers exactly, and a value of many megabytes would freeze it. So every
value becomes an array whose first element is its kind:

- ``["s", text]``, or ``["s", beginning, length]`` for a truncated text, or
  ``["s", part, length, start]`` for a part of it that begins later
- ``["n", digits]``: a number as it is stored
- ``["b", true]``, ``["z"]`` for null
- ``["a", elements, length]`` and ``["o", [[name, value], …], length]``, where fewer elements than
  ``length`` mean that the rest is left out; a truncated name is ``[beginning, value, length]``;
  a fourth element is the place of the first element or member that is there

Two versions of a value are truncated together, by ``truncate_pair``. If their beginnings are equal,
both have the part around the first difference: a difference that is left out looks like none.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from gleanery.service.foundation.values import json_text

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
_CONTEXT = 40  # characters before the first difference of two long texts
_DEPTH_OF_DIFFERENCES = 12
_NONE: Any = object()
_TAGS = "$.tags"


class Number(str):
    """The text of a number. It never equals a text."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def parse(text: bytes | memoryview) -> Any:
    """Parse JSON of the database. Numbers become texts, so that no digit is lost."""
    return json.loads(bytes(text), parse_int=Number, parse_float=Number)


def names_in_item(path: str) -> list[str]:
    """Return the names of a path in an item: ``$.tags.country`` is outside ``data``."""
    if path != _TAGS and not path.startswith((f"{_TAGS}.", f"{_TAGS}[")):
        return ["data", *json_text.names_of_path(path)]
    return ["tags", *json_text.names_of_path(path.removeprefix(_TAGS).removeprefix("."))]


def truncate(value: Any, limits: Limits = DETAILS) -> Node:
    """Return a parsed value in the form of the console."""
    return _Truncation(limits).node(value, limits.depth)


def truncate_pair(before: Any, after: Any, limits: Limits = DETAILS) -> tuple[Node, Node]:
    """Return two versions of a value in the form of the console, so that they look different."""
    pair = truncate(before, limits), truncate(after, limits)
    if before == after or _shown(pair[0]) != _shown(pair[1]):
        return pair
    deep = limits._replace(depth=max(limits.depth, _DEPTH_OF_DIFFERENCES))
    return (
        _Truncation(deep).node(before, deep.depth, after),
        _Truncation(deep).node(after, deep.depth, before),
    )


def _shown(node: Any) -> Any:
    """Return what a person sees of a node: without its length, which is easily overlooked."""
    if isinstance(node, list) and node and node[0] in ("s", "n"):
        return node[:2]
    if isinstance(node, list) and node and node[0] == "a":
        return ["a", *map(_shown, node[1])]
    if isinstance(node, list) and node and node[0] == "o":
        return ["o", *([name, _shown(value)] for name, value, *_ in node[1])]
    return node


class _Truncation:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.nodes
        self._characters_left = limits.characters

    def node(self, value: Any, depth: int, other: Any = _NONE) -> Node:
        """Return the node of a value. With another version of it, begin at the difference."""
        self._left -= 1
        match value:
            case Number():
                return ["n", *self._text(value, 0)]
            case str():
                return ["s", *self._text(value, _first_difference(value, other))]
            case bool():
                return ["b", value]
            case None:
                return ["z"]
            case int() | float():
                return ["n", json.dumps(value)]
            case list():
                start, some = self._some(value, depth, _first_difference(value, other))
                elements = [
                    self.node(one, depth - 1, _counterpart(place, other))
                    for place, one in enumerate(some, start)
                ]
                return ["a", elements, len(value), *([start] if start else [])]
            case dict():
                members = list(value.items())
                start, some = self._some(members, depth, _first_difference(value, other))
                nodes = [self._member(name, one, depth, other) for name, one in some]
                return ["o", nodes, len(value), *([start] if start else [])]
        raise TypeError(type(value).__name__)

    def _member(self, name: str, value: Any, depth: int, other: Any) -> list[Any]:
        beginning, *length = self._text(name, 0)
        return [beginning, self.node(value, depth - 1, _counterpart(name, other)), *length]

    def _text(self, text: str, difference: int) -> list[Any]:
        limit = min(self._limits.text, max(self._characters_left, _SHORT))
        self._characters_left -= min(len(text), limit)
        if len(text) <= limit:
            return [str(text)]
        start = 0 if difference < limit // 2 else difference - min(_CONTEXT, limit // 2)
        return [text[start : start + limit], len(text), *([start] if start else [])]

    def _some(self, children: list[Any], depth: int, difference: int) -> tuple[int, list[Any]]:
        """Return the place of the first child that is kept, and the kept ones."""
        count = 0 if depth <= 0 else min(self._limits.children, max(self._left, 0))
        start = max(difference - 1, 0)
        return start, children[start : start + count]


def _counterpart(place: Any, other: Any) -> Any:
    """Return the value at the same place of the other version; _NONE if it has none."""
    if isinstance(other, dict):
        return other.get(place, _NONE)
    if isinstance(other, list) and isinstance(place, int) and place < len(other):
        return other[place]
    return _NONE


def _first_difference(value: Any, other: Any) -> int:
    """Return the place of the first character or child that the other version has not; or 0."""
    if type(value) is not type(other):
        return 0
    if isinstance(value, str):
        return _common_length(value, other)
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for at, (place, one) in enumerate(children):
        if _counterpart(place, other) != one:
            return at
    return len(value)  # the other version has more


def _common_length(one: str, other: str) -> int:
    """Return the number of equal characters at the start of two texts, by bisection."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
