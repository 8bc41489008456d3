"""Times of leases: the clock of a holder, and when it renews its lease."""

from __future__ import annotations

import os
import socket
import sys
import time

from gleanery.client.errors import (
    ClientError,
    Conflict,
    ConnectionFailed,
    ServerError,
    TimedOut,
    Unavailable,
)

_SHORTEST_PAUSE = 0.5
_LONGEST_RENEWAL = 10.0
_POLL_SECONDS = 1.0
_SHORTEST_POLL = 0.1


def now() -> float:
    """Return the seconds of a clock that never jumps, and that runs while the machine sleeps."""
    if sys.platform == "win32":
        return time.monotonic()
    # On macOS, CLOCK_MONOTONIC runs while the machine sleeps, and time.monotonic() does not.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def pause(seconds_left: float) -> float:
    """Return the seconds until the next renewal.

    A lease is renewed after a third of its time. After a failure, a third of the rest follows.
    """
    return max(seconds_left / 3, _SHORTEST_PAUSE)


def renewal_timeout(seconds_left: float) -> float:
    """Return the timeout of a renewal, which leaves time for another one."""
    return min(pause(seconds_left), _LONGEST_RENEWAL)


def poll_delay(retry_after: float | None, wait_left: float) -> float:
    """Return the seconds until the next attempt to acquire a lease that another holder has."""
    asked = _POLL_SECONDS if retry_after is None else max(retry_after, _SHORTEST_POLL)
    return min(asked, wait_left)


def default_holder() -> str:
    """Return the name that people see in the list of leases: the machine and the process."""
    return f"{socket.gethostname()} {os.getpid()}"


def is_uncertain(error: ClientError) -> bool:
    """Return True if an attempt to acquire a lease may have succeeded without a response."""
    if isinstance(error, Conflict):  # the holder may be an earlier attempt
        return error.attempts > 1
    return isinstance(error, ConnectionFailed | TimedOut | ServerError | Unavailable)


def explain_lost_response(error: ClientError, seconds: int) -> None:
    """Add to the error of an acquisition what happens if a response was lost."""
    error.add_note(
        "The service may have granted the lease, although the response was lost. That lease ends "
        f"by itself, {seconds} seconds later."
    )
