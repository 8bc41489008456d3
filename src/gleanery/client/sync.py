"""Values of a sync: its batches, and where its position is stored."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from gleanery.client.errors import InvalidState

if TYPE_CHECKING:
    from gleanery.client.models import Change, DeletedOutput, Output
    from gleanery.client.requests import View


class SyncBatch(NamedTuple):
    """Changes of one page. ``upserts`` and ``deletions`` can be applied in any order."""

    changes: Sequence[Change]
    upserts: Sequence[Output]
    """Outputs to insert or replace, each once."""
    deletions: Sequence[DeletedOutput]
    cursor: int
    """Position after the batch."""
    restarted: bool
    """True if the sync starts again from the beginning: delete all outputs of the copy first."""


def to_batch(changes: Sequence[Change], cursor: int, restarted: bool) -> SyncBatch:
    """Return the batch. Only the newest change of each output counts."""
    newest = {change.output_id: change for change in changes}.values()
    upserts = [change.output for change in newest if change.change != "delete"]
    deletions = [change.output for change in newest if change.change == "delete"]
    return SyncBatch(changes, upserts, deletions, cursor, restarted)


@runtime_checkable
class SyncState(Protocol):
    """Store of the position of a sync, for example a row of the database that it fills."""

    def read(self) -> int | None:
        """Return the stored position. None starts from the beginning."""

    def write(self, cursor: int) -> None:
        """Store the position. The consumer has processed everything before it."""


def open_state(
    state: str | os.PathLike[str] | SyncState, url: str, group: str, view: View
) -> SyncState:
    """Return the given object, or the state in the file with the given path."""
    if isinstance(state, str | os.PathLike):
        return StateFile(Path(state), url, group, view)
    if not isinstance(state, SyncState):
        raise TypeError("state must be a path, or an object with the methods read and write")
    return state


class StateFile:
    """Position in a JSON file, which is replaced as a whole."""

    def __init__(self, path: Path, url: str, group: str, view: View) -> None:
        self._path = path
        self._source = {"url": url, "group": group}
        self._view = view

    def read(self) -> int | None:
        """Return the stored position, or None if there is no file."""
        self._delete_temporary_files()
        try:
            content = json.loads(self._path.read_bytes())
            cursor = content["cursor"]
            source = {name: content[name] for name in self._source}
            view = content.get("view", "full")
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidState(
                f"{self._path} is not the state of a sync: use another file, or delete it to "
                "start again"
            ) from None
        return self._require_source(source, view, cursor)

    def write(self, cursor: int) -> None:
        """Replace the file. Its content is on the disk before the old one is removed."""
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                json.dump({**self._source, "view": self._view, "cursor": cursor}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _delete_temporary_files(self) -> None:
        """Delete what a killed process has left. A second sync of the same file then fails."""
        for path in self._path.parent.glob(f".{escape(self._path.name)}.*.tmp"):
            path.unlink(missing_ok=True)

    def _require_source(self, source: dict[str, object], view: object, cursor: object) -> int:
        if source != self._source:
            raise InvalidState(
                f"{self._path} is the state of another group or service: use another file"
            )
        if view != self._view:
            stored = f"view={view}" if view in ("full", "approved") else "another view"
            raise InvalidState(
                f"{self._path} is the state of {stored}, not of view={self._view}: "
                "use the same view as before, or use another file"
            )
        if type(cursor) is not int or cursor < 0:
            raise InvalidState(f"{self._path} has no valid position: delete it to start again")
        return cursor
