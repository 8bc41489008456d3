"""Model of a group: what writers and reviewers have had acknowledged, and what follows from it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

_OUTPUTS = 12  # of each job


class Content(NamedTuple):
    """What a writer stored. Values and tags are counters, so that each content is unique."""

    value: int
    tag: int

    @property
    def number(self) -> int:
        """Greater than that of every earlier content of the same output."""
        return max(self)


Log = list[Content | None]
"""Acknowledged contents of one output in order; None is a deletion."""


@dataclass
class Job:
    """A job with one writer and one reviewer, and what both have had acknowledged."""

    name: str
    logs: dict[str, Log] = field(init=False)
    """By the URL of the output."""
    deleting: set[str] = field(default_factory=set)
    """The URLs of outputs whose deletion is sent and not acknowledged."""
    decisions: dict[str, Content | None] = field(default_factory=dict)
    """By the URL: the content that the last effective review approved; None if it rejected."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held by a write, and by a review of the whole job: its effect must be certain."""

    def __post_init__(self) -> None:
        self.logs = {f"{self.name}/{number}": [] for number in range(_OUTPUTS)}

    def present(self) -> dict[str, Content]:
        return {url: log[-1] for url, log in self.logs.items() if log and log[-1] is not None}

    @contextmanager
    def deletion(self, urls: Sequence[str]) -> Iterator[None]:
        """Record the deletion of these outputs, which is acknowledged at the end of the context."""
        self.deleting.update(urls)
        yield
        for url in urls:
            self.logs[url].append(None)
        self.deleting.difference_update(urls)

    def approved(self) -> dict[str, Content]:
        """Return the contents that the approved view must show."""
        found = {}
        for url, decision in self.decisions.items():
            shown = decision and _last_with_same_value(self.logs[url], decision)
            if shown is not None:
                found[url] = shown
        return found


def _last_with_same_value(log: Log, approved: Content) -> Content | None:
    """Return the approved content with its newest tags; None if it was deleted later.

    Tags that change keep the approval. A newer value leaves the approved one in the view.
    """
    later = log[log.index(approved) :]
    if None in later:
        return None
    same = itertools.takewhile(lambda c: c is not None and c.value == approved.value, later)
    return [*same][-1]


@contextmanager
def all_locked(jobs: Sequence[Job]) -> Iterator[None]:
    """Hold the locks of all jobs of a group, always in the same order."""
    with ExitStack() as stack:
        for job in jobs:
            stack.enter_context(job.lock)
        yield


class Snapshot:
    """Outputs that exist before a reader begins; it must find each of them."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._lengths = {
            (number, url): len(log)
            for number, job in enumerate(jobs)
            for url, log in job.logs.items()
        }
        self._jobs = jobs

    def problems(self, found: dict[str, Content]) -> int:
        """Return how many outputs are missing or older than at the begin."""
        return sum(
            self._is_problem(self._jobs[number], url, length, found.get(url))
            for (number, url), length in self._lengths.items()
        )

    def _is_problem(self, job: Job, url: str, length: int, found: Content | None) -> bool:
        if url in job.deleting:  # looked up before the log, which then has the deletion
            return False
        log = job.logs[url]
        before = log[length - 1] if length else None
        if before is None or None in log[length:]:
            return False
        return found is None or found.number < before.number
