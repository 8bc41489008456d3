"""The process that prepares large batches: each message on its input is one batch."""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
from typing import BinaryIO

import msgspec

from gleanery.service.foundation.errors import InvalidRequest
from gleanery.service.foundation.values import json_text
from gleanery.service.resources.outputs.batch_bodies import parse_json, parse_lines
from gleanery.service.resources.outputs.batches import Batch, LargeBatch
from gleanery.service.resources.outputs.hashes import IdentityHasher
from gleanery.service.resources.outputs.large_batches import (
    LENGTH_BYTES,
    LargePreparedOutput,
    PreparationRequest,
    PreparationResponse,
)
from gleanery.service.resources.outputs.models import Output
from gleanery.service.resources.outputs.preparation import (
    PreparedOutput,
    idempotent_request,
    prepare,
)
from gleanery.service.resources.outputs.rules import Rules

_MAX_MEMORY_BYTES = 4 * 1024**3

_decode_request = msgspec.msgpack.Decoder(PreparationRequest).decode


def main() -> None:
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
    if request.idempotency_key is None or not batch.outputs:
        return None
    hashed = idempotent_request(request.group, request.idempotency_key, batch)
    return hashed.key_hash, hashed.request_hash


if __name__ == "__main__":
    main()
