"""Asks the schema process, and starts it anew when a question has ended it."""

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

_LONGEST_ANSWER = 64 * 1024 * 1024
_ANSWER_SECONDS = 60.0  # of waiting; how much it may work, the process limits itself
_LINE_SECONDS = 20.0
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_", "PYTHON", "LD_", "DYLD_")  # and no credentials


class SchemaViolation(NamedTuple):
    """Where a value breaks the schema: which value, the way into it, the way into the schema."""

    place: int
    instance_path: list[str]
    schema_path: list[str]


class InvalidSchema(Exception):
    """The text is not a JSON Schema that stands on its own."""


class SchemaTooCostly(Exception):
    """The question has ended a schema process that was given nothing else."""


class SchemaValidator:
    """The schema process of this service; it is started when the first question comes."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._answered = 0
        self._turn = asyncio.Lock()

    async def violations(self, schema: str, values: Sequence[Any]) -> list[SchemaViolation]:
        """How the values break the schema. Raises ``InvalidSchema`` or ``SchemaTooCostly``."""
        question = await asyncio.to_thread(json_text.encode, {"schema": schema, "values": values})
        try:
            await asyncio.wait_for(self._turn.acquire(), _LINE_SECONDS)
        except TimeoutError:
            raise Unavailable("Others' schemas keep this one waiting; try again") from None
        try:
            answer = await self._ask(question + b"\n")
        finally:
            self._turn.release()
        told = await asyncio.to_thread(json.loads, answer)
        if not told["is_schema"]:
            raise InvalidSchema
        return [SchemaViolation(*violation) for violation in told["violations"]]

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _ask(self, question: bytes) -> bytes:
        """The answer. A process may end of something else meanwhile; a second one, hardly."""
        while True:
            process = await self._running()
            was_fresh = self._answered == 0
            answer = await self._answer(process, question)
            if answer:
                self._answered += 1
                return answer
            _log.warning("the schema process has ended", extra={"status": process.returncode})
            if was_fresh:
                raise SchemaTooCostly

    async def _answer(self, process: Process, question: bytes) -> bytes:
        """One whole line, or nothing; in that case the process is gone."""
        assert process.stdin is not None
        assert process.stdout is not None
        answer = b""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                process.stdin.write(question)
                await process.stdin.drain()
                answer = await process.stdout.readline()
        except (OSError, ValueError, RuntimeError):
            pass  # it has ended, which uvloop may say first, or takes too long, or says too much
        finally:
            if not answer.endswith(b"\n"):  # the next question must not get the rest of this answer
                await self.close()
        return answer if answer.endswith(b"\n") else b""

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process, self._answered = await _start(), 0
        return self._process


async def _start() -> Process:
    """A new process, which has said that it is ready."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gleanery.json_schema.process"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,  # what it might say could hold values
            limit=_LONGEST_ANSWER,
            env={name: text for name, text in os.environ.items() if name.startswith(_ENVIRONMENT)},
        )
    except OSError as error:
        raise Unavailable("SchemaValidator can't be checked now; try again") from error
    assert process.stdout is not None
    if not await process.stdout.readline():
        _log.error("the schema process does not start", extra={"status": await process.wait()})
        raise Unavailable("SchemaValidator can't be checked now; try again")
    return process
