"""A receiver of webhooks on loopback: it records each request, and answers as the test says."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from tests.support.waiting import TIMEOUT_SECONDS, wait_until

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_PIECE = b"x" * 4096


class Answer(NamedTuple):
    """What the receiver does with one request."""

    status: int = 200
    body: bytes = b"ok"
    headers: Mapping[str, str] = _NO_HEADERS
    delay: float = 0.0
    """Seconds before the answer."""
    until: threading.Event | None = None
    """The answer waits for this event."""
    then: Literal["keep", "close", "endless"] = "keep"
    """close: the connection ends without an answer. endless: the body never ends."""


OK = Answer()
FAIL = Answer(500, b"broken")
GONE = Answer(410, b"gone")
CLOSE = Answer(then="close")
ENDLESS = Answer(then="endless")


def redirect(url: str, status: int = 302) -> Answer:
    return Answer(status, b"", {"location": url})


def retry_after(value: object, status: int = 503) -> Answer:
    return Answer(status, b"later", {"retry-after": str(value)})


class Received(NamedTuple):
    """One request, with the names of its headers in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes
    time: float
    """When it arrived, by the monotonic clock."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def type(self) -> str:
        return str(self.json["type"])

    @property
    def data(self) -> Any:
        return self.json["data"]

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def timestamp(self) -> int:
        return int(self.headers["webhook-timestamp"])


class Receiver:
    """An HTTP server on 127.0.0.1, with a script of answers for each path.

    The last answer of a script is repeated. A path without a script gets the status 200.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scripts: dict[str, list[Answer]] = {}
        self._received: list[Received] = []
        self._answered: list[str] = []
        self._on_request: Callable[[Received], None] = lambda _: None
        self.connections = 0
        """Connections that were accepted."""
        self._tls: ssl.SSLContext | None = None
        self._server: _Server | None = None
        self.port = 0
        self.start()

    # --- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen: the first time on a free port, later on the same one."""
        self._server = _Server(self, self.port)
        self.port = self._server.server_port
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    def stop(self) -> None:
        """Refuse connections, and end those that are open, until ``start`` is called again."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.end_connections()
            self._server = None

    def use_tls(self, certificate: Path, key: Path) -> None:
        """Encrypt all connections from now on."""
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate, key)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}{path}"

    # --- what the test says ----------------------------------------------------------------------

    def answer(self, path: str, *script: Answer) -> None:
        """Answer the next requests for this path like this, and forget the script before."""
        with self._lock:
            self._scripts[path] = list(script)

    def on_request(self, call: Callable[[Received], None]) -> None:
        """Call this for each request, in the thread of its connection, before the answer."""
        self._on_request = call

    # --- what has arrived ------------------------------------------------------------------------

    def received(self, path: str = "/", type_: str | None = None) -> list[Received]:
        """Return the requests for a path, oldest first; of one type of event, if it is given."""
        with self._lock:
            found = [one for one in self._received if one.path == path]
        return found if type_ is None else [one for one in found if one.type == type_]

    def answered(self, path: str = "/") -> int:
        """Return how many requests for this path have got their answer."""
        with self._lock:
            return self._answered.count(path)

    def wait_for(
        self,
        count: int,
        path: str = "/",
        type_: str | None = None,
        seconds: float = TIMEOUT_SECONDS,
    ) -> list[Received]:
        """Return the requests when there are so many."""
        wait_until(lambda: len(self.received(path, type_)) >= count, seconds)
        return self.received(path, type_)

    # --- connections -----------------------------------------------------------------------------

    def _note(self, received: Received) -> Answer:
        with self._lock:
            self._received.append(received)
            script = self._scripts.get(received.path)
            if not script:
                return OK
            return script.pop(0) if len(script) > 1 else script[0]

    def _note_answer(self, path: str) -> None:
        with self._lock:
            self._answered.append(path)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, receiver: Receiver, port: int) -> None:
        self.receiver = receiver
        self._open: set[Any] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        self.receiver.connections += 1
        if self.receiver._tls is not None:
            connection.settimeout(TIMEOUT_SECONDS)
            connection = self.receiver._tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(2)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the service may close a connection at any time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.path, headers, body, time.monotonic())
        answer = receiver._note(received)
        receiver._on_request(received)
        self._respond(answer)
        receiver._note_answer(self.path)

    def do_GET(self) -> None:
        """Record what a redirect that was followed would send."""
        self.do_POST()

    def _respond(self, answer: Answer) -> None:
        if answer.delay:
            time.sleep(answer.delay)
        if answer.until is not None:
            answer.until.wait(TIMEOUT_SECONDS)
        if answer.then == "close":
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.then == "endless":
            self._respond_without_end()
            return
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def _respond_without_end(self) -> None:
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):
            while True:
                self.wfile.write(_PIECE)

    def log_message(self, *values: object) -> None:
        """Write nothing to the output of the tests."""


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Return a receiver that listens until the context ends."""
    made = Receiver()
    try:
        yield made
    finally:
        made.stop()
