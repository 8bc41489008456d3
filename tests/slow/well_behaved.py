"""The well-behaved tenant: small requests at a constant rate, from a process of its own.

Each line of its output is one request: when it was due, how long its response took from then on,
its kind and its status. The parent ends the process.
"""

from __future__ import annotations

import http.client
import itertools
import json
import sys
import time
from typing import NamedTuple
from urllib.parse import urlsplit

PER_SECOND = 25
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

    def send(self, number: int) -> tuple[str, int]:
        """Sends the next request; returns its kind and its status."""
        kind = ("store", "page", "changes", "group")[number % 4]
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


def main(url: str, token: str) -> None:
    tenant, began = Tenant(url, token), time.monotonic()
    for number in itertools.count():
        due = began + number / PER_SECOND
        time.sleep(max(0.0, due - time.monotonic()))
        kind, status = tenant.send(number)
        print(f"{due:.6f} {time.monotonic() - due:.6f} {kind} {status}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
