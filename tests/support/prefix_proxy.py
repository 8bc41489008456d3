"""A reverse proxy in a thread that serves a service below a path, as nginx would."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.waiting import TIMEOUT_SECONDS

_OF_A_CONNECTION = {"connection", "keep-alive", "transfer-encoding"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    prefix = ""
    target = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _forward(self) -> None:
        prefix, path = self.server.prefix, self.path
        if not path.startswith(f"{prefix}/"):
            self.send_error(404)
            return
        size = int(self.headers.get("content-length", 0))
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, TIMEOUT_SECONDS)
        headers = {name: self.headers[name] for name in self.headers}
        connection.request(self.command, path.removeprefix(prefix), self.rfile.read(size), headers)
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in (*_OF_A_CONNECTION, "content-length"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        connection.close()

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _forward  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing: the test reports what failed."""


@contextmanager
def open_prefix_proxy(prefix: str) -> Iterator[_Server]:
    """Listens before the service is there, because the service has to know the address.

    Set ``target`` to the port of the service.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
    server.prefix = prefix
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(TIMEOUT_SECONDS)
