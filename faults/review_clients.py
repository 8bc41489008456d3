"""Clients that write and review the outputs of a group, and repeat each request until it succeeds.

Writers store, tag and delete outputs, each in a job of its own. Reviewers approve and reject. So
an independent model of the group follows from the acknowledged requests alone.
"""

from __future__ import annotations

import itertools
import json
import random
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

import httpx2

from faults.approved_state import Content, Job, all_locked
from faults.workload import Client, Connectable

_BATCH_SIZE = 4
_RETRY_PAUSE = 0.1
_KINDS = {"value": 160, "tag": 40, "output": 20, "job": 4, "group": 1}
"""How often a writer stores a value, stores a tag, or deletes an output, its job or the group."""


def content_of(item: dict[str, Any]) -> Content:
    return Content(item["data"]["value"], int(item["tags"]["tag"]))


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
    """Stores new values of some outputs of its job, or new tags, or deletes."""

    pause = 0.005

    def __init__(self, service: Connectable, group: str, job: Job, jobs: Sequence[Job]) -> None:
        super().__init__(service, group)
        self._job, self._all_jobs = job, jobs
        self._numbers = itertools.count(1)
        self._ids: dict[str, str] = {}

    def step(self) -> None:
        kind = random.choices([*_KINDS], [*_KINDS.values()])[0]
        if kind == "group":
            with all_locked(self._all_jobs):
                self._delete_jobs(self._all_jobs, "/v1/groups/{group}")
            return
        with self._job.lock:
            present = self._job.present()
            if kind == "value" or not present:
                urls = random.sample([*self._job.logs], _BATCH_SIZE)
                self._store({url: Content(next(self._numbers), 0) for url in urls})
            elif kind == "tag":
                url = random.choice([*present])
                self._store({url: present[url]._replace(tag=next(self._numbers))})
            elif kind == "job":
                self._delete_jobs([self._job], f"/v1/groups/{{group}}/jobs/{self._job.name}")
            else:
                self._delete_output(random.choice([*present]))

    def _store(self, contents: dict[str, Content]) -> None:
        body = [
            {
                "job_id": self._job.name,
                "source_url": url,
                "data": {"value": content.value, "organization": self.organization},
                "tags": {"tag": str(content.tag)},
            }
            for url, content in contents.items()
        ]
        response = self.acknowledged("POST", f"/v1/outputs/{self.group}", json=body)
        assert response.status_code == 200, response.text
        results = response.json()["results"]
        for (url, content), result in zip(contents.items(), results, strict=True):
            self._ids[url] = result["output_id"]
            self._job.logs[url].append(content)

    def _delete_output(self, url: str) -> None:
        with self._job.deletion([url]):
            self._send_deletion(f"/v1/outputs/{self.group}/{self._ids[url]}")

    def _delete_jobs(self, jobs: Sequence[Job], path: str) -> None:
        """Delete all outputs of these jobs. The caller holds their locks."""
        with ExitStack() as stack:
            for job in jobs:
                stack.enter_context(job.deletion([*job.present()]))
            self._send_deletion(path.format(group=self.group))

    def _send_deletion(self, path: str) -> None:
        response = self.acknowledged("DELETE", path)
        assert response.status_code in (200, 404), response.text  # 404: the first try deleted it


class Reviewer(PersistentClient):
    """Reviews whole jobs, and single outputs as it has read them."""

    pause = 0.01

    def __init__(self, service: Connectable, group: str, jobs: Sequence[Job]) -> None:
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
                item["source_url"]: content_of(item) if status == "approved" else None
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
        if response.status_code in (404, 422) and "output_ids" in review:
            return None
        assert response.status_code == 200, response.text
        self.reviews += 1
        answer: dict[str, Any] = response.json()
        return answer
