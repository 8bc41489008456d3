"""Child processes on loopback: free ports, and waits for a condition with a timeout."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

TIMEOUT = 300.0
"""Seconds. Generous, because the machine may be busy with other work."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def accepts_connections(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port)):
            return True
    except OSError:
        return False


def wait_until(condition: Callable[[], object], timeout: float = TIMEOUT) -> float:
    """Wait until the condition holds, and return the seconds it took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > timeout:
            raise TimeoutError(f"condition not met within {timeout:g} s: {condition}")
        time.sleep(0.02)
    return time.monotonic() - start


def is_alive(pid: int) -> bool:
    """Return True unless the process is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
