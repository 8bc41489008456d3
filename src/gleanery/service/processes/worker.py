"""One process that serves requests: its limits, the application on a socket, and its program.

A service with one worker runs it in the main process. Otherwise a supervisor starts this module as
a program for each worker, and sends the settings over a control socket.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import pickle
import resource
import socket
import struct
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import uvloop

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.application import App, build_app
from gleanery.service.foundation.observability import logs
from gleanery.service.foundation.observability.metrics import CERTIFICATE_EXPIRY, SharedCounters
from gleanery.service.http import HttpServer
from gleanery.service.processes.certificates import Certificates, open_certificates
from gleanery.service.processes.signals import exit_in_order, handle_signals

_log = logging.getLogger("gleanery")
BACKLOG = 2048
LENGTH = struct.Struct("!I")
"""Precedes what the worker needs to start."""
STARTED, ALIVE = b"s", b"a"
"""Messages of a worker."""
_ALIVE_SECONDS = 1.0
_WAIT_REPORT_SECONDS = 1.0  # after which the log says for what a stop waits
_OTHER_FILES = 500  # open files of a worker in addition to its client connections
_MIN_FILES = 128
_RETURN_SECONDS = 10.0
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # from glibc's malloc.h
# How long the event loop waits for each busy thread. With the default of 5 ms the median of a
# small response was 3.1 ms next to the writer of large batches; with 0.5 ms it was 1.2 ms.
_SWITCH_SECONDS = 0.0005
# New objects before Python searches them for garbage. A batch makes thousands that live until it is
# stored, so the default of 700 finds nothing in many searches: 7 % of the time to store a batch.
_OBJECTS_PER_SEARCH = 10_000


class WorkerStart(NamedTuple):
    """What a worker needs to start."""

    settings: Settings
    number: int
    """Its number on this node, from 1. A replacement has the same number."""


class Worker:
    """Starts the application, serves, and stops in order."""

    def __init__(
        self,
        app: App,
        listener: socket.socket,
        shutdown_seconds: float,
        certificates: Certificates | None = None,
    ) -> None:
        self._app = app
        self._listener = listener
        self._shutdown_seconds = shutdown_seconds
        self._certificates = certificates
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    async def run(self, on_started: Callable[[], object] = lambda: None) -> None:
        """Serve until ``stop``. An exception means that the application could not start."""
        self._loop = asyncio.get_running_loop()
        await self._app.start()
        try:
            await self._serve(on_started)
        finally:
            await self._app.stop()

    async def _serve(self, on_started: Callable[[], object]) -> None:
        certificates = self._certificates
        tls_context = certificates.context if certificates else None
        server = HttpServer(self._app.registry, tls_context)
        await server.start(self._listener, BACKLOG)
        watcher = asyncio.create_task(certificates.watch()) if certificates else None
        on_started()
        await self._stopping.wait()
        _log.info("stopping")
        self._listener.close()
        report = asyncio.get_running_loop().call_later(_WAIT_REPORT_SECONDS, self._report_waiting)
        if cut_off := await server.stop(self._shutdown_seconds):
            _log.warning("ended requests in progress", extra={"requests": cut_off})
        report.cancel()
        if watcher is not None:
            watcher.cancel()

    def _report_waiting(self) -> None:
        _log.warning(
            "waiting for requests in progress; Ctrl-C ends them",
            extra={
                "requests": self._app.registry.running_tasks,
                "at_most_seconds": self._shutdown_seconds,
            },
        )

    # A signal handler or another thread may call the following methods.

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begins the stop."""
        self._call(self._stopping.set)

    def stop_now(self) -> None:
        """End the requests for which a stop waits."""
        self._call(self._app.registry.abort)

    def reload(self) -> None:
        """Reload the certificate."""
        if self._certificates is not None:
            self._call(self._certificates.reload)

    def _call(self, callback: Callable[[], object]) -> None:
        if self._loop is None:
            callback()
            return
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(callback)


def create_worker(
    settings: Settings, listener: socket.socket, counters: SharedCounters | None = None
) -> Worker:
    """Create the worker of this process. Workers share only the database and the counters."""
    _set_up_process()
    logs.configure(settings)
    settings = _fit_to_open_files(settings)
    app = build_app(settings, counters=counters)
    app.unsent_bytes.on_relief = _FreedMemory().return_soon
    certificates = open_certificates(settings)
    if certificates is not None:
        app.metrics.observe(CERTIFICATE_EXPIRY, lambda: certificates.expires)
    return Worker(app, listener, settings.shutdown_seconds, certificates)


