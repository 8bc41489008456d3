"""A real service for tests: the whole application behind a real socket, in a thread."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import httpx2
import uvloop

from gleanery.common.settings import Settings
from gleanery.service.application import App, build_app
from gleanery.service.foundation.blobs import open_blobs
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import retention
from gleanery.service.maintenance.sweep import Reading, SweepClock
from gleanery.service.processes.certificates import open_certificates
from gleanery.service.processes.start import bound, prepare
from gleanery.service.processes.worker import Worker
from gleanery.service.resources.access import organizations
from gleanery.service.resources.monitors.evaluation import Monitors
from gleanery.service.storage.database import Engine
from gleanery.service.storage.engines import open_engine
from tests.support.waiting import TIMEOUT_SECONDS

EVERY_SCOPE = frozenset(tokens.SCOPES)
SECRET_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


def new_secret_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


NO_TLS = False  # for plain HTTP: the certificates of the system take 45 ms to load, for each client

_names = itertools.count(1)


def _new_name() -> str:
    return f"organization {next(_names)}"


DAY = 86_400  # seconds


class Clock:
    """The clocks of a service and of its database, which a test can move."""

    def __init__(self) -> None:
        self.passed = 0
        self.node_jump = 0
        self.server_jump = 0
        self.sweep_readings = 0

    def __call__(self) -> int:
        return timestamps.now() + self.passed + self.node_jump

    def move(self, *, seconds: float) -> None:
        """Lets time pass: on every clock."""
        self.passed += int(seconds * timestamps.SECOND)

    def jump(self, *, seconds: float) -> None:
        """Sets the wall clock of the service to a wrong time."""
        self.node_jump += int(seconds * timestamps.SECOND)

    def jump_server(self, *, seconds: float) -> None:
        """Sets the wall clock of the PostgreSQL server to a wrong time."""
        self.server_jump += int(seconds * timestamps.SECOND)


class MovedSweepClock(SweepClock):
    """The clock of the sweep, moved as the test moves its ``Clock``."""

    def __init__(self, engine: Engine, clock: Callable[[], int]) -> None:
        super().__init__(engine, timestamps.now)
        self._moves = clock if isinstance(clock, Clock) else Clock()
        self._has_server = engine.engine == "postgres"

    async def read(self) -> Reading:
        moves = self._moves
        passed, node_jump, server_jump = moves.passed, moves.node_jump, moves.server_jump
        time, node_time, monotonic = await super().read()
        moves.sweep_readings += 1
        jump = server_jump if self._has_server else node_jump
        return Reading(time + passed + jump, node_time + passed + node_jump, monotonic + passed)


class Client(httpx2.Client):
    """An HTTP client that carries one token."""

    def __init__(self, url: str, token: str | None, **options: Any) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        options.setdefault("verify", NO_TLS)
        super().__init__(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, **options)
        self.token = token

    def store(self, group: str, *outputs: dict[str, Any]) -> dict[str, Any]:
        answer = self.post(f"/v1/outputs/{group}", json=list(outputs))
        assert answer.status_code == 200, answer.text
        stored: dict[str, Any] = answer.json()
        return stored

    def items(self, group: str, **query: Any) -> list[dict[str, Any]]:
        """All items of all pages, by ``next_url``."""
        answer = self.get(f"/v1/outputs/{group}", params=query)
        found: list[dict[str, Any]] = []
        while True:
            assert answer.status_code == 200, answer.text
            page = answer.json()
            found += page["items"]
            if page["metadata"]["next_url"] is None:
                assert page["metadata"]["next_cursor"] is None
                return found
            answer = self.get(page["metadata"]["next_url"])


class Server(Protocol):
    """A server that another thread can stop."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...


class Service:
    """The application on one engine, started once for many tests."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], int] = timestamps.now,
        is_prepared: bool = False,
    ) -> None:
        if not is_prepared:
            asyncio.run(prepare(settings))
        listener, self.settings = bound(settings)
        app = build_app(self.settings, clock, sweep_clock=MovedSweepClock)
        self._app = app
        self._server = self.create_server(app, listener)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.url = self.settings.address
        self._spare: list[str] = []  # created in advance: it is slow to open a database

    @property
    def is_ready(self) -> bool:
        """True if requests may use the database."""
        return self._app._services.readiness.problem is None

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive(), "the service does not stop"

    def create_server(self, app: App, listener: socket.socket) -> Server:
        certificates = open_certificates(self.settings)
        return Worker(app, listener, self.settings.shutdown_seconds, certificates)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._server.run())

    def token(
        self,
        organization: str | None = None,
        scopes: frozenset[str] = EVERY_SCOPE,
        expires: int | None = None,
    ) -> str:
        """A token of the named organization, or of a new one."""
        if organization is not None or scopes != EVERY_SCOPE or expires is not None:
            name = organization or _new_name()
            return self._create([name], scopes, expires)[0]
        if not self._spare:
            self._spare = self._create([_new_name() for _ in range(40)], scopes, expires)
        return self._spare.pop()

    def _create(
        self, organization_names: list[str], scopes: frozenset[str], expires: int | None
    ) -> list[str]:
        async def create() -> list[str]:
            async with open_engine(self.settings) as database:
                return [
                    await organizations.create_token(
                        database, name, scopes, timestamps.now(), expires
                    )
                    for name in organization_names
                ]

        # in a thread: an asynchronous test may ask for a token, too
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(asyncio.run, create()).result()

    def sweep(self, clock: Callable[[], int], is_confirmed: bool = True) -> None:
        """Runs one round of the sweep. A new database does not confirm the clock for hours."""

        async def run() -> None:
            settings = self.settings
            async with open_engine(settings) as database:
                keep = retention.RetentionDays(
                    tombstones=settings.tombstone_days,
                    unreferenced_files=settings.unreferenced_file_days,
                    audit_entries=settings.audit_days,
                )
                blobs = open_blobs(settings.blobs_location)
                now = clock() if is_confirmed else None
                monitors = Monitors(FairThread(), clock)
                await retention.sweep(database, blobs, monitors, clock, keep, now)

        asyncio.run(run())

    def client(self, token: str | None = None, **of_token: Any) -> Client:
        """A client with this token, or with a new one."""
        return Client(self.url, token or self.token(**of_token))

    def stranger(self) -> Client:
        """A client without a token."""
        return Client(self.url, None)
