"""View fault: the service is killed while readers follow the approved view of a group.

Writers store, tag and delete outputs, each in a job of its own. Reviewers approve and reject. Each
client repeats a request until it is acknowledged. So an independent model of the approved view
follows from the acknowledged requests alone.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx2

from faults.environment import Environment
from faults.processes import wait_until
from faults.results import Result
from faults.service import Service
from faults.workload import CONNECTION_LOST, REFUSED, Client, format_counts, items_of, vary_timing

EXACT = "a reader of the approved view ends with the exact approved state"
_READERS, _WRITERS, _REVIEWERS = 4, 8, 2
_OUTPUTS = 12  # of each writer
_BATCH_SIZE = 4
_KILLS_PER_GROUP = 5
_REVIEWS_AFTER_KILL = 10
_RETRY_PAUSE = 0.1
_READER_LIMIT = 20  # changes; small, so that a reader stops in the middle of other changes
_EXPECTED = {"200", "404", "422", "503", REFUSED, CONNECTION_LOST}


class Content(NamedTuple):
    """What a writer stored. Values and tags are counters, so that each content is unique."""

    value: int
    tag: int


Log = list[Content | None]
"""Acknowledged contents of one output in order; None is a deletion."""


@dataclass
class Job:
    """A job with one writer and one reviewer, and what both have had acknowledged."""

    name: str
    logs: dict[str, Log] = field(default_factory=dict)
    """By the URL of the output."""
    decisions: dict[str, Content | None] = field(default_factory=dict)
    """By the URL: the content that the last effective review approved; None if it rejected."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held by a write, and by a review of the whole job: its effect must be certain."""

    def present(self) -> dict[str, Content]:
        return {url: log[-1] for url, log in self.logs.items() if log and log[-1] is not None}

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


class Participant(Client):
    """A client that ends without an exception, or is counted as failed."""

    is_failed = True

    def run(self) -> None:
        super().run()
        self.is_failed = False


class PersistentClient(Participant):
    """Repeats a request until the service has answered it."""

    def acknowledged(self, method: str, path: str, **options: Any) -> httpx2.Response:
        while True:
            response = self.request(method, path, **options)
            if response is not None and response.status_code != 503:
                return response
            time.sleep(_RETRY_PAUSE)


class Writer(PersistentClient):
    """Stores new values of some outputs of its job, or new tags, or deletes an output."""

    pause = 0.005

    def __init__(self, service: Service, group: str, job: Job) -> None:
        super().__init__(service, group)
        self._job = job
        self._numbers = itertools.count(1)
        self._urls = [f"{job.name}/{number}" for number in range(_OUTPUTS)]
        self._ids: dict[str, str] = {}

    def step(self) -> None:
        with self._job.lock:
            present = self._job.present()
            kind = random.choices(("value", "tag", "delete"), (8, 2, 1))[0]
            if kind == "value" or not present:
                urls = random.sample(self._urls, _BATCH_SIZE)
                self._store({url: Content(next(self._numbers), 0) for url in urls})
            elif kind == "tag":
                url = random.choice([*present])
                self._store({url: present[url]._replace(tag=next(self._numbers))})
            else:
                self._delete_output(random.choice([*present]))

    def _store(self, contents: dict[str, Content]) -> None:
        body = [
            {
                "job_id": self._job.name,
                "source_url": url,
                "data": {"value": content.value},
                "tags": {"tag": str(content.tag)},
            }
            for url, content in contents.items()
        ]
        response = self.acknowledged("POST", f"/v1/outputs/{self.group}", json=body)
        assert response.status_code == 200, response.text
        results = response.json()["results"]
        for (url, content), result in zip(contents.items(), results, strict=True):
            self._ids[url] = result["output_id"]
            self._job.logs.setdefault(url, []).append(content)

    def _delete_output(self, url: str) -> None:
        path = f"/v1/outputs/{self.group}/{self._ids[url]}"
        response = self.acknowledged("DELETE", path)
        assert response.status_code in (200, 404), response.text  # 404: the first try deleted it
        self._job.logs[url].append(None)


