"""Memory fault: many slow readers of large pages of one organization, beside another one."""

from __future__ import annotations

import re
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from faults.environment import Environment
from faults.organizations import Organization
from faults.processes import wait_until
from faults.results import Result
from faults.service import Service
from faults.workload import format_counts
from tests.support.outputs import output

PROMISE = (
    "responses that the slow readers of one organization have not read take a bounded part of the "
    "memory, which the service returns, and the requests of another organization succeed"
)
_MIB = 2**20
_OUTPUTS = 20  # of a megabyte each, so that the first page is full
_READ_BYTES = 8 * 1024  # per reader and turn
_TURN_SECONDS = 0.25
_PAGE = "/v1/outputs/large?limit=100"
_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
# Half of --max-unsent-bytes is for one organization alone. The rest is a page that is being read,
# its parts in the database's memory, and what the allocator keeps meanwhile.
_MAX_GROWTH = (128 + 192) * _MIB
_MAX_REST = 96 * _MIB
_FIRST_SECONDS = 60.0  # at most, until as many responses have begun as there are readers
_RETURN_SECONDS = 30.0


def read_slowly(
    environment: Environment, engine: str, readers: int, seconds: float, *options: str
) -> Result:
    database = environment.start_server().url() if engine == "PostgreSQL" else None
    service = environment.start_service(database, *options)
    other = Organization("other", service.create_token("other"), [service])
    for tenant in (service, other):
        _store(tenant)
    before = _memory(service)
    peak, statuses = before, Counter[str]()
    with _Readers(service, readers) as slow, _serve_other(other, statuses):
        start = time.monotonic()
        while (passed := time.monotonic() - start) < seconds or (
            passed < _FIRST_SECONDS and slow.statuses.total() < readers
        ):
            slow.take_turn()
            peak = max(peak, _memory(service))
    with suppress(TimeoutError):
        wait_until(lambda: _memory(service) - before <= _MAX_REST, _RETURN_SECONDS)
    after = _memory(service)
    outcome = (
        f"memory {before // _MIB} MB before, {peak // _MIB} MB at the peak, {after // _MIB} MB "
        f"after the load; the slow readers got "
        f"{format_counts(slow.statuses)}; the other organization got {format_counts(statuses)}"
    )
    fault = (
        f"{readers} readers of pages of 16 MiB, 32 KiB per second each, for {seconds:.0f} s, on "
        f"{engine}"
    )
    holds = (
        peak - before <= _MAX_GROWTH
        and after - before <= _MAX_REST
        and set(statuses) == {"200"}
        and set(slow.statuses) <= {"200", "503"}
    )
    return Result(PROMISE, fault, outcome, holds)


class _Readers:
    """Connections that request a large page and read it slowly, again and again."""

    def __init__(self, service: Service, count: int) -> None:
        self.statuses = Counter[str]()
        self._address = ("127.0.0.1", service.port)
        self._request = (
            f"GET {_PAGE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.token}\r\n\r\n"
        ).encode()
        self._selector = selectors.DefaultSelector()
        for _ in range(count):
            self._connect()

    def __enter__(self) -> _Readers:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            self._close(key.fileobj)

    def take_turn(self) -> None:
        """Let every reader that has data read a little of it."""
        for key, _ in self._selector.select(0):
            self._read(key.fileobj)
        time.sleep(_TURN_SECONDS)

    def _connect(self) -> None:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _READ_BYTES)
        connection.connect(self._address)
        connection.sendall(self._request)
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: object) -> None:
        assert isinstance(connection, socket.socket)
        try:
            received = connection.recv(_READ_BYTES)
        except ConnectionError:
            received = b""
        if found := _STATUS.match(received):
            self.statuses[found[1].decode()] += 1
        if not received or (found and found[1] != b"200"):  # the next attempt has a new connection
            self._close(connection)
            self._connect()

    def _close(self, connection: object) -> None:
        assert isinstance(connection, socket.socket)
        self._selector.unregister(connection)
        connection.close()


@contextmanager
def _serve_other(other: Organization, statuses: Counter[str]) -> Iterator[None]:
    """Read small and large pages, and store, as the other organization, until the context ends."""
    ended = threading.Event()

    def use() -> None:
        with other.client() as client:
            while not ended.is_set():
                for request in _requests(client):
                    statuses[_status(client, request)] += 1

    thread = threading.Thread(target=use)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _requests(client: httpx2.Client) -> Sequence[httpx2.Request]:
    return (
        client.build_request("GET", "/v1/outputs/small"),
        client.build_request("POST", "/v1/outputs/small", json=[output(1)]),
        client.build_request("GET", _PAGE),
    )


def _status(client: httpx2.Client, request: httpx2.Request) -> str:
    try:
        return str(client.send(request).status_code)
    except httpx2.TransportError as error:
        return type(error).__name__


def _store(tenant: Service | Organization) -> None:
    with tenant.client() as client:
        client.post("/v1/outputs/small", json=[output(1)]).raise_for_status()
        for number in range(_OUTPUTS):
            large = output(number, data={"text": f"{number:04}" * (_MIB // 4)})
            client.post("/v1/outputs/large", json=[large]).raise_for_status()


def _memory(service: Service) -> int:
    """Return the resident bytes of the largest process: the worker that has the readers."""
    return max(map(_resident_bytes, service.workers() or [service.pid]))


def _resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024
