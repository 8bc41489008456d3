"""Exports as CSV and Parquet: a process writes the file, which is sent when it is complete.

A table needs all columns before its first row, so the whole export is read first. The conversion
runs in a process of its own, because it would delay all other requests of the worker.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import msgspec

from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest, Overloaded, Unavailable
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore
from gleanery.service.foundation.security.vault import create_private_folder
from gleanery.service.resources.exports.unsent_files import UnsentFiles
from gleanery.tables import available_formats

_log = logging.getLogger("gleanery")

END = b"\n"
"""The line after the last output. Without it the export is incomplete."""

_PROGRAM = "gleanery.service.resources.exports.process"
_PROCESSES = 2  # per worker, of which one organization gets one
_ATTEMPTS = 10
_QUEUE_SECONDS = 60.0
_TOO_MANY = "Too many exports are being converted; try again, or export JSON lines (format=jsonl)"
_UNSENT = "Earlier exports are still being sent; try again, or export JSON lines (format=jsonl)"
_MIN_FREE_BYTES = 512 * 1024 * 1024
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
