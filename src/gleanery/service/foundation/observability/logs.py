"""Structured logs on standard error: text on a terminal, JSON elsewhere.

Every JSON line is compact: no space follows a colon or a comma. So one search, such as
``grep '"level":"error"'``, finds the lines of requests and all others. Exceptions that nobody
catches, and warnings of Python, are lines of the same format.

Lines wait in a queue, so a slow reader of the log never delays a request.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import select
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from json.encoder import encode_basestring_ascii as _json_string
from operator import attrgetter
from types import TracebackType
from typing import IO, Protocol

from gleanery.common.settings import Settings
from gleanery.service.http import Request, parse_address

# --- the queue of lines -------------------------------------------------------------------------

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


# --- the log of the service ---------------------------------------------------------------------

_log = logging.getLogger("gleanery.request")
_service_log = logging.getLogger("gleanery")
_FLUSH_SECONDS = 1.0  # at the exit
_NOT_FORMATTED = "a log line could not be formatted"
_DROPPED = "log lines were dropped, because they could not be written"
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message"}
_DIM, _BOLD, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[0m"


def configure(settings: Settings) -> None:
    """Give the log of the service and of the server one format, and flush it at the exit."""
    formatter = _TextFormatter() if _is_text(settings) else _JsonFormatter()
    handler = _Handler()
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)
    logging.captureWarnings(True)
    _log_uncaught_exceptions()
    _writer.stream = sys.stderr
    _writer.describe_dropped = partial(_describe_dropped, formatter)
    atexit.unregister(flush)  # an earlier call has registered it
    atexit.register(flush)


def flush() -> None:
    """Write the lines that wait, as far as the reader takes them within a second."""
    _writer.flush(_FLUSH_SECONDS)


def dropped_lines() -> int:
    """Return the number of lines that this process could not write."""
    return _writer.dropped_lines


def _log_uncaught_exceptions() -> None:
    """Log exceptions that end the process or a thread. A hook of another program stays."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _log_uncaught
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _log_thread_end
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _log_unraisable


