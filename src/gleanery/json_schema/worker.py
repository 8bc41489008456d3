"""The client of one schema process: starts it, sends requests to it, and notices its end."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress

from gleanery.errors import Unavailable

_log = logging.getLogger("gleanery")

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
            *(sys.executable, "-P", "-m", "gleanery.json_schema.process", *arguments),
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
