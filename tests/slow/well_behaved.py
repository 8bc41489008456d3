"""The well-behaved tenant: small requests at a constant rate, from a process of its own.

It reads on one connection and writes on another, because a write may wait for other writers.
Each line of its output is one request: when it was due, how long its response took from then on,
its kind and its status. The parent ends the process.
"""

from __future__ import annotations

import http.client
import itertools
import json
import sys
import threading
import time
from typing import NamedTuple
from urllib.parse import urlsplit

READS_PER_SECOND = 20
WRITES_PER_SECOND = 5
READS = ("page", "changes", "group")
WRITES = ("store",)
GROUP = "well-behaved"
BROKEN = 0
"""The status of a request whose connection ended before the response."""
WITHOUT_RETRY_AFTER = -1
"""The status of a 429 or 503 that does not say when to try again."""


class Sample(NamedTuple):
    """One request: when it was due, and how long it took, in seconds."""

    due: float
    seconds: float
    kind: str
    status: int


def parse_sample(line: str) -> Sample:
    due, seconds, kind, status = line.split()
    return Sample(float(due), float(seconds), kind, int(status))


class Tenant:
    """One keep-alive connection of one token."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._cursor = 0

    def send(self, kind: str, number: int) -> tuple[str, int]:
        """Sends the next request; returns its kind and its status."""
        try:
            return kind, getattr(self, f"_{kind}")(number)
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return kind, BROKEN

    def _store(self, number: int) -> int:
        output = {"job_id": "job", "source_url": f"https://shop.example/{number}", "data": {}}
        return self._request("POST", f"/v1/outputs/{GROUP}", json.dumps([output]))[0]

    def _page(self, number: int) -> int:
        return self._request("GET", f"/v1/outputs/{GROUP}?limit=10")[0]

    def _changes(self, number: int) -> int:
        path = f"/v1/changes/{GROUP}?limit=10&cursor={self._cursor}"
        status, body = self._request("GET", path)
        if status == 200:
            self._cursor = json.loads(body)["cursor"]
        return status

    def _group(self, number: int) -> int:
        return self._request("GET", f"/v1/groups/{GROUP}")[0]

    def _request(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        self._connection.request(method, path, body, self._headers)
        response = self._connection.getresponse()
        text = response.read()
        if response.status in (429, 503) and response.getheader("Retry-After") is None:
            return WITHOUT_RETRY_AFTER, text
        return response.status, text


def run(tenant: Tenant, kinds: tuple[str, ...], per_second: int) -> None:
    """Sends requests of these kinds in turns. A late one does not move the times of the others."""
    began = time.monotonic()
    for number in itertools.count():
        due = began + number / per_second
        time.sleep(max(0.0, due - time.monotonic()))
        kind, status = tenant.send(kinds[number % len(kinds)], number)
        line = f"{due:.6f} {time.monotonic() - due:.6f} {kind} {status}\n"
        sys.stdout.write(line)
        sys.stdout.flush()


def main(url: str, token: str) -> None:
    Tenant(url, token).send("store", 0)  # creates the group
    writes = (Tenant(url, token), WRITES, WRITES_PER_SECOND)
    threading.Thread(target=run, args=writes, daemon=True).start()
    run(Tenant(url, token), READS, READS_PER_SECOND)


if __name__ == "__main__":
    main(*sys.argv[1:])
