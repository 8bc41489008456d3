"""One process that serves requests: the application on a socket, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import uvloop

from gleanery.api.app import App, build_app
from gleanery.http import HttpServer
from gleanery.observability import logs
from gleanery.observability.metrics import SharedCounters
from gleanery.observability.worker_metrics import CERTIFICATE_EXPIRY
from gleanery.server import process_limits
from gleanery.server.certificates import Certificates, open_certificates
from gleanery.server.signals import handle_signals
from gleanery.settings import Settings

_log = logging.getLogger("gleanery")
BACKLOG = 2048
_REPORT_SECONDS = 1.0  # after which the log says for what a stop waits


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
        report = asyncio.get_running_loop().call_later(_REPORT_SECONDS, self._report_waiting)
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
    process_limits.set_up_process()
    logs.configure(settings)
    settings = process_limits.fit_to_open_files(settings)
    app = build_app(settings, counters=counters)
    app.unsent_bytes.on_relief = process_limits.FreedMemory().return_soon
    certificates = open_certificates(settings)
    if certificates is not None:
        app.metrics.observe(CERTIFICATE_EXPIRY, lambda: certificates.expires)
    return Worker(app, listener, settings.shutdown_seconds, certificates)


def run_in_event_loop(worker: Worker, work: Coroutine[Any, Any, None]) -> None:
    """Do the work of a worker. SIGTERM and SIGINT stop it; SIGHUP reloads the certificate."""
    handle_signals(worker)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)
