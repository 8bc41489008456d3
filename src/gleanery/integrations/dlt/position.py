"""Position of a resource in the change feed of its group, in the state of the dlt pipeline."""

from __future__ import annotations

from typing import Any

from gleanery.client import Group
from gleanery.client.requests import View

_ADVICE = 'Use another pipeline, or replace its tables: pipeline.run(…, refresh="drop_resources")'


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
                f"{_describe(source)}. {_ADVICE}"
            )

    def require_same_group(self, resource: str, group: Group) -> None:
        """Raise ValueError if the rows come from another group with the same name.

        Each organization and each database has its own groups. A deleted group keeps its number.
        """
        number = self._state.setdefault("group_number", group.id)
        if number != group.id:
            reason = f"it had the number {number}, and has the number {group.id} now"
        elif self.cursor > group.cursor:
            reason = "it has no changes at the position of the last run"
        else:
            return
        raise ValueError(
            f"The group {group.group_id!r} is not the one from which {resource!r} was loaded: "
            f"{reason}. The token belongs to another organization, or the service has a new "
            f"database. {_ADVICE}"
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
