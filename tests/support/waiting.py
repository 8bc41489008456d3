"""Waits for a condition, with a deadline that no busy machine reaches."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_SECONDS = 120  # no busy machine takes so long
_PAUSE_SECONDS = 0.02


def wait_until(condition: Callable[[], object], seconds: float = TIMEOUT_SECONDS) -> None:
    """Returns when the condition holds, and fails after the given time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not true after {seconds} seconds"
        time.sleep(_PAUSE_SECONDS)


def wait_for_next_second() -> None:
    """Waits until dates in whole seconds differ from those of now."""
    now = int(time.time())
    wait_until(lambda: int(time.time()) > now)
