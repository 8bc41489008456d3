"""Signals of a serving process: stop, reload, and those that have no effect.

Python ignores SIGPIPE. SIGQUIT and SIGABRT end the process at once, with a core dump where that is
allowed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Protocol

# The default action would end the process without an orderly stop. Some tools send SIGUSR1 to make
# a server reopen its log. Programs that the service starts inherit that these are ignored.
_WITHOUT_EFFECT = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


class Stoppable(Protocol):
    """A process that serves. A signal handler calls these methods."""

    @property
    def is_stopping(self) -> bool:
        """True if ``stop`` was called."""

    def stop(self) -> None:
        """Stop in order: waits for the requests in progress."""

    def stop_now(self) -> None:
        """End the requests in progress."""

    def reload(self) -> None:
        """Reload the certificate."""


def exit_in_order() -> None:
    """End the process with status 0 on SIGINT and SIGTERM, until there is an event loop.

    SIGHUP has no effect then: the certificate is read later.
    """
    for number in _WITHOUT_EFFECT:
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _exit())
    _handle_hang_up(_exit, lambda: None)


def _exit() -> None:
    raise SystemExit(0)


def handle_signals(process: Stoppable) -> None:
    """Stop on SIGINT and SIGTERM, end the requests on a SIGINT during the stop, reload on SIGHUP.

    See ``_handle_hang_up`` for a terminal that is closed.
    """

    def interrupt() -> None:
        if process.is_stopping:
            process.stop_now()
        else:
            process.stop()

    signal.signal(signal.SIGTERM, lambda *_: process.stop())
    signal.signal(signal.SIGINT, lambda *_: interrupt())
    _handle_hang_up(process.stop, process.reload)


def _handle_hang_up(stop: Callable[[], object], reload: Callable[[], object]) -> None:
    """Call ``reload`` on SIGHUP.

    The kernel also sends SIGHUP when the terminal of the service is closed. Then the service stops:
    nobody could find it any more. A SIGHUP that the caller ignores stays ignored, as with nohup.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return
    had_terminal = _has_terminal()

    def hang_up() -> None:
        if had_terminal and not _has_terminal():
            stop()
        else:
            reload()

    signal.signal(signal.SIGHUP, lambda *_: hang_up())


def _has_terminal() -> bool:
    """Return True if the process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
