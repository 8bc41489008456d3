"""The load of one group: writers, reviewers and readers, and the checks of what they end with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from faults.approved_state import Content, Job
from faults.processes import TIMEOUT, wait_until
from faults.review_clients import Participant, Reviewer, Writer, content_of
from faults.view_readers import VIEWS, PageReader, Reader, View, text_of
from faults.workload import CONNECTION_LOST, REFUSED, Connectable, format_counts, items_of

_EXPECTED = {"200", "404", "422", "503", REFUSED, CONNECTION_LOST}


class Size(NamedTuple):
    """Numbers of clients."""

    writers: int
    reviewers: int
    view_readers: int
    feed_readers: int
    page_readers: int


@dataclass
class Findings:
    """Results of the checks, over all groups."""

    writes: int = 0
    reviews: int = 0
    outputs: int = 0
    view_outputs: int = 0
    wrong_readers: int = 0
    wrong_contents: int = 0
    repeated: int = 0
    passes: int = 0
    incomplete: int = 0
    """Outputs that a reader of pages missed, and responses that a known group does not exist."""
    foreign: int = 0
    failed_clients: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    integrity_errors: str = ""
    internal_errors: set[str] = field(default_factory=set)
    """Exceptions behind the status 500."""

    @property
    def is_ok(self) -> bool:
        errors = self.wrong_readers or self.wrong_contents or self.repeated or self.failed_clients
        errors = errors or self.incomplete or self.foreign or self.internal_errors
        return not (errors or self.integrity_errors or self.statuses.keys() - _EXPECTED)

    def __str__(self) -> str:
        return (
            f"{self.writes:,} writes and {self.reviews:,} reviews acknowledged; {self.outputs:,} "
            f"outputs and {self.view_outputs:,} outputs of the view compared: "
            f"{self.wrong_contents} missing, extra or wrong; "
            f"{self.wrong_readers} readers with another state, {self.repeated} repeated changes; "
            f"all pages read {self.passes:,} times: {self.incomplete} outputs or groups missed; "
            f"{self.foreign} outputs of other organizations, {self.failed_clients} failed clients; "
            f"{self.integrity_errors or 'integrity check passed'}; {format_counts(self.statuses)}"
            + "".join(f"; {error}" for error in sorted(self.internal_errors))
        )


class Workload:
    """Writers, reviewers and readers of one group."""

    def __init__(self, service: Connectable, group: str, size: Size) -> None:
        self._service, self._group = service, group
        self.jobs = [Job(f"job-{number}") for number in range(size.writers)]
        self.writers = [Writer(service, group, job, self.jobs) for job in self.jobs]
        self.reviewers = [
            Reviewer(service, group, self.jobs[number :: size.reviewers])
            for number in range(size.reviewers)
        ]
        readers: dict[View, int] = {"approved": size.view_readers, "all": size.feed_readers}
        self.readers = [
            Reader(service, group, view) for view, count in readers.items() for _ in range(count)
        ]
        self.page_readers = [
            PageReader(service, group, self.jobs) for _ in range(size.page_readers)
        ]

    @property
    def clients(self) -> list[Participant]:
        return [*self.writers, *self.reviewers, *self.readers, *self.page_readers]

    def reviews(self) -> int:
        return sum(reviewer.reviews for reviewer in self.reviewers)

    def wait_for_reviews(self, count: int, timeout: float = TIMEOUT) -> None:
        """Wait until this many more reviews are acknowledged."""
        target = self.reviews() + count
        wait_until(lambda: self.reviews() >= target or not self._is_running(), timeout)

    def _is_running(self) -> bool:
        return all(client.is_alive() for client in (*self.writers, *self.reviewers))

    def stop(self) -> None:
        """Stop the clients, the writers last: their writes end the long polls of the others."""
        for clients in (self.page_readers, self.readers, self.reviewers, self.writers):
            for client in clients:
                client.stopping.set()
            for client in clients:
                client.join()

    def damage(self) -> None:
        """Change what a reader and a reviewer know, so that a check must fail."""
        self.readers[0].copy["unknown"] = ""
        self.jobs[0].decisions.clear()

    # --- checks ------------------------------------------------------------------------------

    def check(self, findings: Findings) -> None:
        """Compare the group and its view with the model, and each reader with both."""
        states = {view: self._check_contents(view, findings) for view in VIEWS}
        new = [Reader(self._service, self._group, view) for view in VIEWS]
        for reader in (*self.readers, *new):
            findings.wrong_readers += reader.catch_up(self._service) != states[reader.view]
            findings.repeated += reader.repeated
            findings.foreign += reader.foreign
            findings.incomplete += reader.unknown_group
        for page_reader in self.page_readers:
            findings.passes += page_reader.passes
            findings.incomplete += page_reader.problems
            findings.foreign += page_reader.foreign
        findings.reviews += self.reviews()
        findings.writes += sum(writer.log.statuses["200"] for writer in self.writers)
        for client in self.clients:
            findings.failed_clients += client.is_failed
            findings.statuses.update(client.log.statuses)

    def _check_contents(self, view: View, findings: Findings) -> dict[str, str]:
        """Compare the pages with the model. Return the outputs by their IDs."""
        items = self._read_pages(view)
        expected = self._expected(view)
        found = {item["source_url"]: content_of(item) for item in items}
        wrong = {url for url, _ in expected.items() ^ found.items()}
        ids = {item["id"] for item in items}
        findings.wrong_contents += len(wrong) + 2 * len(items) - len(found) - len(ids)
        if view == "all":
            findings.outputs += len(items)
        else:
            findings.view_outputs += len(items)
        return {item["output_id"]: text_of(item) for item in items}

    def _read_pages(self, view: View) -> list[dict[str, Any]]:
        with self._service.client() as http:
            filters = "" if view == "all" else "&view=approved"
            is_known = http.get(f"/v1/outputs/{self._group}").status_code == 200
            return list(items_of(http, self._group, filters)) if is_known else []

    def _expected(self, view: View) -> dict[str, Content]:
        contents: dict[str, Content] = {}
        for job in self.jobs:
            contents |= job.present() if view == "all" else job.approved()
        return contents


@contextmanager
def run_workload(service: Connectable, group: str, size: Size) -> Iterator[Workload]:
    """Run a workload. The end of the context stops it, but does not check it."""
    workload = Workload(service, group, size)
    for client in workload.clients:
        client.start()
    try:
        yield workload
    finally:
        workload.stop()
