"""Signals of a serving process: stop, and reload."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def exit_in_order() -> None:
    """End the process with status 0 on SIGINT and SIGTERM, until there is an event loop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _exit())


def _exit() -> None:
    raise SystemExit(0)


def handle_signals(stop: Callable[[], object], reload: Callable[[], object]) -> None:
    """Call ``stop`` on SIGINT and SIGTERM, ``reload`` on SIGHUP.

    The kernel also sends SIGHUP when the terminal of the service is closed. Then the service stops:
    nobody could find it any more. A SIGHUP that the caller ignores stays ignored, as with nohup.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop())
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
    """True if the process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
