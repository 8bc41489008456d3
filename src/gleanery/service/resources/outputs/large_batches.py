"""Preparation of large batches in another process: the messages, the client and the program.

A parser blocks all threads of its process while it runs. A large batch would delay all other
requests. The first large batch starts the process, which runs this module as its program.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Collection, Sequence
from typing import BinaryIO

import msgspec

from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest, Unavailable
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore
from gleanery.service.foundation.values import json_text
from gleanery.service.resources.fields.shapes import Field, FieldTable
from gleanery.service.resources.outputs.batches import (
    Batch,
    LargeBatch,
    PreparedBatch,
    SkippedElements,
    idempotent_request,
    parse_json,
    parse_lines,
    parsed_elsewhere,
    prepare,
)
from gleanery.service.resources.outputs.elements import IdentityHasher, PreparedOutput, Rules
from gleanery.service.resources.outputs.models import Output

_log = logging.getLogger("gleanery")

LENGTH_BYTES = 8
"""Each message follows its length, in bytes of this number, most significant first."""

_PROGRAM = "gleanery.service.resources.outputs.large_batches"
_RESPONSE_SECONDS = 120.0
_QUEUE_SECONDS = 60.0
_MAX_MEMORY_BYTES = 4 * 1024**3  # of the process
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
    run_id: str | None


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
        batch = PreparedBatch(parsed_elsewhere(positions, self.skipped), rules, outputs)
        batch.fields = FieldTable(self.fields)
        return batch


class _EncodedResponse(msgspec.Struct):
    """A response whose outputs are still encoded."""

    outputs: list[msgspec.Raw]
    errors: list[ErrorDetail]
    request_hashes: tuple[bytes, bytes] | None
    skipped: SkippedElements | None
    fields: list[Field]


_decode_request = msgspec.msgpack.Decoder(PreparationRequest).decode
_decode_frame = msgspec.msgpack.Decoder(_EncodedResponse).decode
_decode_output = msgspec.msgpack.Decoder(LargePreparedOutput).decode


def _decode_response(message: bytes) -> PreparationResponse:
    """Decode the outputs one by one, so that other threads can run in between."""
    frame = _decode_frame(message)
    outputs = [_decode_output(output) for output in frame.outputs]
    return PreparationResponse(
        outputs, frame.errors, frame.request_hashes, frame.skipped, frame.fields
    )


# --- the client of the process ------------------------------------------------------------------


class LargeBatches:
    """Has batches prepared; organizations use the process in turns."""

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


# --- the program of the process -----------------------------------------------------------------


def main() -> None:
    """Prepare the batches on the input, one message for each, until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the process ends when its input is closed
        signal.signal(number, signal.SIG_IGN)
    for kind, amount in ((resource.RLIMIT_AS, _MAX_MEMORY_BYTES), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):  # the system does not support this limit
            resource.setrlimit(kind, (amount, resource.getrlimit(kind)[1]))
    while (message := _read_message(sys.stdin.buffer)) is not None:
        response = msgspec.msgpack.encode(respond(_decode_request(message)))
        sys.stdout.buffer.write(len(response).to_bytes(LENGTH_BYTES))
        sys.stdout.buffer.write(response)
        sys.stdout.buffer.flush()


def _read_message(stream: BinaryIO) -> bytes | None:
    length = stream.read(LENGTH_BYTES)
    return stream.read(int.from_bytes(length)) if length else None


def respond(request: PreparationRequest) -> PreparationResponse:
    """Parse, validate and render the outputs of a batch."""
    try:
        batch = _parse(request.batch)
    except InvalidRequest as error:
        return PreparationResponse(errors=[*error.details])
    rules = Rules(request.key_fields, identity_format=request.identity_format)
    identities = IdentityHasher(
        request.organization_id, request.group, request.key_fields, request.identity_format
    )
    prepared = prepare(batch, rules, identities, parse_all=True)
    outputs = [output for output in prepared.outputs if isinstance(output, PreparedOutput)]
    return PreparationResponse(
        [
            _encodable(output, _data_start(source))
            for output, source in zip(outputs, batch.parsed, strict=True)
        ],
        request_hashes=_request_hashes(request, batch),
        skipped=batch.skipped,
        fields=prepared.fields.fields,
    )


def _encodable(output: PreparedOutput, data_start: int) -> LargePreparedOutput:
    """Return the output for the response, with integers that are too long for it as text."""
    measures = output.fields.measures
    long = {
        index: str(measure)
        for index, measure in enumerate(measures)
        if type(measure) is int and not -(2**63) <= measure < 2**63
    }
    if long:
        short = [0 if index in long else measure for index, measure in enumerate(measures)]
        output = output._replace(fields=output.fields._replace(measures=short))
    return LargePreparedOutput(output, data_start, long)


def _parse(batch: LargeBatch) -> Batch:
    if not batch.positions:
        [text] = batch.texts
        return parse_json(text, batch.max_records, batch.options)
    lines = dict(zip(batch.positions, batch.texts, strict=True))
    return parse_lines(lines, batch.options)


def _data_start(output: Output) -> int:
    return len(b'{"source_url":%b,"data":' % json_text.encode(output.source_url))


def _request_hashes(request: PreparationRequest, batch: Batch) -> tuple[bytes, bytes] | None:
    if request.idempotency_key is None or not (batch.outputs or request.run_id):
        return None
    hashed = idempotent_request(request.group, request.idempotency_key, batch, request.run_id)
    return hashed.key_hash, hashed.request_hash


if __name__ == "__main__":
    main()
