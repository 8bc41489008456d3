"""Requests of a hostile tenant: each attack is one method, which a few threads repeat.

The rate of each attack is bounded, so that the generator does not need the processor that the
service has. An attack accepts every response, and the end of its connection too.
"""

from __future__ import annotations

import itertools
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import httpx2

from tests.support.raw_http import connect
from tests.support.service import Client

_JSON = {"Content-Type": "application/json"}
_ANSWER_SECONDS = 15.0
_SLOW_CONNECTIONS = 20
_NEW_JOBS = 5000
_LARGE_BODY_BYTES = 31_000_000
_TRAILERS = (
    b"Connection: close",
    b"Proxy-Connection: close",
    b"Content-Length: 5",
    b"Transfer-Encoding: chunked",
    b"Upgrade: h2c",
)
_INVALID_HTTP = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    b"POST /v1/cookies HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n[]",
    b"POST /v1/cookies HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n[]",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * 70_000 + b"\r\n\r\n",
    b"\r\n" * 500,
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 70,
)


class Pace(NamedTuple):
    """How many threads repeat an attack, and the seconds between two repetitions of each."""

    threads: int
    pause: float


class Attacker:
    """A hostile tenant with large groups of its own."""

    def __init__(self, url: str, token: str, jobs: int, outputs: int) -> None:
        self._url = url
        self._token = token
        self._numbers = itertools.count()
        self.statuses: Counter[int] = Counter()
        self._client = Client(url, token, limits=httpx2.Limits(max_connections=None))
        self._client.timeout = _ANSWER_SECONDS
        self._many_values = _many_values_body()
        self._prepare(jobs, outputs)

    def _prepare(self, jobs: int, outputs: int) -> None:
        """Stores the groups that the attacks read."""
        for start in range(0, jobs, _NEW_JOBS):
            batch = [_output(n, job_id=f"job {n}") for n in range(start, start + _NEW_JOBS)]
            self._client.store("many-jobs", *batch)
        sides = [{"job_id": "a", "tags": {"country": "France"}}, {"job_id": "b"}]
        sides[1]["tags"] = {"country": "Germany"}
        for start in range(0, outputs, _NEW_JOBS):
            batch = [_output(n, **sides[n % 2]) for n in range(start, start + _NEW_JOBS)]
            self._client.store("disjoint", *batch)
        for number in range(40):
            self._client.store("large", _output(number, data={"text": "x" * 1_000_000}))

    def close(self) -> None:
        self._client.close()

    # --- HTTP -------------------------------------------------------------------------------------

    def upgrade_with_body(self) -> None:
        headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": ""}
        self._post("/v1/outputs/upgrade", json.dumps([_output(1)]), **headers)

    def trailers(self) -> None:
        head = self._head("POST", "/v1/outputs/trailers", "Transfer-Encoding: chunked")
        body = b"2\r\n[]\r\n0\r\n%s\r\n\r\n" % random.choice(_TRAILERS)
        self._exchange(head + body + self._head("GET", "/healthz", "Connection: close"))

    def early_response(self) -> None:
        """A rejected request whose chunked body then turns out to be invalid."""
        head = self._head("POST", "/nowhere", "Transfer-Encoding: chunked")
        with connect(self._url) as connection:
            connection.sendall(head + b"5\r\nhello\r\n")
            self._receive(connection)
            connection.sendall(b"not a chunk\r\n\r\n" + self._head("GET", "/healthz"))
            self._receive(connection)

    def invalid_http(self) -> None:
        self._exchange(random.choice(_INVALID_HTTP))

    def slow_reader(self) -> None:
        """Requests of large pages of which nothing is read."""
        self._hold(self._head("GET", "/v1/outputs/large?limit=1000"), b"")

    def slow_upload(self) -> None:
        """Bodies that arrive byte by byte."""
        kind = "Content-Type: application/json"
        head = self._head("POST", "/v1/outputs/slow", kind, "Content-Length: 1000000")
        self._hold(head, b"[")

    # --- bodies -----------------------------------------------------------------------------------

    def exponent_numbers(self) -> None:
        numbers = ",".join(["123456789012345671e290"] * 20_000)
        self._post("/v1/outputs/numbers", _text_output(f'{{"numbers":[{numbers}]}}'))

    def many_values(self) -> None:
        self._post("/v1/outputs/values", self._many_values)

    def unknown_members(self) -> None:
        self._post("/v1/outputs/typo", json.dumps([_output(1) | {"dat": {}, "jobid": "x"}]))
        self._get("/v1/outputs/disjoint?limt=5")

    # --- work -------------------------------------------------------------------------------------

    def large_pages(self) -> None:
        self._get("/v1/outputs/large?limit=1000")

    def pages_for_everybody(self) -> None:
        for path in ("/metrics", "/readyz", "/openapi.json", "/docs"):
            self._get(path)

    def new_jobs(self) -> None:
        batch = next(self._numbers)
        outputs = [_output(n, job_id=f"job {batch} {n}") for n in range(_NEW_JOBS)]
        self._post(f"/v1/outputs/new-jobs-{batch % 12}", json.dumps(outputs))

    def costly_schema(self) -> None:
        number = next(self._numbers)
        twice = {"properties": {"next": {"$ref": "#"}}, "required": ["next"]}
        branches = [{**twice, "minProperties": 1}, {**twice, "maxProperties": 9}]
        schema = {"description": str(number), "anyOf": branches}
        deep: dict[str, Any] = reduce(lambda inner, _: {"next": inner}, range(90), {"leaf": True})
        group = f"costly-{number % 3}"
        self._note(self._client.put(f"/v1/groups/{group}", json={"schema": schema}))
        self._post(f"/v1/outputs/{group}", json.dumps([_output(number, data=deep)]))

    def filters_without_match(self) -> None:
        self._get("/v1/outputs/disjoint?job_id=a&country=Germany&limit=1000")

    def group_with_many_jobs(self) -> None:
        self._get("/v1/groups/many-jobs")

    # --- sending ----------------------------------------------------------------------------------

    def _get(self, path: str) -> None:
        self._note(self._client.get(path))

    def _post(self, path: str, body: str | bytes, **headers: str) -> None:
        self._note(self._client.post(path, content=body, headers=_JSON | headers))

    def _note(self, answer: httpx2.Response) -> None:
        self.statuses[answer.status_code] += 1

    def _head(self, method: str, path: str, *headers: str) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self._token}"]
        return "\r\n".join([*lines, *headers, "", ""]).encode()

    def _exchange(self, request: bytes) -> None:
        with connect(self._url) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while self._receive(connection):
                pass

    def _receive(self, connection: socket.socket) -> bytes:
        connection.settimeout(_ANSWER_SECONDS)
        received = connection.recv(65536)
        if received.startswith(b"HTTP/1.1 "):
            self.statuses[int(received[9:12])] += 1
        return received

    def _hold(self, request: bytes, piece: bytes) -> None:
        """Keeps some connections open for two seconds."""
        connections = [connect(self._url) for _ in range(_SLOW_CONNECTIONS)]
        try:
            for connection in connections:
                connection.sendall(request)
            for connection in connections * 2:
                connection.sendall(piece)
                time.sleep(1 / _SLOW_CONNECTIONS)
        finally:
            for connection in connections:
                connection.close()


