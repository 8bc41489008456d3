"""Signals to stop, during work that must not be interrupted at every point."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

_NUMBERS = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}


@contextmanager
def blocked_in_new_threads() -> Iterator[None]:
    """Block the signals to stop in each thread that is started here.

    The kernel may deliver a signal to any thread that does not block it. Python handles it in the
    main thread, but a delivery to another thread does not wake that. Windows has no signal masks.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)  # a thread inherits the mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


class Stopped(BaseException):
    """The user or the system asks the command to stop. It has the exit status."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number


class StopSignals:
    """Raises Stopped for Ctrl-C, SIGTERM and SIGHUP, but only where the work allows it.

    A signal that comes elsewhere takes effect at the next such point. With ``second_ends``, a
    second signal takes effect at once. One that is ignored, as with nohup, stays so. Use it in the
    main thread.
    """

    def __init__(self, *, second_ends: bool = False) -> None:
        self.received: int | None = None
        """Number of the signal."""
        self._second_ends = second_ends
        self._is_allowed = False

    def __enter__(self) -> Self:
        self._previous = {
            number: signal.signal(number, self._receive)
            for number in _NUMBERS
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let signals interrupt the block."""
        self._is_allowed = True
        try:
            self._raise_if_received()
            yield
        finally:
            self._is_allowed = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        is_urgent = self._second_ends and self.received is not None
        self.received = number
        if self._is_allowed or is_urgent:
            self._raise_if_received()

    def _raise_if_received(self) -> None:
        if self.received is not None:
            self._is_allowed = False
            raise Stopped(self.received)
