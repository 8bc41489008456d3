# Generated from _async by checks/sync_client.py: edit that package, and run make client.
"""Changes of a group, and the sync of a copy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

from gleanery.client._sync.concurrency import run_in_thread
from gleanery.client._sync.pager import ChangePager
from gleanery.client._sync.requester import Requester
from gleanery.client.errors import CursorExpired
from gleanery.client.pages import ChangePages, Page
from gleanery.client.requests import Request, View, path
from gleanery.client.responses import Response

if TYPE_CHECKING:
    from gleanery.client.models import Change
    from gleanery.client.sync import SyncBatch, SyncState

_PAGE_SIZE = 1000


class Changes:
    """Methods of the client for changes."""

    _requester: Requester

    def changes(
        self,
        group: str,
        *,
        cursor: int = 0,
        changed_after: date | str | None = None,
        page_size: int = _PAGE_SIZE,
        limit: int | None = None,
        follow: bool = False,
        wait: int = 30,
        view: View = "full",
        diff: bool = False,
    ) -> ChangePager:
        """Return the creations, updates and deletions of outputs, oldest first.

        An output comes once, as it is now. ``limit`` is the largest number of changes. With
        ``follow``, the iteration does not end: it waits for changes, ``wait`` seconds per request.
        If the cursor is too old, it raises CursorExpired. The view ``approved`` has each output in
        its last approved version: an approval creates or updates it, a withdrawal deletes it. With
        ``diff``, each update lists its changed fields.
        """
        if follow and wait < 1:
            raise ValueError("wait must be at least 1: otherwise requests follow without a pause")

        def read_page(position: int, size: int) -> Response:
            parameters = {
                "cursor": position,
                "limit": size,
                "changed_after": changed_after,
                "wait": wait if follow else None,
                "view": _parameter(view),
                "diff": diff or None,
            }
            seconds = wait if follow else 0
            return self._requester.send(
                Request("GET", path("changes", group), parameters, extra_seconds=seconds)
            )

        return ChangePager(
            read_page,
            ChangePages(),
            cursor=cursor,
            page_size=page_size,
            limit=limit,
            follow=follow,
        )

    def sync(
        self,
        group: str,
        state: str | os.PathLike[str] | SyncState,
        *,
        page_size: int = _PAGE_SIZE,
        view: View = "full",
    ) -> Iterator[SyncBatch]:
        """Iterate over the changes since the last sync, in batches. It ends when it has all.

        ``state`` is the path of a file, or an object with ``read`` and ``write``. The position of
        a batch is stored when the next batch is asked for. So after a failure, the batch comes
        again. If the position is too old, the sync starts again, and the first batch says so.
        ``view`` is as in ``changes``. A state belongs to one view.
        """
        from gleanery.client.sync import open_state, to_batch

        store = open_state(state, self._requester.base_url, group, view)
        cursor, restarted = run_in_thread(store.read) or 0, False
        while True:
            page = self._read_changes(group, cursor, page_size, view)
            if page is None:
                cursor, restarted = 0, True
                continue
            end = cursor if page.end is None else page.end
            if page.items or restarted:
                yield to_batch(page.items, end, restarted)
            if end != cursor or restarted:
                run_in_thread(store.write, end)
            if page.next_cursor is None:
                return
            cursor, restarted = end, False

    def _read_changes(self, group: str, cursor: int, size: int, view: View) -> Page[Change] | None:
        """Return a page of changes, or None if the cursor is too old."""
        parameters = {"cursor": cursor, "limit": size, "view": _parameter(view)}
        try:
            response = self._requester.send(Request("GET", path("changes", group), parameters))
        except CursorExpired:
            if cursor == 0:
                raise
            return None
        return ChangePages().read(response)


def _parameter(view: View) -> str | None:
    """Return the query parameter. The full view needs none."""
    return None if view == "full" else view
