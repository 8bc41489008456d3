"""A loopback HTTP server that sets cookies and records the cookies of each request."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class CookieServer(ThreadingHTTPServer):
    """Each response sets ``set_cookies``; ``received`` has the Cookie header of each request."""

    set_cookies: Sequence[str] = ()

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/account"

    def last_cookies(self) -> set[str]:
        return set(self.received[-1].split("; "))


class _Handler(BaseHTTPRequestHandler):
    server: CookieServer

    def do_GET(self) -> None:
        self.server.received.append(self.headers.get("Cookie", ""))
        self.send_response(200)
        for cookie in self.server.set_cookies:
            self.send_header("Set-Cookie", cookie)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002
        pass


@contextmanager
def running() -> Iterator[CookieServer]:
    with CookieServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
