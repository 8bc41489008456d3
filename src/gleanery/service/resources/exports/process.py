"""The process that converts one export to CSV or Parquet: its input is JSON lines."""

from __future__ import annotations

import contextlib
import errno
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from gleanery.service.resources.exports.tables import END, Failure, TableRequest
from gleanery.tables import ExportWriter, open_export
from gleanery.tables.export import ExportError

_MAX_MEMORY_BYTES = 4 * 1024**3
_READ_BYTES = 1024 * 1024


class _NoSpace(Exception):
    """The disk has less free space than the operator needs for other things."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process ends when its input is closed
    lines = sys.stdin.buffer
    request = msgspec.json.decode(lines.readline(), type=TableRequest)
    limits = (
        (resource.RLIMIT_AS, _MAX_MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, request.max_bytes),
    )
    for kind, amount in limits:
        with contextlib.suppress(ValueError, OSError):  # the system does not support this limit
            resource.setrlimit(kind, (amount, resource.getrlimit(kind)[1]))
    failure = _convert(lines, request)
    if failure is not None:
        sys.stdout.buffer.write(msgspec.json.encode(failure))


def _convert(lines: BinaryIO, request: TableRequest) -> Failure | None:
    """Write the file. Return why that failed."""

    def check_space(_: int = 0) -> None:
        if shutil.disk_usage(Path(request.target).parent).free < request.min_free_bytes:
            raise _NoSpace

    try:
        with open_export(request.target, request.format) as writer:
            writer.metadata = request.metadata
            if _write_all(lines, writer, check_space):
                writer.finish(check_space)
    except _NoSpace:
        return Failure("space")
    except ExportError as error:
        is_too_large = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EFBIG
        return Failure("size" if is_too_large else "other", str(error))
    return None


def _write_all(lines: BinaryIO, writer: ExportWriter, check_space: Callable[[], None]) -> bool:
    """Write all outputs. Return False if the input ended before the export did."""
    while found := lines.readlines(_READ_BYTES):
        check_space()
        is_end = found[-1] == END
        items = [line[:-1] for line in (found[:-1] if is_end else found)]
        writer.write(items, are_new=True)  # an export has each output once
        if is_end:
            return True
    return False


if __name__ == "__main__":
    main()
