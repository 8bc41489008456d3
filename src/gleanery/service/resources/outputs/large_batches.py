"""Preparation of large batches in a process of their own.

A parser blocks all threads of its process while it runs. A large batch would so delay all other
requests. The first large batch starts the process; ``batch_process`` is its program.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Collection, Sequence

import msgspec

from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest, Unavailable
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore
from gleanery.service.resources.fields.shapes import Field, FieldTable
from gleanery.service.resources.outputs import batches
from gleanery.service.resources.outputs.batches import LargeBatch, SkippedElements
from gleanery.service.resources.outputs.preparation import PreparedBatch, PreparedOutput
from gleanery.service.resources.outputs.rules import Rules

_log = logging.getLogger("gleanery")

LENGTH_BYTES = 8
"""Each message follows its length, in bytes of this number, most significant first."""

_PROGRAM = "gleanery.service.resources.outputs.batch_process"
_RESPONSE_SECONDS = 120.0
_QUEUE_SECONDS = 60.0
_TOO_MANY_BATCHES = "Too many large batches are being prepared; try again"
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_", "PYTHON", "LD_", "DYLD_")  # no credentials
_NOT_PREPARED = "Large batches cannot be stored now; try again, or send less at a time"


class PreparationRequest(msgspec.Struct):
    """A batch, and what its preparation depends on."""

    batch: LargeBatch
    organization_id: int
    group: str
    key_fields: str | None
    identity_format: int
    idempotency_key: str | None


class LargePreparedOutput(msgspec.Struct):
    """A prepared output; its data begins at this index of ``json_before_id``."""

    output: PreparedOutput
    data_start: int
    long_measures: dict[int, str] = {}
    """Integers with more than 64 bits, by their index in the measures of its fields."""

    @property
    def complete_output(self) -> PreparedOutput:
        if not self.long_measures:
            return self.output
        fields = self.output.fields
        measures = [*fields.measures]
        for index, digits in self.long_measures.items():
            measures[index] = int(digits)
        return self.output._replace(fields=fields._replace(measures=measures))

    @property
    def data_json(self) -> bytes:
        return self.output.json_before_id[self.data_start : -len(b',"id":')]


class PreparationResponse(msgspec.Struct):
    """The prepared outputs, or the errors of the batch."""

    outputs: list[LargePreparedOutput] = []
    errors: list[ErrorDetail] = []
    request_hashes: tuple[bytes, bytes] | None = None
    """The hashes of ``IdempotentRequest``, if the request has an idempotency key."""
    skipped: SkippedElements | None = None
    """As in a ``Batch``."""
    fields: list[Field] = []
    """The fields to which the outputs refer by index."""

    def skip(
        self, positions: Collection[int], details: Sequence[ErrorDetail]
    ) -> PreparationResponse:
        """Remove the outputs at these positions, which have these errors."""
        assert self.skipped is not None
        skipped = self.skipped.add(positions, details)
        kept = [large for large in self.outputs if large.output.position not in positions]
        return msgspec.structs.replace(self, outputs=kept, skipped=skipped)

    def to_batch(self, rules: Rules) -> PreparedBatch:
        outputs = [large.complete_output for large in self.outputs]
        positions = [output.position for output in outputs]
        batch = PreparedBatch(batches.parsed_elsewhere(positions, self.skipped), rules, outputs)
        batch.fields = FieldTable(self.fields)
        return batch


class _EncodedResponse(msgspec.Struct):
    """A response whose outputs are still encoded."""

    outputs: list[msgspec.Raw]
    errors: list[ErrorDetail]
    request_hashes: tuple[bytes, bytes] | None
    skipped: SkippedElements | None
    fields: list[Field]


_decode_frame = msgspec.msgpack.Decoder(_EncodedResponse).decode
_decode_output = msgspec.msgpack.Decoder(LargePreparedOutput).decode


def _decode_response(message: bytes) -> PreparationResponse:
    """Decode the outputs one by one, so that other threads can run in between."""
    frame = _decode_frame(message)
    outputs = [_decode_output(output) for output in frame.outputs]
    return PreparationResponse(
        outputs, frame.errors, frame.request_hashes, frame.skipped, frame.fields
    )


class LargeBatches:
    """The client of the process; organizations use it in turns."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._turns = FairSemaphore(1, _QUEUE_SECONDS, _TOO_MANY_BATCHES)

    async def prepare(self, request: PreparationRequest) -> PreparationResponse:
        """Prepare the batch. Raise InvalidRequest with every error of the batch."""
        message = await asyncio.to_thread(msgspec.msgpack.encode, request)
        async with self._turns.held_for(request.organization_id):
            text = await self._send_until_served(message)
        response = await asyncio.to_thread(_decode_response, text)
        if response.errors:
            raise InvalidRequest(*response.errors)
        return response

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _send_until_served(self, message: bytes) -> bytes:
        """Return the response.

        A process that is not new may have ended before, so the message is sent once more.
        """
        while True:
            was_new = self._process is None
            try:
                return await self._send(message)
            except (OSError, EOFError, RuntimeError) as error:
                _log.warning("the process for large batches has ended", exc_info=error)
                if was_new or isinstance(error, TimeoutError):
                    raise Unavailable(_NOT_PREPARED) from error

    async def _send(self, message: bytes) -> bytes:
        """Send a message and return the response. A process that fails is ended."""
        is_complete = False
        try:
            async with asyncio.timeout(_RESPONSE_SECONDS):
                response = await _exchange(await self._running_process(), message)
            is_complete = True
            return response
        finally:
            if not is_complete:  # the rest must not become the next response
                await self.close()

    async def _running_process(self) -> Process:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _PROGRAM),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,  # its messages could contain values
                env=_environment(),
            )
        return self._process


def _environment() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith(_ENVIRONMENT)}


async def _exchange(process: Process, message: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.writelines((len(message).to_bytes(LENGTH_BYTES), message))
    await process.stdin.drain()
    length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES))
    return await process.stdout.readexactly(length)
