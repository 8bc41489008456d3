"""Validation of data against JSON Schema, fair to the tenants.

A request first gets one second of processor time in the normal process. If that does not suffice,
it runs again in another process, at a low priority. So a costly schema delays only costly ones.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from gleanery.json_schema.costs import CostMemory, Work, work_of
from gleanery.json_schema.worker import SchemaWorker
from gleanery.scheduling.fair_semaphore import FairSemaphore
from gleanery.values import json_text

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
