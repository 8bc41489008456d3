"""Position of a resource in the change feed of its group, in the state of the dlt pipeline."""

from __future__ import annotations

from typing import Any

from gleanery.client.filters import View


class Position:
    """Cursor after the last change that was loaded.

    dlt stores the state in the same load package as the rows. A run that fails while it reads
    discards both. A run that fails while it loads keeps the package, and the next run loads it.
    """

    def __init__(self, state: dict[str, Any], resource: str, url: str, view: View) -> None:
        self._state = state
        source = {"url": url, "view": view}
        stored = {name: state.setdefault(name, value) for name, value in source.items()}
        if stored != source:
            raise ValueError(
                f"The resource {resource!r} was loaded from {_describe(stored)}, not from "
                f"{_describe(source)}. Use another pipeline, or replace its tables: "
                'pipeline.run(…, refresh="drop_resources")'
            )

    @property
    def cursor(self) -> int:
        cursor: int = self._state.get("cursor", 0)
        return cursor

    @cursor.setter
    def cursor(self, cursor: int) -> None:
        self._state["cursor"] = cursor


def _describe(source: dict[str, Any]) -> str:
    return f"{source['url']} (view={source['view']})"
