"""Child processes on loopback: free ports, waits with a timeout, and an end with their parent.

As a program, this module is the helper that ends the children of a parent that has ended. So it
imports nothing but the standard library.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
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


# --- an end with the parent ----------------------------------------------------------------------

_MARK = "ENDS_WITH_PROCESS"
_PROCESSES = Path("/proc")
_SHUTDOWN_SECONDS = 5.0  # for PostgreSQL, which removes its shared memory


def end_children_with_this_process() -> None:
    """End all processes that are started from now on when this process ends, however it ends.

    A variable of the environment marks them, so that processes in the background and those of
    other users are found as well. A helper process notices the end by a pipe: that works after
    SIGKILL, too, and whichever thread has started a child. It needs Linux's /proc.
    """
    if not Path(_PROCESSES, "self", "environ").exists():
        return
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    reading_end, _ = os.pipe()  # the other end is open in this process only, until it ends
    unused = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_WRONLY, 0) for each in (1, 2)]
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", __file__, mark],
        {name: value for name, value in os.environ.items() if name != _MARK},
        file_actions=[(os.POSIX_SPAWN_DUP2, reading_end, 0), *unused],
        setsid=True,  # else a Ctrl-C would end the helper
    )
    os.close(reading_end)
    os.environ[_MARK] = mark


def _end_marked_processes(mark: str) -> None:
    """Wait for the end of the standard input, then end the processes with the mark."""
    sys.stdin.buffer.read()
    last_moment = time.monotonic() + _SHUTDOWN_SECONDS
    while found := _with_descendants(_marked_processes(mark)):
        for pid in found:
            with suppress(OSError):  # it has ended in the meantime
                is_server = Path(_PROCESSES, str(pid), "comm").read_text() == "postgres\n"
                orderly = is_server and time.monotonic() < last_moment
                os.kill(pid, signal.SIGQUIT if orderly else signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)  # it may be frozen
        time.sleep(0.05)


def _marked_processes(mark: str) -> list[int]:
    text, found = f"{_MARK}={mark}".encode(), []
    for process in _PROCESSES.glob("[1-9]*"):
        with suppress(OSError):  # it has ended, or belongs to somebody else
            if text in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def _with_descendants(pids: Iterable[int]) -> set[int]:
    """Return the processes and their descendants. PostgreSQL overwrites what marks its children."""
    found, new = set[int](), set(pids)
    while new:
        found |= new
        new = {child for pid in new for child in _children(pid)} - found
    return {pid for pid in found if is_alive(pid)}


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        tasks = Path(_PROCESSES, str(pid), "task").glob("*/children")
        return [int(child) for task in tasks for child in task.read_text().split()]
    return []


if __name__ == "__main__":
    _end_marked_processes(sys.argv[1])
