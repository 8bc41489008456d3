"""Routing: finds the operation of a method and path in a tree of path segments."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from gleanery.service.api.operation import Operation
from gleanery.service.foundation.errors import MethodNotAllowed, NotFound

_MAX_CACHED_PATH = 512
_UPLOAD_ADVICE = "; curl -T sends PUT: add -X POST"


class Match(NamedTuple):
    """Operation of a request, with its path parameters."""

    operation: Operation
    path: dict[str, str]


class _Node:
    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.parameter: tuple[str, _Node] | None = None
        self.operations: dict[str, Operation] = {}

    def child(self, segment: str) -> _Node:
        if not segment.startswith("{"):
            return self.children.setdefault(segment, _Node())
        if self.parameter is None:
            self.parameter = (segment[1:-1], _Node())
        return self.parameter[1]


class Router:
    """Finds operations by the encoded path, so that an encoded slash stays in its segment."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        for operation in operations:
            node = self._root
            for segment in operation.path.split("/"):
                node = node.child(segment)
            node.operations[operation.method] = operation
            if operation.method == "GET":
                node.operations["HEAD"] = operation
        self._cached_find = lru_cache(maxsize=4096)(self._find)

    def find(self, method: str, raw_path: bytes) -> Match:
        """Return the operation and the path parameters, which callers must not change."""
        find = self._cached_find if len(raw_path) <= _MAX_CACHED_PATH else self._find
        return find(method, raw_path)

    def _find(self, method: str, raw_path: bytes) -> Match:
        node = parent = self._root
        parameters = {}
        for segment in raw_path.decode("latin-1").split("/"):
            child = node.children.get(segment)
            if child is None:
                if node.parameter is None:
                    raise _no_route(raw_path)
                name, child = node.parameter
                # Binding rejects text that is not UTF-8, after the authentication.
                parameters[name] = unquote_to_bytes(segment).decode("utf-8", "surrogateescape")
            parent, node = node, child
        if not node.operations:
            raise _no_route(raw_path)
        is_last_empty = raw_path.endswith(b"/") and bool(parameters)
        if is_last_empty and (parent.operations or method not in node.operations):
            raise _no_route(raw_path)
        if method not in node.operations:
            is_upload = method == "PUT" and "POST" in node.operations
            raise MethodNotAllowed(node.operations, _UPLOAD_ADVICE if is_upload else "")
        return Match(node.operations[method], parameters)


def _no_route(raw_path: bytes) -> NotFound:
    has_slash = raw_path.endswith(b"/")
    advice = "remove the slash at the end of the path" if has_slash else "see /docs"
    return NotFound(msg=f"This route does not exist: {advice}")
