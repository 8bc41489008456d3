"""Limits of one worker process: memory that is kept, garbage, turns of threads, open files."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import resource
import sys
from dataclasses import replace

from gleanery.errors import SettingsError
from gleanery.settings import Settings

_log = logging.getLogger("gleanery")
_OTHER_FILES = 500  # open files of a worker beside its client connections
_MIN_FILES = 128
_RETURN_SECONDS = 10.0
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # from glibc's malloc.h
# How long the event loop waits for each busy thread. With the default of 5 ms the median of a
# small response was 3.1 ms beside the writer of large batches; with 0.5 ms it was 1.2 ms.
_SWITCH_SECONDS = 0.0005
# New objects before Python searches them for garbage. A batch makes thousands that live until it is
# stored, so the default of 700 finds nothing in many searches: 7 % of the time to store a batch.
_OBJECTS_PER_SEARCH = 10_000


def set_up_process() -> None:
    _keep_freed_memory()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()  # modules and classes are no garbage, so they are not searched
    gc.set_threshold(_OBJECTS_PER_SEARCH)


def _keep_freed_memory() -> None:
    """Let the C library reuse the memory of a large response.

    By default it returns each block above 128 KiB to the system. The system then clears every
    page of the next block, which takes longer than to fill it.
    """
    with contextlib.suppress(OSError, AttributeError):  # C libraries other than glibc
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 8 * 1024 * 1024)
        library.mallopt(_M_TRIM_THRESHOLD, 32 * 1024 * 1024)
        library.mallopt(_M_ARENA_MAX, 2)  # else each thread keeps the most that it ever needed


class FreedMemory:
    """Returns the memory of a load that has ended to the system.

    The allocator keeps freed blocks between others that are in use. To return them takes some
    milliseconds, and the next responses need new ones. So that happens once in a while.
    """

    def __init__(self) -> None:
        self._is_scheduled = False

    def return_soon(self) -> None:
        """Return the memory in some seconds. Call this in the event loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_later(_RETURN_SECONDS, self._return)

    def _return(self) -> None:
        self._is_scheduled = False
        asyncio.get_running_loop().run_in_executor(None, _trim)


def _trim() -> None:
    with contextlib.suppress(OSError, AttributeError):  # C libraries other than glibc
        ctypes.CDLL(None).malloc_trim(0)


def check_open_files() -> None:
    """Raise SettingsError if the system allows too few open files for any service."""
    allowed = _allowed_files()
    if allowed < _MIN_FILES:
        raise SettingsError(
            f"The limit on open files is {allowed}; the service needs at least {_MIN_FILES}: "
            "raise it with ulimit -n, or with LimitNOFILE= of systemd"
        )


def fit_to_open_files(settings: Settings) -> Settings:
    """Raise the limit on open files. If that is not allowed, lower the limit on connections.

    A connection is one open file. Uploads and the database need others.
    """
    needed = settings.max_connections + _OTHER_FILES
    allowed = min(needed, _allowed_files())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == needed:
        return settings
    connections = min(settings.max_connections, max(allowed - _OTHER_FILES, allowed // 4))
    _log.warning(
        "the limit on open files lowers --max-connections: raise it with ulimit -n",
        extra={"open_files": allowed, "needed": needed, "max_connections": connections},
    )
    return replace(settings, max_connections=connections)


def _allowed_files() -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard
