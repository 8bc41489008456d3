"""The client of the schema process: sends requests, and restarts the process when one ends it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from typing import Any, NamedTuple

from gleanery.errors import Unavailable
from gleanery.values import json_text

_log = logging.getLogger("gleanery")

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_RESPONSE_SECONDS = 60.0  # wall-clock time; the process limits its own processor time
_QUEUE_SECONDS = 20.0
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_", "PYTHON", "LD_", "DYLD_")  # no credentials
_NOT_RUNNING = "The schema cannot be checked now; try again"


class SchemaViolation(NamedTuple):
    """A violation: the index of the value, the path in the value and the path in the schema."""

    value_index: int
    instance_path: list[str]
    schema_path: list[str]


class InvalidSchema(Exception):
    """The text is not a self-contained JSON Schema."""

    def __init__(self, path: Sequence[str] = ()) -> None:
        super().__init__()
        self.path = path
        """The place in the schema; empty if it is not known."""


class SchemaTooCostly(Exception):
    """The request ended a schema process that had served no other request."""


class SchemaValidator:
    """The schema process of this service; the first request starts it."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._served_requests = 0
        self._lock = asyncio.Lock()

    async def violations(self, schema: str, values: Sequence[Any]) -> list[SchemaViolation]:
        """Validates the values. Raises ``InvalidSchema`` or ``SchemaTooCostly``."""
        request = await asyncio.to_thread(json_text.encode, {"schema": schema, "values": values})
        try:
            await asyncio.wait_for(self._lock.acquire(), _QUEUE_SECONDS)
        except TimeoutError:
            raise Unavailable("Too many schemas are being checked; try again") from None
        try:
            text = await self._send_until_served(request + b"\n")
        finally:
            self._lock.release()
        response = await asyncio.to_thread(json.loads, text)
        if not response["is_schema"]:
            raise InvalidSchema(response["path"])
        return [SchemaViolation(*violation) for violation in response["violations"]]

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _send_until_served(self, request: bytes) -> bytes:
        """Returns the response. A process that served others before may end for another reason,
        so the request is sent once more, to a new process.
        """
        while True:
            process = await self._running_process()
            was_new = self._served_requests == 0
            response = await self._send(process, request)
            if response:
                self._served_requests += 1
                return response
            _log.warning("the schema process has ended", extra={"status": process.returncode})
            if was_new:
                raise SchemaTooCostly

    async def _send(self, process: Process, request: bytes) -> bytes:
        """Returns one complete line, or nothing if the process has ended."""
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

    async def _running_process(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process, self._served_requests = await _start(), 0
        return self._process


async def _start() -> Process:
    """Starts a process and waits until it is ready."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gleanery.json_schema.process"),
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
