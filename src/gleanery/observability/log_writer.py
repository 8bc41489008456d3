"""Queue of log lines: a slow reader of the log never delays a request."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO

_MAX_QUEUED_BYTES = 1024 * 1024
# Several processes write to the same pipe. A write of at most this size is not split.
_MAX_WRITE_BYTES = select.PIPE_BUF
_BATCH_SECONDS = 0.05  # lines of this time are written together


class LogWriter:
    """Writes lines to a stream, such as standard error, in a thread of its own.

    A line that does not fit into the queue is dropped and counted. So is a line that cannot be
    written, because the reader has gone or the disk is full. The stream stays a blocking file:
    other processes share it.
    """

    def __init__(self, stream: IO[str] | None, describe_dropped: Callable[[int], bytes]) -> None:
        self.stream = stream
        """Takes the lines; None if nobody reads them."""
        self.describe_dropped = describe_dropped
        """Returns the line that reports a number of dropped lines."""
        self._start_empty()
        os.register_at_fork(after_in_child=self._start_empty)

    def _start_empty(self) -> None:
        """Forget the lines and the thread, which belong to the parent process after a fork."""
        # The lock is reentrant, because a signal handler may log while the same thread does.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._lines: list[bytes] = []
        self._queued_bytes = 0  # includes the lines that the thread is writing
        self.dropped_lines = 0
        self._unreported_lines = 0
        self._is_in_line = False  # True after a write that ended inside a line
        self._thread: threading.Thread | None = None

    def write(self, line: bytes) -> None:
        """Add a line to the queue, or drop it. Never waits."""
        with self._lock:
            queued_bytes = self._queued_bytes + len(line)
            if queued_bytes > _MAX_QUEUED_BYTES or not (self._thread or self._start_thread()):
                self._drop(1)
                return
            self._queued_bytes = queued_bytes
            if not self._lines:
                self._changed.notify_all()
            self._lines.append(line)

    def flush(self, seconds: float) -> None:
        """Wait until all lines are written, but not longer than this."""
        with self._lock:
            self._changed.wait_for(lambda: not self._queued_bytes, seconds)

    def _start_thread(self) -> bool:
        """Start the thread that writes. Return False if the system refuses."""
        thread = threading.Thread(target=self._run, name="log", daemon=True)
        with suppress(RuntimeError):  # too many threads, or the interpreter is ending
            thread.start()
            self._thread = thread
        return self._thread is not None

    def _drop(self, lines: int) -> None:
        with self._lock:
            self.dropped_lines += lines
            self._unreported_lines += lines

    def _run(self) -> None:
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._lines)
            time.sleep(_BATCH_SECONDS)
            with self._lock:
                lines, self._lines = self._lines, []
            are_written = [self._write(batch) for batch in _batches(lines)]
            if all(are_written):
                self._report_dropped()
            with self._lock:
                self._queued_bytes -= sum(map(len, lines))
                self._changed.notify_all()

    def _report_dropped(self) -> None:
        lines = self._unreported_lines
        if lines and self._write([self.describe_dropped(lines)]):
            with self._lock:
                self._unreported_lines -= lines

    def _write(self, lines: Sequence[bytes]) -> bool:
        """Write the lines. Return False if they are dropped."""
        descriptor = _descriptor(self.stream)
        if descriptor is None:
            return True
        rest = b"\n" * self._is_in_line + b"".join(lines)
        try:
            while rest:
                written = _write_some(descriptor, rest)
                self._is_in_line = rest[written - 1 : written] != b"\n"
                rest = rest[written:]
        except OSError:  # the pipe is closed, or the disk is full
            self._drop(len(lines))
            return False
        return True


def _descriptor(stream: IO[str] | None) -> int | None:
    """Return the file descriptor of a stream; None if it has none, or is closed."""
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):
        return None


def _write_some(descriptor: int, data: bytes) -> int:
    """Write at least one byte. Another process may have made the shared file non-blocking."""
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


def _batches(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Split the lines into batches that are written at once."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and size + len(line) > _MAX_WRITE_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch
