"""Waiting, threads and owners of connections, without asyncio.

The twin in ``_async`` is written by hand.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

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


def iterate(items: Items) -> Iterable[Any]:
    """Return the items, which are of one kind only."""
    return items