def _output(number: int, **members: Any) -> dict[str, Any]:
    url = f"https://hostile.example/{number}"
    return {"job_id": "job", "source_url": url, "data": {"number": number}} | members


def _text_output(data: str) -> str:
    return f'[{{"job_id":"job","source_url":"https://hostile.example","data":{data}}}]'


def _many_values_body() -> str:
    return _text_output('{"values":[' + "[]," * (_LARGE_BODY_BYTES // 3) + "[]]}")


ATTACKS: dict[str, tuple[Callable[[Attacker], None], Pace]] = {
    "upgrade with body": (Attacker.upgrade_with_body, Pace(1, 0.1)),
    "trailers": (Attacker.trailers, Pace(2, 0.1)),
    "early response": (Attacker.early_response, Pace(2, 0.1)),
    "invalid HTTP": (Attacker.invalid_http, Pace(2, 0.05)),
    "slow readers": (Attacker.slow_reader, Pace(1, 0.1)),
    "slow uploads": (Attacker.slow_upload, Pace(1, 0.1)),
    "exponent numbers": (Attacker.exponent_numbers, Pace(1, 0.5)),
    "10 million values": (Attacker.many_values, Pace(2, 3.0)),
    "unknown members": (Attacker.unknown_members, Pace(1, 0.05)),
    "large pages": (Attacker.large_pages, Pace(2, 0.5)),
    "pages for everybody": (Attacker.pages_for_everybody, Pace(2, 0.05)),
    "5,000 new jobs": (Attacker.new_jobs, Pace(12, 10.0)),
    "costly schema": (Attacker.costly_schema, Pace(3, 1.0)),
    "filters without match": (Attacker.filters_without_match, Pace(2, 0.2)),
    "group with many jobs": (Attacker.group_with_many_jobs, Pace(2, 0.5)),
}
"""Each attack and its pace."""
