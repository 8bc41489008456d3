"""Validation of data against JSON Schema, fair to the tenants.

A request first gets one second of processor time in the normal process. If that does not suffice,
it runs again in another process, at a low priority. So a costly schema delays only costly ones.
A schema that needs even more is suspended for a minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from math import ceil
from typing import Any, NamedTuple

from gleanery.service.foundation.errors import Unavailable
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore
from gleanery.service.foundation.values import json_text

_log = logging.getLogger("gleanery")

_QUEUE_SECONDS = 20.0
_TOO_MANY_SCHEMAS = "Too many schemas are being checked; try again"
_NORMAL_CPU_SECONDS = 1.0
_COSTLY_CPU_SECONDS = 5.0
_COSTLY_NICENESS = 10


class SchemaViolation(NamedTuple):
    """A violation: the index of the value, the path in the value and the path in the schema."""

    value_index: int
    instance_path: list[str]
    schema_path: list[str]
    missing_member: str | None
    """Name of a required member that the value does not have."""
    expected_types: list[str]
    """Types that the schema allows, if the value has another one."""


class InvalidSchema(Exception):
    """The text is not a self-contained JSON Schema."""

    def __init__(self, path: Sequence[str] = ()) -> None:
        super().__init__()
        self.path = path
        """The place in the schema; empty if it is not known."""


class SchemaTooCostly(Exception):
    """The request ended a schema process that had served no other request."""


class SchemaSuspended(Exception):
    """The schema was too costly a short time ago; it is not used for some seconds."""

    def __init__(self, seconds: int) -> None:
        super().__init__()
        self.seconds = seconds


class SchemaValidator:
    """The schema processes of this service; the first request starts one."""

    def __init__(self) -> None:
        self._normal = _SharedWorker(SchemaWorker(_NORMAL_CPU_SECONDS, 0), is_process_kept=True)
        # A process for each request: if it ends, no earlier request can be the reason.
        worker = SchemaWorker(_COSTLY_CPU_SECONDS, _COSTLY_NICENESS)
        self._costly = _SharedWorker(worker, is_process_kept=False)
        self._costs = CostMemory()

    async def violations(
        self, organization_id: int, schema: str, values: Sequence[Any]
    ) -> list[SchemaViolation]:
        """Validate the values.

        Raise ``InvalidSchema``, ``SchemaTooCostly`` or ``SchemaSuspended``.
        """
        work = work_of(organization_id, schema, bool(values))
        if seconds := self._costs.suspended_seconds(work):
            raise SchemaSuspended(seconds)
        request = await asyncio.to_thread(json_text.encode, {"schema": schema, "values": values})
        response = await asyncio.to_thread(json.loads, await self._send(work, request + b"\n"))
        if not response["is_schema"]:
            raise InvalidSchema(response["path"])
        return [SchemaViolation(*violation) for violation in response["violations"]]

    async def close(self) -> None:
        await self._normal.close()
        await self._costly.close()

    async def _send(self, work: Work, request: bytes) -> bytes:
        if not self._costs.is_costly(work):
            if response := await self._normal.send(work.organization_id, request):
                return response
            self._costs.add_costly(work)
        if response := await self._costly.send(work.organization_id, request):
            return response
        self._costs.add_too_costly(work)
        _log.warning("a schema is too costly", extra={"organization_id": work.organization_id})
        raise SchemaTooCostly


class _SharedWorker:
    """One schema process at a time, which the tenants use in rotation."""

    def __init__(self, worker: SchemaWorker, is_process_kept: bool) -> None:
        self._worker = worker
        self._is_process_kept = is_process_kept
        self._turns = FairSemaphore(1, _QUEUE_SECONDS, _TOO_MANY_SCHEMAS)

    async def send(self, organization_id: int, request: bytes) -> bytes:
        """Return the response, or nothing if the request ended the process."""
        await self._turns.acquire(organization_id)
        # A client that disconnects ends no process: the next request would wait for a new one.
        return await asyncio.shield(asyncio.create_task(self._exchange(organization_id, request)))

    async def _exchange(self, organization_id: int, request: bytes) -> bytes:
        try:
            return await self._worker.send(request)
        finally:
            if not self._is_process_kept:
                await self._worker.close()
            self._turns.release(organization_id)

    async def close(self) -> None:
        await self._worker.close()


# --- costly schemas -----------------------------------------------------------------------------

_MEMORY_SECONDS = 60
_MAX_COSTLY_SCHEMAS = 3  # of one organization; with more, all its schemas are costly


class Work(NamedTuple):
    """One kind of request: an organization checks a schema, or data against it."""

    organization_id: int
    schema_hash: bytes
    has_values: bool


def work_of(organization_id: int, schema: str, has_values: bool) -> Work:
    return Work(organization_id, sha256(schema.encode()).digest(), has_values)


class CostMemory:
    """Forgets everything after a minute, because costs depend on the data too.

    It needs no other limit: each entry has taken a second of processor time, or much memory.
    """

    def __init__(self) -> None:
        self._costly: dict[Work, float] = {}  # with the time at which the entry expires
        self._too_costly: dict[Work, float] = {}

    def is_costly(self, work: Work) -> bool:
        now = time.monotonic()
        costly = {entry for entry, expires in self._costly.items() if expires > now}
        of_organization = sum(entry.organization_id == work.organization_id for entry in costly)
        return work in costly or of_organization > _MAX_COSTLY_SCHEMAS

    def suspended_seconds(self, work: Work) -> int:
        """Return for how long the work is suspended; 0 if it is not."""
        return max(0, ceil(self._too_costly.get(work, 0.0) - time.monotonic()))

    def add_costly(self, work: Work) -> None:
        _remember(self._costly, work)

    def add_too_costly(self, work: Work) -> None:
        _remember(self._too_costly, work)


def _remember(entries: dict[Work, float], work: Work) -> None:
    now = time.monotonic()
    for entry in [entry for entry, expires in entries.items() if expires <= now]:
        del entries[entry]
    entries[work] = now + _MEMORY_SECONDS


# --- the schema process -------------------------------------------------------------------------

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_RESPONSE_SECONDS = 60.0  # wall-clock time; the process limits its own processor time
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_", "PYTHON", "LD_", "DYLD_")  # no credentials
_NOT_RUNNING = "The schema cannot be checked now; try again"


class SchemaWorker:
    """A schema process; a request starts a new one if there is none. Serves one at a time."""

    def __init__(self, cpu_seconds: float, niceness: int) -> None:
        self._arguments = (str(cpu_seconds), str(niceness))
        self._process: Process | None = None

    async def send(self, request: bytes) -> bytes:
        """Return one complete line, or nothing if the process has ended."""
        process = await self._running_process()
        assert process.stdin is not None
        assert process.stdout is not None
        response = b""
        try:
            async with asyncio.timeout(_RESPONSE_SECONDS):
                process.stdin.write(request)
                await process.stdin.drain()
                response = await process.stdout.readline()
        except (OSError, ValueError, RuntimeError):
            pass  # the process has ended or hangs, or its response is too long
        finally:
            if not response.endswith(b"\n"):  # the rest must not become the next response
                await self.close()
        return response if response.endswith(b"\n") else b""

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _running_process(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await _start(self._arguments)
        return self._process


async def _start(arguments: tuple[str, ...]) -> Process:
    """Start a process and wait until it is ready."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-P",
                "-m",
                "gleanery.service.foundation.json_schema_process",
                *arguments,
            ),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,  # its messages could contain values
            limit=_MAX_RESPONSE_BYTES,
            env={name: text for name, text in os.environ.items() if name.startswith(_ENVIRONMENT)},
        )
    except OSError as error:
        raise Unavailable(_NOT_RUNNING) from error
    assert process.stdout is not None
    if not await process.stdout.readline():
        _log.error("the schema process does not start", extra={"status": await process.wait()})
        raise Unavailable(_NOT_RUNNING)
    return process