class Reviewer(PersistentClient):
    """Reviews whole jobs, and single outputs as it has read them."""

    pause = 0.01

    def __init__(self, service: Service, group: str, jobs: Sequence[Job]) -> None:
        super().__init__(service, group)
        self._jobs = jobs
        self.reviews = 0

    def step(self) -> None:
        job = random.choice(self._jobs)
        status = random.choices(("approved", "changes_requested", "rejected"), (6, 1, 1))[0]
        if random.random() < 0.5:
            self._review_job(job, status)
        else:
            self._review_outputs(job, status)

    def _review_job(self, job: Job, status: str) -> None:
        with job.lock:
            present = job.present()
            if present and self._send({"job_id": job.name, "status": status}) is not None:
                job.decisions |= {
                    url: content if status == "approved" else None
                    for url, content in present.items()
                }

    def _review_outputs(self, job: Job, status: str) -> None:
        """Approve some outputs as of the time of reading, while their writer continues.

        A rejection of a later value can still remove an earlier one from the view. So that its
        effect is certain, it excludes the writer.
        """
        is_approval = status == "approved"
        with nullcontext() if is_approval else job.lock:
            cursor, items = self._read(job)
            if items:
                chosen = random.sample(items, random.randint(1, len(items)))
                self._send_outputs(job, status, cursor if is_approval else None, chosen)

    def _send_outputs(
        self, job: Job, status: str, as_of: int | None, items: Sequence[dict[str, Any]]
    ) -> None:
        ids = [item["output_id"] for item in items]
        review = {"job_id": job.name, "status": status, "as_of": as_of, "output_ids": ids}
        response = self._send(review)
        if response is not None:
            skipped = response["skipped_output_ids"]
            job.decisions |= {
                item["source_url"]: _content(item) if status == "approved" else None
                for item in items
                if item["output_id"] not in skipped
            }

    def _read(self, job: Job) -> tuple[int, list[dict[str, Any]]]:
        """Return the outputs of the job, and the cursor at which the service began to read.

        A content that was stored after that cursor can be among them. The review skips it.
        """
        path = f"/v1/exports/{self.group}"
        response = self.acknowledged("GET", path, params={"job_id": job.name})
        if response.status_code != 200:  # the group does not exist yet
            return 0, []
        items = [json.loads(line) for line in response.text.splitlines()]
        return int(response.headers["Gleanery-Cursor"]), items

    def _send(self, review: dict[str, Any]) -> dict[str, Any] | None:
        """Return the response; None if it names an output that was deleted meanwhile."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        path = f"/v1/reviews/{self.group}"
        response = self.acknowledged("POST", path, json=review, headers=headers)
        if response.status_code == 422 and "output_ids" in review:
            return None
        assert response.status_code == 200, response.text
        self.reviews += 1
        answer: dict[str, Any] = response.json()
        return answer


def _content(item: dict[str, Any]) -> Content:
    return Content(item["data"]["value"], int(item["tags"]["tag"]))


def _text(item: dict[str, Any]) -> str:
    """Leave out the date of the last scrape: a repeated write without a change is not in a feed."""
    return json.dumps({**item, "last_scraped_date": None})


class Reader(Participant):
    """Maintains a replica of the approved view from its feed, and never starts over."""

    def __init__(self, service: Service, group: str) -> None:
        super().__init__(service, group)
        self._cursor = 0
        self.replica: dict[str, str] = {}
        self.repeated = 0
        """Changes whose cursor does not increase, and creations of known outputs."""

    def step(self) -> None:
        self.poll(wait=1)

    def poll(self, wait: int = 0) -> bool:
        """Apply one page of changes. Return True if there are more."""
        query = {"view": "approved", "cursor": self._cursor, "limit": _READER_LIMIT, "wait": wait}
        response = self.request("GET", f"/v1/changes/{self.group}", params=query)
        if response is None or response.status_code != 200:
            return False
        page = response.json()
        for change in page["changes"]:
            self._apply(change)
        self._cursor = page["cursor"]
        return page["metadata"]["next_cursor"] is not None

    def _apply(self, change: dict[str, Any]) -> None:
        kind, output_id = change["change"], change["output_id"]
        self.repeated += change["cursor"] <= self._cursor
        self.repeated += kind == "create" and output_id in self.replica
        self._cursor = change["cursor"]
        if kind == "delete":
            self.replica.pop(output_id, None)
        else:
            self.replica[output_id] = _text(change["output"])

    def catch_up(self, service: Service) -> dict[str, str]:
        """Apply all remaining changes, after the end of the thread. Return the replica."""
        self.reconnect(service)
        with self._http:
            while self.poll():
                pass
        return self.replica


@dataclass
class Findings:
    """Results of the checks, over all groups."""

    writes: int = 0
    reviews: int = 0
    outputs: int = 0
    wrong_readers: int = 0
    wrong_contents: int = 0
    repeated: int = 0
    failed_clients: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    integrity_errors: str = ""

    @property
    def is_ok(self) -> bool:
        errors = self.wrong_readers or self.wrong_contents or self.repeated or self.failed_clients
        return not (errors or self.integrity_errors or self.statuses.keys() - _EXPECTED)

    def __str__(self) -> str:
        return (
            f"{self.writes:,} writes and {self.reviews:,} reviews acknowledged; {self.outputs:,} "
            f"outputs of the view compared: {self.wrong_contents} missing, extra or wrong; "
            f"{self.wrong_readers} readers with another state, {self.repeated} repeated changes, "
            f"{self.failed_clients} failed clients; "
            f"{self.integrity_errors or 'integrity check passed'}; {format_counts(self.statuses)}"
        )


class Workload:
    """Writers, reviewers and readers of one group."""

    def __init__(self, service: Service, group: str) -> None:
        self._service, self._group = service, group
        self.jobs = [Job(f"job-{number}") for number in range(_WRITERS)]
        self.writers = [Writer(service, group, job) for job in self.jobs]
        self.reviewers = [
            Reviewer(service, group, self.jobs[number::_REVIEWERS]) for number in range(_REVIEWERS)
        ]
        self.readers = [Reader(service, group) for _ in range(_READERS)]

    @property
    def clients(self) -> list[Participant]:
        return [*self.writers, *self.reviewers, *self.readers]

    def reviews(self) -> int:
        return sum(reviewer.reviews for reviewer in self.reviewers)

    def wait_for_reviews(self, count: int) -> None:
        """Wait until this many more reviews are acknowledged."""
        target = self.reviews() + count
        wait_until(lambda: self.reviews() >= target)

    def stop(self) -> None:
        """Stop the clients, the writers last: their writes end the long polls of the others."""
        for clients in (self.readers, self.reviewers, self.writers):
            for client in clients:
                client.stopping.set()
            for client in clients:
                client.join()

    def damage(self) -> None:
        """Change what a reader and a reviewer know, so that a check must fail."""
        self.readers[0].replica["unknown"] = ""
        self.jobs[0].decisions.clear()

    def check(self, findings: Findings) -> None:
        """Compare the view with the model, and each reader with the view."""
        with self._service.client() as http:
            items = list(items_of(http, self._group, "&view=approved"))
        expected = {url: content for job in self.jobs for url, content in job.approved().items()}
        found = {item["source_url"]: _content(item) for item in items}
        wrong = expected.items() ^ found.items()
        state = {item["output_id"]: _text(item) for item in items}
        findings.outputs += len(items)
        findings.wrong_contents += len({url for url, _ in wrong}) + len(items) - len(found)
        for reader in (*self.readers, Reader(self._service, self._group)):
            findings.wrong_readers += reader.catch_up(self._service) != state
            findings.repeated += reader.repeated
        findings.reviews += self.reviews()
        findings.writes += sum(writer.log.statuses["200"] for writer in self.writers)
        for client in self.clients:
            findings.failed_clients += client.is_failed
            findings.statuses.update(client.log.statuses)


@contextmanager
def _run(service: Service, group: str) -> Iterator[Workload]:
    """Run a workload. The end of the context stops it, but does not check it."""
    workload = Workload(service, group)
    for client in workload.clients:
        client.start()
    try:
        yield workload
    finally:
        workload.stop()


def kill_service(
    environment: Environment, engine: str, rounds: int, damaged: bool = False
) -> Result:
    """Kill the service. If ``damaged``, readers and reviewers lose what they have."""
    server = environment.start_server() if engine == "PostgreSQL" else None
    service = environment.start_service(server.url() if server else None)
    findings = Findings()
    for first in range(0, max(rounds, 1), _KILLS_PER_GROUP):
        with _run(service, f"group-{first}") as workload:
            for _ in range(min(_KILLS_PER_GROUP, rounds - first)):
                workload.wait_for_reviews(_REVIEWS_AFTER_KILL)
                vary_timing()
                service.kill()
                service.start()
            workload.wait_for_reviews(_REVIEWS_AFTER_KILL)
        if damaged:
            workload.damage()
        workload.check(findings)
    findings.integrity_errors = (server or service).integrity_errors()
    fault = (
        f"{rounds} × kill -9 of the service on {engine}, while {_READERS} readers follow the view, "
        f"{_WRITERS} writers change outputs and {_REVIEWERS} reviewers approve and reject"
    )
    return Result(EXACT, fault, str(findings), findings.is_ok)