def run_in_event_loop(worker: Worker, work: Coroutine[Any, Any, None]) -> None:
    """Do the work of a worker. SIGTERM and SIGINT stop it; SIGHUP reloads the certificate."""
    handle_signals(worker)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def _set_up_process() -> None:
    """Set memory, threads and garbage collection for a server."""
    _keep_freed_memory()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()  # modules and classes are not garbage, so they are not searched
    gc.set_threshold(_OBJECTS_PER_SEARCH)


def _keep_freed_memory() -> None:
    """Let the C library reuse the memory of a large response.

    By default it returns each block above 128 KiB to the system. The system then clears every
    page of the next block, which takes longer than to fill it.
    """
    with suppress(OSError, AttributeError):  # C libraries other than glibc
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 8 * 1024 * 1024)
        library.mallopt(_M_TRIM_THRESHOLD, 32 * 1024 * 1024)
        library.mallopt(_M_ARENA_MAX, 2)  # else each thread keeps the most that it ever needed


class _FreedMemory:
    """Returns the memory of a load that has ended to the system.

    The allocator keeps freed blocks between others that are in use. To return them takes some
    milliseconds, and the next responses need new ones. So that happens once in a while.
    """

    def __init__(self) -> None:
        self._is_scheduled = False

    def return_soon(self) -> None:
        """Return the memory in some seconds. Call this in the event loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_later(_RETURN_SECONDS, self._return)

    def _return(self) -> None:
        self._is_scheduled = False
        asyncio.get_running_loop().run_in_executor(None, _trim)


def _trim() -> None:
    with suppress(OSError, AttributeError):  # C libraries other than glibc
        ctypes.CDLL(None).malloc_trim(0)


def check_open_files() -> None:
    """Raise SettingsError if the system allows too few open files for any service."""
    allowed = _allowed_files()
    if allowed < _MIN_FILES:
        raise SettingsError(
            f"The limit on open files is {allowed}; the service needs at least {_MIN_FILES}: "
            "raise it with ulimit -n, or with LimitNOFILE= of systemd"
        )


def _fit_to_open_files(settings: Settings) -> Settings:
    """Raise the limit on open files. If that is not allowed, lower the limit on connections.

    A connection is one open file. Uploads and the database need others.
    """
    needed = settings.max_connections + _OTHER_FILES
    allowed = min(needed, _allowed_files())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == needed:
        return settings
    connections = min(settings.max_connections, max(allowed - _OTHER_FILES, allowed // 4))
    _log.warning(
        "the limit on open files lowers --max-connections: raise it with ulimit -n",
        extra={"open_files": allowed, "needed": needed, "max_connections": connections},
    )
    return replace(settings, max_connections=connections)


def _allowed_files() -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def main(control_descriptor: int, listener_descriptor: int, counters_descriptor: int) -> None:
    """Serve until the supervisor sends SIGTERM, or is gone."""
    exit_in_order()
    for descriptor in (control_descriptor, listener_descriptor, counters_descriptor):
        os.set_inheritable(descriptor, False)  # the processes of this worker may outlive it
    control = socket.socket(fileno=control_descriptor)
    listener = socket.socket(fileno=listener_descriptor)
    start = _receive_start(control)
    logs.configure(start.settings)
    counters = SharedCounters.attach(counters_descriptor, start.number)
    try:
        worker = create_worker(start.settings, listener, counters)
        run_in_event_loop(worker, _serve_supervised(worker, control))
    except Exception:
        _log.critical("a worker process failed", exc_info=True)
        sys.exit(1)


def _receive_start(control: socket.socket) -> WorkerStart:
    with control.makefile("rb") as messages:
        (length,) = LENGTH.unpack(messages.read(LENGTH.size))
        return WorkerStart(*pickle.loads(messages.read(length)))  # noqa: S301  (from our parent)


async def _serve_supervised(worker: Worker, control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    control.setblocking(False)

    def stop() -> None:
        """Stop, because the socket has ended: the supervisor is gone."""
        loop.remove_reader(control)
        worker.stop()

    loop.add_reader(control, stop)
    reports = loop.create_task(_report(control))
    await worker.run(lambda: _send(control, STARTED))
    reports.cancel()


async def _report(control: socket.socket) -> None:
    """Tell the supervisor each second that the event loop responds."""
    while True:
        _send(control, ALIVE)
        await asyncio.sleep(_ALIVE_SECONDS)


def _send(control: socket.socket, message: bytes) -> None:
    with suppress(OSError):  # the supervisor is gone, or does not read now
        control.send(message)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
