"""The supervisor: keeps the worker processes of a node running.

A worker runs ``worker.py`` as a program. The supervisor sends it the settings over a control
socket. The worker sends a byte each second. The end of the socket tells each of them that the other
one is gone.

See ``docs/explanation/processes-and-workers.md``.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import signal
import socket
import subprocess
import sys
import time
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gleanery.common.settings import Settings
from gleanery.service.foundation.observability.metrics import SharedCounters
from gleanery.service.processes.signals import handle_signals
from gleanery.service.processes.worker import LENGTH, STARTED, WorkerStart

_log = logging.getLogger("gleanery")
_FIRST_DELAY = 0.5
_MAX_DELAY = 10.0
_STABLE_SECONDS = 60.0  # a worker that lived so long is replaced without a delay
_PROGRAM = "gleanery.service.processes.worker"
_CHECK_SECONDS = 5.0
_MAX_SILENT_CHECKS = 6  # a worker that does not respond for 30 seconds is replaced
_KILL_SECONDS = 10.0  # beyond the time for the requests in progress


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
        text = pickle.dumps(tuple(start))  # its class has another name in the worker: __main__
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


class _WorkerEnd(NamedTuple):
    """The end of a worker process, or of the attempt to start one."""

    fields: dict[str, object]
    """For the log."""
    age: float
    """Seconds for which it ran."""


class Supervisor:
    """Starts the workers, replaces those that end, and stops them in order."""

    _loop: asyncio.AbstractEventLoop

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self._settings = settings
        self._listener = listener
        self._counters = SharedCounters.create(settings.workers)
        self._workers: dict[int, WorkerProcess] = {}
        self._has_served = False
        self._has_failed = False
        self._stopping = asyncio.Event()

    async def run(self) -> bool:
        """Run until a signal stops it. Return False if no worker could start."""
        self._loop = asyncio.get_running_loop()
        handle_signals(self)
        numbers = range(1, self._settings.workers + 1)
        await asyncio.gather(self._stop_workers(), *map(self._keep_running, numbers))
        return not self._has_failed

    async def _keep_running(self, number: int) -> None:
        """Start a worker, and another one whenever it ends."""
        delay = 0.0
        while not self._stopping.is_set():
            end = await self._run_worker(number)
            if self._stopping.is_set():
                return
            self._has_served |= any(one.has_started for one in self._workers.values())
            if not self._has_served:
                self._fail(end)
                return
            self._counters.count_restart(number)
            delay = _next_delay(delay, end.age)
            _log.error(
                "a worker process ended; another one starts",
                extra={"worker": number, **end.fields, "delay": delay},
            )
            await self._sleep(delay)

    async def _run_worker(self, number: int) -> _WorkerEnd:
        """Start a worker, and wait for its end."""
        try:
            worker = self._workers[number] = await WorkerProcess.start(
                WorkerStart(self._settings, number), self._listener, self._counters
            )
        except (OSError, RuntimeError) as error:  # no free descriptor, memory, process or thread
            return _WorkerEnd({"reason": str(error)}, 0.0)
        if self._stopping.is_set():  # the worker started while the others stopped
            await worker.stop(self._settings.shutdown_seconds)
        status = await worker.wait()
        return _WorkerEnd({"pid": worker.pid, "status": status}, worker.age)

    def _fail(self, end: _WorkerEnd) -> None:
        """End the service: what prevents the first start prevents every other."""
        self._has_failed = True
        _log.critical("no worker process could start", extra=end.fields)
        self._stopping.set()

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _stop_workers(self) -> None:
        await self._stopping.wait()
        self._listener.close()
        seconds = self._settings.shutdown_seconds
        await asyncio.gather(*(worker.stop(seconds) for worker in self._workers.values()))

    def _stop_workers_now(self) -> None:
        for worker in self._workers.values():
            worker.stop_now()

    def _reload_workers(self) -> None:
        for worker in self._workers.values():
            worker.reload()

    # A signal handler calls the following methods.

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begins the stop of all workers."""
        self._call(self._stopping.set)

    def stop_now(self) -> None:
        """Lets the workers end the requests for which they wait."""
        self._call(self._stop_workers_now)

    def reload(self) -> None:
        """Lets the workers reload their certificates."""
        self._call(self._reload_workers)

    def _call(self, callback: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(callback)


def _next_delay(delay: float, age: float) -> float:
    """Return the delay before the next start. It grows while workers end soon."""
    if age >= _STABLE_SECONDS:
        return 0.0
    return min(max(_FIRST_DELAY, delay * 2), _MAX_DELAY)
