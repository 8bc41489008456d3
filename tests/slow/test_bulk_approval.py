"""Approval of a million outputs, while other requests continue."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.outputs import output
from tests.support.process import served
from tests.support.service import Client
from tests.support.settings import fresh_settings

OUTPUTS = int(os.environ.get("GLEANERY_SLOW_OUTPUTS", "1000000"))


def lines() -> Iterator[bytes]:
    for number in range(OUTPUTS):
        yield (
            json.dumps(output(number, data={"number": number, "text": "x" * 500})).encode() + b"\n"
        )


class Busy(threading.Thread):
    """Repeats an action, and records the duration of each call."""

    def __init__(self, work: Callable[[int], Any]) -> None:
        super().__init__()
        self._work, self.seconds, self.over = work, [0.0], threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            began = time.perf_counter()
            self._work(len(self.seconds))
            self.seconds.append(time.perf_counter() - began)


def test_approving_a_job_delays_nobody(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with served(fresh_settings(engine, request, tmp_path)) as service:
        client = Client(service.url, service.token)
        began = time.perf_counter()
        answer = client.post(
            "/v1/outputs/group",
            content=lines(),
            headers={"Content-Type": "application/x-ndjson"},
            timeout=1800,
        )
        assert answer.status_code == 200, answer.text
        stored = time.perf_counter() - began

        reader, writer = Client(service.url, service.token), Client(service.url, service.token)
        reading = Busy(lambda n: reader.get("/v1/outputs/group?limit=10").raise_for_status())
        writing = Busy(lambda n: writer.store("group", output(OUTPUTS + n, job_id="other")))
        reading.start()
        writing.start()
        review = {"job_id": "job", "status": "approved"}
        began = time.perf_counter()
        client.post("/v1/reviews/group", json=review, timeout=1800).raise_for_status()
        approved = time.perf_counter() - began
        for busy in (reading, writing):
            busy.over.set()
            busy.join()
        print(
            f"\n{engine}: {OUTPUTS:,} outputs stored in {stored:.0f} s, approved in"
            f" {approved:.0f} s; meanwhile the longest of {len(reading.seconds):,} reads took"
            f" {max(reading.seconds) * 1000:.0f} ms, the longest of {len(writing.seconds):,} writes"
            f" to the same group {max(writing.seconds) * 1000:.0f} ms"
        )
        [job, other] = client.get("/v1/groups/group").json()["jobs"]
        assert (job["outputs"], job["approved"], other["approved"]) == (OUTPUTS, OUTPUTS, 0)
