"""The program of a worker process that a supervisor has started."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
import sys
from contextlib import suppress
from typing import cast

from gleanery.observability import logs
from gleanery.observability.metrics import SharedCounters
from gleanery.server.signals import exit_in_order
from gleanery.server.worker import Worker, create_worker, run_in_event_loop
from gleanery.server.worker_process import (
    ALIVE,
    LENGTH,
    REPORT_SECONDS,
    STARTED,
    WorkerStart,
)

_log = logging.getLogger("gleanery")


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
        run_in_event_loop(worker, _serve(worker, control))
    except Exception:
        _log.critical("a worker process failed", exc_info=True)
        sys.exit(1)


def _receive_start(control: socket.socket) -> WorkerStart:
    with control.makefile("rb") as messages:
        (length,) = LENGTH.unpack(messages.read(LENGTH.size))
        return cast(WorkerStart, pickle.loads(messages.read(length)))  # noqa: S301  (from our parent)


async def _serve(worker: Worker, control: socket.socket) -> None:
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
        await asyncio.sleep(REPORT_SECONDS)


def _send(control: socket.socket, message: bytes) -> None:
    with suppress(OSError):  # the supervisor is gone, or does not read now
        control.send(message)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
