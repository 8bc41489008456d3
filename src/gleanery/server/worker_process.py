"""A worker process as its supervisor sees it: start, messages, stop.

The supervisor sends the settings over a control socket. The worker sends a byte each second. The
end of the socket tells each of them that the other one is gone.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import signal
import socket
import struct
import subprocess
import sys
import time
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import Process
from contextlib import suppress
from typing import NamedTuple

from gleanery.observability.metrics import SharedCounters
from gleanery.settings import Settings

_log = logging.getLogger("gleanery")

LENGTH = struct.Struct("!I")
"""Precedes what the worker needs to start."""
STARTED, ALIVE = b"s", b"a"
"""Messages of a worker."""
REPORT_SECONDS = 1.0
_PROGRAM = "gleanery.server.worker_program"
_CHECK_SECONDS = 5.0
_MAX_SILENT_CHECKS = 6  # a worker that does not respond for 30 seconds is replaced
_KILL_SECONDS = 10.0  # beyond the time for the requests in progress


class WorkerStart(NamedTuple):
    """What a worker needs to start."""

    settings: Settings
    number: int
    """Its number on this node, from 1. A replacement has the same number."""


class WorkerProcess:
    """A running worker process."""

    def __init__(self, process: Process, reader: StreamReader, writer: StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._started_at = time.monotonic()
        self.has_started = False
        """True if the worker has served."""

    @classmethod
    async def start(
        cls, start: WorkerStart, listener: socket.socket, counters: SharedCounters
    ) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = (theirs.fileno(), listener.fileno(), counters.fileno())
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-X", "utf8", "-m", _PROGRAM, *map(str, descriptors)),
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
                start_new_session=True,  # Ctrl-C reaches the supervisor only, which stops in order
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        text = pickle.dumps(start)
        writer.write(LENGTH.pack(len(text)) + text)
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def age(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._started_at

    async def wait(self) -> int:
        """Wait for the end, and return the status. Kill a worker that does not respond."""
        try:
            while not self._reader.at_eof():
                await self._receive()
        except TimeoutError:
            _log.error("a worker process does not respond, and is killed", extra={"pid": self.pid})
            self.kill()
        except OSError:  # killed before it has read its settings
            pass
        finally:
            self._writer.close()
        return await self._process.wait()

    async def _receive(self) -> None:
        """Wait for a message. Raise TimeoutError if there is none for several checks.

        One long wait would also end when the whole machine was suspended.
        """
        for _ in range(_MAX_SILENT_CHECKS):
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    self._note(await self._reader.read(1024))
                    return
        raise TimeoutError

    def _note(self, messages: bytes) -> None:
        if STARTED in messages:
            self.has_started = True
            _log.info("a worker process serves", extra={"pid": self.pid})

    def reload(self) -> None:
        """Lets the worker reload its certificate. One that is starting reads the new files."""
        if self.has_started:
            self._send(signal.SIGHUP)

    async def stop(self, shutdown_seconds: float) -> None:
        """Stop the worker in order. Kills it if that takes too long."""
        self._send(signal.SIGTERM)
        try:
            async with asyncio.timeout(shutdown_seconds + _KILL_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()

    def stop_now(self) -> None:
        """End the requests for which the stop waits."""
        self._send(signal.SIGINT)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