def _log_uncaught(
    type_: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    _service_log.critical("an exception was not caught", exc_info=(type_, error, trace))


def _log_thread_end(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
        name = None if ended.thread is None else ended.thread.name
        _service_log.error("a thread failed", extra={"thread_name": name}, exc_info=ended.exc_value)


def _log_unraisable(failed: sys.UnraisableHookArgs) -> None:
    place = getattr(failed.object, "__qualname__", type(failed.object).__qualname__)
    message = failed.err_msg or "an exception was ignored"
    _service_log.error(message, extra={"object": place}, exc_info=failed.exc_value)


class _Handler(logging.Handler):
    """Passes the records of the logging library to the writer."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # a mistake in the call that logs
            place = f"{record.pathname}:{record.lineno}"
            failed = logging.makeLogRecord(
                {"levelname": "ERROR", "msg": _NOT_FORMATTED, "call": place}
            )
            failed.exc_info = (type(error), error, error.__traceback__)
            line = self.format(failed)
        _writer.write(f"{line}\n".encode("utf-8", "backslashreplace"))


def _describe_dropped(formatter: logging.Formatter, lines: int) -> bytes:
    """Return the line that reports dropped lines."""
    fields = {"levelname": "WARNING", "msg": _DROPPED, "lines": lines}
    return f"{formatter.format(logging.makeLogRecord(fields))}\n".encode()


def _extra(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields that were passed as ``extra``."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = _extra(record) | {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "timestamp": _timestamp(record.created),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, separators=(",", ":"))


class _TextFormatter(logging.Formatter):
    """One readable line, with a traceback below it."""

    def __init__(self) -> None:
        super().__init__()
        has_colors = _is_terminal() and "NO_COLOR" not in os.environ
        self._dim, self._bold, self._reset = (_DIM, _BOLD, _RESET) if has_colors else ("", "", "")

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={_one_line(value)}" for name, value in _extra(record).items())
        line = (
            f"{self._dim}{_timestamp(record.created)}{self._reset} [{record.levelname.lower():<8}] "
            f"{self._bold}{_one_line(record.getMessage()):<30}{self._reset} {fields}"
        ).rstrip()
        if not record.exc_info:
            return line
        # The indent distinguishes the text of an exception from log lines.
        return f"{line}\n{textwrap.indent(self.formatException(record.exc_info), '  ')}"


def _one_line(value: object) -> str:
    """Return the text of a value, quoted if it contains control characters."""
    text = str(value)
    return text if text.isprintable() else _json_string(text)


def _is_text(settings: Settings) -> bool:
    return settings.log_format == "text" or (settings.log_format == "auto" and _is_terminal())


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


_writer = LogWriter(sys.stderr, partial(_describe_dropped, _JsonFormatter()))


# --- the lines of requests ----------------------------------------------------------------------


class Accounted(Protocol):
    """What the pipeline notes about a request in ``request.state``."""

    organization: int | None
    """None if the request has no valid token and no valid link."""
    token: int | None
    received_bytes: int
    sent_bytes: int
    stored_outputs: int
    admitted: float
    """Reading of the performance counter at the admission."""
    idle_seconds: float
    """Seconds in which the request waited for its client, or for a change."""


FindClient = Callable[[Request], bytes]
"""Returns the address of the client that sent a request."""


def client_address_finder(settings: Settings) -> FindClient:
    """Return the rule: behind a proxy the address that the proxy reports, else the socket's."""
    return _forwarded_address if settings.behind_proxy else attrgetter("client_address")


def _forwarded_address(request: Request) -> bytes:
    """Return the last address of X-Forwarded-For; the proxy's own if it is missing or invalid.

    A proxy appends the address of its client. A client can send the other entries itself.
    """
    header = request.headers.get(b"x-forwarded-for")
    if header is None:
        return request.client_address
    last = header.rpartition(b",")[2].strip().decode("ascii", "replace")
    return parse_address(last) or request.client_address


RequestLog = Callable[[Request, str, int, float, bytes], None]
"""Writes the line of a request: takes the request, its operation, status, seconds and id."""
_MAX_PATH = 200


def request_log(settings: Settings) -> RequestLog | None:
    """Return the function that logs each request, or None if requests are not logged.

    JSON lines bypass the logging library, which takes longer than a whole small request.
    """
    if settings.log_level not in ("debug", "info"):
        return None
    log = _log_as_text if _is_text(settings) else _log_as_json
    return partial(log, client_address_finder(settings))


def _log_as_text(
    find_client: FindClient,
    request: Request,
    operation: str,
    status: int,
    seconds: float,
    id_: bytes,
) -> None:
    _log.info(
        "request",
        extra={
            "method": request.method,
            "path": _decode_path(request.path[:_MAX_PATH]),
            "operation": operation,
            **_caller(request.state),
            "status": status,
            "milliseconds": round(seconds * 1000, 2),
            "client": find_client(request).decode("ascii"),
            "request_id": id_.decode("ascii"),
        },
    )


def _caller(account: Accounted) -> dict[str, int]:
    """Return the ids of the organization and the token, as far as they are known."""
    ids = {"organization": account.organization, "token": account.token}
    return {name: id_ for name, id_ in ids.items() if id_ is not None}


def log_slow_request(
    request: Request, operation: str, status: int, id_: bytes, started: float, ended: float
) -> None:
    """Log a request that took long, without the time in which it waited for its client."""
    account: Accounted = request.state
    service = ended - account.admitted - account.idle_seconds
    _service_log.warning(
        "slow request",
        extra={
            "method": request.method,
            "path": _decode_path(request.path[:_MAX_PATH]),
            "operation": operation,
            **_caller(account),
            "status": status,
            "service_milliseconds": round(service * 1000, 2),
            "queue_milliseconds": round((started - account.admitted) * 1000, 2),
            "idle_milliseconds": round(account.idle_seconds * 1000, 2),
            "received_bytes": account.received_bytes,
            "sent_bytes": account.sent_bytes,
            "stored_outputs": account.stored_outputs,
            "request_id": id_.decode("ascii"),
        },
    )


def _decode_path(path: bytes) -> str:
    return path.decode("ascii", "replace")


def _log_as_json(
    find_client: FindClient,
    request: Request,
    operation: str,
    status: int,
    seconds: float,
    id_: bytes,
) -> None:
    now = time.time()
    account: Accounted = request.state
    path = request.path[:_MAX_PATH]
    _writer.write(
        b'%s%d,"milliseconds":%.2f,"client":"%s","request_id":"%s","event":"request",'
        b'"level":"info","timestamp":"%s.%06dZ"}\n'
        % (
            _line_start(request.method, path, operation, account.organization, account.token),
            status,
            seconds * 1000,
            find_client(request),
            id_,
            _render_second(int(now)),
            now % 1 * 1_000_000,
        )
    )


@lru_cache(maxsize=1024)
def _line_start(
    method: str, path: bytes, operation: str, organization: int | None, token: int | None
) -> bytes:
    """Return the start of a line, which is the same for all pages of a client."""
    caller = "" if organization is None else f'"organization":{organization},'
    caller += "" if token is None else f'"token":{token},'
    return (
        f'{{"method":{_json_string(method)},"path":{_json_string(_decode_path(path))},'
        f'"operation":"{operation}",{caller}"status":'
    ).encode()


def _timestamp(seconds: float) -> str:
    return f"{_render_second(int(seconds)).decode()}.{int(seconds % 1 * 1_000_000):06}Z"


@lru_cache(maxsize=4)
def _render_second(second: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
