"""Asks the schema process, and starts it anew when a question has ended it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from typing import Any, NamedTuple

from gleanery import jsontext

_LONGEST_ANSWER = 64 * 1024 * 1024


class SchemaFault(NamedTuple):
    """Where a value breaks the schema: which value, the way into it, the way into the schema."""

    place: int
    instance_path: list[str]
    schema_path: list[str]


class NoSchema(Exception):
    """The text is not a JSON Schema that stands on its own."""


class TooCostly(Exception):
    """The schema process did not survive the question."""


class Schemas:
    """The schema process of this service; it is started when the first question comes."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def faults(self, schema: str, values: Sequence[Any]) -> list[SchemaFault]:
        """How the values break the schema. Raises ``NoSchema`` or ``TooCostly``."""
        question = await asyncio.to_thread(jsontext.encode, {"schema": schema, "values": values})
        async with self._turn:
            answer = await self._ask(question + b"\n")
        if not answer["is_schema"]:
            raise NoSchema
        return [SchemaFault(*fault) for fault in answer["faults"]]

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _ask(self, question: bytes) -> dict[str, Any]:
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = b""
        try:
            process.stdin.write(question)
            await process.stdin.drain()
            answer = await process.stdout.readline()
        except (OSError, ValueError):
            pass  # it has ended, or its answer has none
        finally:
            if not answer.endswith(b"\n"):  # nor may the next question get what is left of this
                await self.close()
        if not answer:
            raise TooCostly
        told: dict[str, Any] = json.loads(answer)
        return told

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gleanery.store.schema_process"),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,  # what it might say could hold values
                limit=_LONGEST_ANSWER,
                env={name: text for name, text in os.environ.items() if "GLEANERY" not in name},
            )
        return self._process
