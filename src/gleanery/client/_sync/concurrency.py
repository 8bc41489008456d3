"""Waiting, threads, work next to that of the caller, and owners of connections, without asyncio.

The twin in ``_async`` is written by hand.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from gleanery.client.requests import Request

if TYPE_CHECKING:
    import ssl
    import threading

    import httpx2

P = ParamSpec("P")
T = TypeVar("T")

Items = Iterable[Any]
"""What a method takes items from."""


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in this thread: it blocks nobody else."""
    return function(*args, **kwargs)


def connection_owner() -> int:
    """Return the process: after a fork, both would write to the same connection."""
    return os.getpid()


def is_ended(owner: int) -> bool:
    return owner != os.getpid()


def new_http_transport(url: str, context: ssl.SSLContext) -> httpx2.BaseTransport | None:
    """Return connections that read large bodies faster than those of httpx2, if possible."""
    from gleanery.client.direct_transport import new_transport

    return new_transport(url, context)


def head_of(request: Request) -> Request | None:
    """Return None: a response before the end of a request is not lost."""
    return None


def iterate(items: Items) -> Iterable[Any]:
    """Return the items, which are of one kind only."""
    return items


class Repetition:
    """Calls a function again and again, until it returns None instead of the seconds to wait."""

    def __init__(self, step: Callable[[], float | None]) -> None:
        import threading  # only leases need it

        self._step = step
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, delay: float) -> None:
        """Make the first call after this delay. The thread does not keep the program alive."""
        import threading

        self._thread = threading.Thread(target=self._run, args=(delay,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the calls. Wait for one that runs."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, delay: float | None) -> None:
        while delay is not None and not self._stopped.wait(delay):
            delay = self._step()
