"""Clients that read a group while others write and review: followers of feeds, readers of pages."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, Literal

from faults.approved_state import Content, Job, Snapshot
from faults.review_clients import Participant, PersistentClient, content_of
from faults.workload import Connectable

View = Literal["all", "approved"]
VIEWS: tuple[View, ...] = ("all", "approved")
_FEED_LIMIT = 20  # changes; small, so that a reader stops in the middle of other changes
_PAGE_LIMIT = 5


def text_of(item: dict[str, Any]) -> str:
    """Leave out the date of the last scrape: a repeated write without a change is not in a feed."""
    return json.dumps({**item, "last_scraped_date": None})


class Reader(Participant):
    """Maintains a copy of the group or of its approved view from a feed, and never starts over."""

    def __init__(self, service: Connectable, group: str, view: View) -> None:
        super().__init__(service, group)
        self._view = {} if view == "all" else {"view": view}
        self.view = view
        self._cursor = 0
        self.copy: dict[str, str] = {}
        self.repeated = 0
        """Changes whose cursor does not increase, and creations of known outputs."""
        self.foreign = 0
        """Outputs of another organization."""
        self.unknown_group = 0
        """Responses that there is no such group, after others that there is."""

    def step(self) -> None:
        self.poll(wait=1)

    def poll(self, wait: int = 0) -> bool:
        """Apply one page of changes. Return True if there are more."""
        query = {**self._view, "cursor": self._cursor, "limit": _FEED_LIMIT, "wait": wait}
        response = self.request("GET", f"/v1/changes/{self.group}", params=query)
        if response is None or response.status_code != 200:
            is_unknown = response is not None and response.status_code == 404
            self.unknown_group += is_unknown and self._cursor > 0
            return False
        page = response.json()
        for change in page["changes"]:
            self._apply(change)
        self.repeated += page["cursor"] < self._cursor
        self._cursor = page["cursor"]
        return page["metadata"]["next_cursor"] is not None

    def _apply(self, change: dict[str, Any]) -> None:
        kind, output_id = change["change"], change["output_id"]
        self.repeated += change["cursor"] <= self._cursor
        self.repeated += kind == "create" and output_id in self.copy
        self._cursor = change["cursor"]
        if kind == "delete":
            self.copy.pop(output_id, None)
        else:
            self.foreign += change["output"]["data"]["organization"] != self.organization
            self.copy[output_id] = text_of(change["output"])

    def catch_up(self, service: Connectable) -> dict[str, str]:
        """Apply all remaining changes, after the end of the thread. Return the copy."""
        self.reconnect(service)
        with self._http:
            while self.poll():
                pass
        return self.copy


class PageReader(PersistentClient):
    """Reads all pages of the group or of one job again and again.

    An output that exists at the begin must be on a page, in that version or a newer one, unless it
    is deleted meanwhile.
    """

    def __init__(self, service: Connectable, group: str, jobs: Sequence[Job]) -> None:
        super().__init__(service, group)
        self._jobs = jobs
        self.passes = 0
        self.problems = 0
        """Outputs that were missing or too old."""
        self.foreign = 0
        """Outputs of another organization."""

    def step(self) -> None:
        job = random.choice([None, *self._jobs])
        snapshot = Snapshot(self._jobs if job is None else [job])
        found = self._read_all({} if job is None else {"job_id": job.name})
        if not self.stopping.is_set():
            self.problems += snapshot.problems(found)
            self.passes += 1

    def _read_all(self, filters: dict[str, str]) -> dict[str, Content]:
        found: dict[str, Content] = {}
        cursor: int | None = 0
        while cursor is not None and not self.stopping.is_set():
            query = {**filters, "limit": _PAGE_LIMIT, "cursor": cursor}
            response = self.acknowledged("GET", f"/v1/outputs/{self.group}", params=query)
            if response.status_code != 200:  # right if nothing was stored, or all was deleted
                break
            page = response.json()
            for item in page["items"]:
                self.foreign += item["data"]["organization"] != self.organization
                found[item["source_url"]] = content_of(item)
            cursor = page["metadata"]["next_cursor"]
        return found
