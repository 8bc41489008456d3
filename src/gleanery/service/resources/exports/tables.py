"""Exports as CSV and Parquet: a process writes the file, which is sent when it is complete.

A table needs all columns before its first row, so the whole export is read first. The conversion
runs in another process, because it would delay all other requests of the worker. That process runs
this module as its program. See ``docs/explanation/exports-and-tables.md``.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import weakref
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import msgspec

from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest, Overloaded, Unavailable
from gleanery.service.foundation.folders import create_private_folder
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore
from gleanery.tables import ExportWriter, available_formats, open_export
from gleanery.tables.export import ExportError

_log = logging.getLogger("gleanery")

END = b"\n"
"""The line after the last output. Without it the export is incomplete."""

_PROGRAM = "gleanery.service.resources.exports.tables"
_UNSENT_FILES = 4  # of the largest size, for all organizations together
_PROCESSES = 2  # per worker, of which one organization gets one
_ATTEMPTS = 10
_QUEUE_SECONDS = 60.0
_TOO_MANY = "Too many exports are being converted; try again, or export JSON lines (format=jsonl)"
_UNSENT = "Earlier exports are still being sent; try again, or export JSON lines (format=jsonl)"
_MIN_FREE_BYTES = 512 * 1024 * 1024
_MAX_MEMORY_BYTES = 4 * 1024**3  # of the process
_READ_BYTES = 1024 * 1024
_PIECE_BYTES = 128 * 1024  # sent at once, which delays other requests
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_", "PYTHON", "LD_", "DYLD_")  # no credentials
_ELSEWHERE = (
    "export JSON lines (format=jsonl), or use gleanery export, which converts where it runs"
)
_NO_SPACE = f"The service has too little free disk space for this format: {_ELSEWHERE}"
_NOT_CONVERTED = f"The export cannot be converted now; try again, or {_ELSEWHERE}"
_NO_PARQUET = (
    "The service has no library for Parquet: ask the operator to run "
    "pip install 'gleanery[server,parquet]' (in a clone '.[server,parquet]'), "
    "or choose another format"
)


class TableRequest(msgspec.Struct):
    """What to write, and where. It is the first line of the input of the process."""

    target: str
    format: Literal["csv", "parquet"]
    metadata: dict[str, Any]
    """What Parquet holds about the whole file."""
    max_bytes: int
    min_free_bytes: int


class Failure(msgspec.Struct):
    """Why the process has written no file."""

    kind: Literal["size", "space", "other"]
    reason: str = ""


class TableFile(NamedTuple):
    """A complete file, which has no name any more: it is gone when it is closed."""

    file: BinaryIO
    size: int

    async def pieces(self) -> AsyncGenerator[bytes | memoryview]:
        with self.file:
            while piece := await asyncio.to_thread(self.file.read, _PIECE_BYTES):
                yield piece


def require_format(name: str) -> None:
    """Raise InvalidRequest if the service cannot write this format."""
    if name not in available_formats():
        detail = ErrorDetail(("query", "format"), _NO_PARQUET, "library_missing")
        raise InvalidRequest(detail)


class TableExports:
    """Conversions of a worker; organizations get them in turns."""

    def __init__(self, data: Path, max_bytes: int) -> None:
        self._data = data
        self._max_bytes = max_bytes
        self._turns = FairSemaphore(_PROCESSES, _QUEUE_SECONDS, _TOO_MANY)
        self._unsent = UnsentFiles(max_bytes)

    @asynccontextmanager
    async def turn(self, organization_id: int) -> AsyncIterator[None]:
        """Wait until a process may run. Raises Overloaded."""
        async with self._turns.held_for(organization_id):
            yield

    async def convert(
        self,
        organization_id: int,
        format: Literal["csv", "parquet"],  # noqa: A002
        metadata: dict[str, Any],
        lines: AsyncIterator[bytes | memoryview],
    ) -> TableFile:
        """Write the lines as a table. Raises InvalidRequest if the file is too large.

        Raises Overloaded while clients have not read too many bytes of earlier files.
        """
        if not self._unsent.can_add(organization_id):
            raise Overloaded(_UNSENT)
        with _folder(self._data) as folder:
            target = folder / f"outputs.{format}"
            request = TableRequest(str(target), format, metadata, self._max_bytes, _MIN_FREE_BYTES)
            failure = await self._run(request, lines)
            if failure is not None:
                raise self._error(failure)
            file = target.open("rb")
            size = os.fstat(file.fileno()).st_size
            self._unsent.add(organization_id, file, size)
            return TableFile(file, size)

    async def _run(
        self, request: TableRequest, lines: AsyncIterator[bytes | memoryview]
    ) -> Failure | None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _PROGRAM),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,  # its messages could contain values
            env={name: text for name, text in os.environ.items() if name.startswith(_ENVIRONMENT)},
        )
        try:
            return await self._exchange(process, request, lines)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _exchange(
        self, process: Process, request: TableRequest, lines: AsyncIterator[bytes | memoryview]
    ) -> Failure | None:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, sent = process.stdin, 0
        with suppress(ConnectionError):  # it has failed, and says why on its output
            stdin.write(msgspec.json.encode(request) + b"\n")
            async for piece in lines:
                sent += len(piece)
                if sent > self._max_bytes:
                    return Failure("size")
                stdin.write(piece)
                await stdin.drain()
            stdin.write(END)
            stdin.write_eof()
        answer = await process.stdout.read()
        if await process.wait() != 0:
            return Failure("other", f"the process ended with {process.returncode}")
        return msgspec.json.decode(answer, type=Failure) if answer else None

    def _error(self, failure: Failure) -> InvalidRequest | Unavailable:
        if failure.kind == "size":
            limit = self._max_bytes // 2**20
            msg = f"An export in this format may have at most {limit} MiB: {_ELSEWHERE}"
            return InvalidRequest(ErrorDetail(("query", "format"), msg, "too_large"))
        if failure.kind == "space":
            return Unavailable(_NO_SPACE)
        _log.error("an export could not be converted", extra={"reason": failure.reason})
        return Unavailable(_NOT_CONVERTED)


@contextmanager
def _folder(data: Path) -> Iterator[Path]:
    """Create a folder for one conversion, and delete it with everything in it.

    It is locked as long as this process uses it. So the next conversion deletes those that a killed
    process has left.
    """
    parent = data / "exports" if data.is_dir() else Path(tempfile.gettempdir(), "gleanery-exports")
    try:
        create_private_folder(parent)
        _delete_abandoned(parent)
        folder, lock = _create_locked(parent)
    except OSError as error:
        _log.error("there is no folder for exports", exc_info=error)
        raise Unavailable(_NOT_CONVERTED) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _create_locked(parent: Path) -> tuple[Path, int]:
    for _ in range(_ATTEMPTS):
        folder = Path(tempfile.mkdtemp(dir=parent))
        try:
            lock = _lock(folder)
        except OSError:  # for example, the process has too many open files
            folder.rmdir()
            raise
        if lock is not None:
            if folder.is_dir():
                return folder, lock
            os.close(lock)  # another process has taken it for an abandoned one
    raise OSError("no folder for an export could be locked")


def _delete_abandoned(parent: Path) -> None:
    for folder in parent.iterdir():
        lock = None
        with suppress(OSError):
            lock = _lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder. Return None if another process or conversion uses it, or if it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


# --- files that are not sent yet ----------------------------------------------------------------


class UnsentFiles:
    """The files of a worker that have no name any more: each takes disk space until it is closed.

    An organization gets another file while its files have less than the size of one file, and less
    than is free. So a slow client uses up the share of its organization, and not that of others.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._free = _UNSENT_FILES * max_bytes
        self._held: dict[int, int] = {}  # by organization

    def can_add(self, organization_id: int) -> bool:
        return self._held.get(organization_id, 0) < min(self._max_bytes, self._free)

    def add(self, organization_id: int, file: BinaryIO, size: int) -> None:
        """Count a file until it is closed, even if the response is never sent."""
        self._held[organization_id] = self._held.get(organization_id, 0) + size
        self._free -= size
        weakref.finalize(file, self._remove, organization_id, size)

    def _remove(self, organization_id: int, size: int) -> None:
        self._free += size
        rest = self._held[organization_id] - size
        if rest:
            self._held[organization_id] = rest
        else:
            del self._held[organization_id]


# --- the program of the process -----------------------------------------------------------------


class _NoSpace(Exception):
    """The disk has less free space than the operator needs for other things."""


def main() -> None:
    """Convert the JSON lines on the input to one file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process ends when its input is closed
    lines = sys.stdin.buffer
    request = msgspec.json.decode(lines.readline(), type=TableRequest)
    limits = (
        (resource.RLIMIT_AS, _MAX_MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, request.max_bytes),
    )
    for kind, amount in limits:
        with suppress(ValueError, OSError):  # the system does not support this limit
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
