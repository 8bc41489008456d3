"""Pages of outputs as JSON text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from gleanery.client.exports.errors import ExportFailed

Item = bytes | msgspec.Raw
"""JSON text of one output. A Raw, as the client decodes a page, need not be copied."""

T = TypeVar("T")


def join_lines(items: Sequence[Item]) -> bytes:
    """Return one line per output. JSON text of the service has no line breaks."""
    return b"\n".join((*items, b"")) if items else b""


def read_lines(decoder: msgspec.json.Decoder[T], lines: bytes) -> list[T]:
    """Decode each line, or say that the service has sent something else than outputs."""
    try:
        return decoder.decode_lines(lines)
    except msgspec.MsgspecError as error:
        raise ExportFailed(
            f"The service has sent something that is not an output: {error}. "
            "Check its version and the URL"
        ) from None
