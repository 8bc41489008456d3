"""From method and path to an operation: a tree of path segments grown from the table."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from gleanery.api.operations import Operation
from gleanery.errors import MethodNotAllowed, NotFound

_REMEMBERED_BYTES = 512


class Match(NamedTuple):
    operation: Operation
    path: dict[str, str]


class _Node:
    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.parameter: tuple[str, _Node] | None = None
        self.operations: dict[str, Operation] = {}

    def grow(self, segment: str) -> _Node:
        if not segment.startswith("{"):
            return self.children.setdefault(segment, _Node())
        if self.parameter is None:
            self.parameter = (segment[1:-1], _Node())
        return self.parameter[1]


class Router:
    """Works on the path as it was sent, so that an encoded slash stays inside its segment."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        for operation in operations:
            node = self._root
            for segment in operation.path.split("/"):
                node = node.grow(segment)
            node.operations[operation.method] = operation
            if operation.method == "GET":
                node.operations["HEAD"] = operation
        self._remembered = lru_cache(maxsize=4096)(self._find)

    def find(self, method: str, raw_path: bytes) -> Match:
        """The operation of a request, and what the path names: not to be changed."""
        find = self._remembered if len(raw_path) <= _REMEMBERED_BYTES else self._find
        return find(method, raw_path)

    def _find(self, method: str, raw_path: bytes) -> Match:
        node, named = self._root, {}
        for segment in raw_path.decode("latin-1").split("/"):
            child = node.children.get(segment)
            if child is None:
                if node.parameter is None:
                    raise _no_route()
                name, child = node.parameter
                named[name] = _decoded(segment)
            node = child
        if not node.operations:
            raise _no_route()
        if method not in node.operations:
            raise MethodNotAllowed(node.operations)
        return Match(node.operations[method], named)


def _decoded(segment: str) -> str:
    try:
        return unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError:
        raise NotFound from None


def _no_route() -> NotFound:
    return NotFound(msg="There is no such route: see /docs")
