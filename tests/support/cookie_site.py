"""A site that renews a cookie with each response, and counts what it gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = "S3CRET"
COOKIE = "sid"
_TTL = "Max-Age=604800"


class CookieSite(ThreadingHTTPServer):
    """``/`` renews the cookie, ``/logout`` deletes it, ``/redirect`` renews it and leads to ``/``.

    ``/welcome`` sets a cookie of another name, for everybody.
    The first request to ``/refused`` gets the status 403.
    The value of the cookie is the secret and a number, which each renewal increases.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.received: list[str] = []
        """The value of the cookie in each request; empty if there is none."""
        self.has_refused = False
        self.pause = threading.Event()
        """While it is not set, responses to ``/slow`` wait."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CookieSite

    def do_GET(self) -> None:
        found = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        value = found.value if found else ""
        self.server.received.append(value)
        if self.path == "/slow":
            self.server.pause.wait()
        self.send_response(self._status())
        self.send_header("Location", "/")
        self.send_header("Content-Type", "text/plain")
        for cookie in self._new_cookies(value):
            self.send_header("Set-Cookie", cookie)
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value.encode())

    def _status(self) -> int:
        if self.path == "/refused" and not self.server.has_refused:
            self.server.has_refused = True
            return 403
        return 302 if self.path == "/redirect" else 200

    def _new_cookies(self, value: str) -> list[str]:
        if self.path == "/welcome":
            return ["visitor=1"]
        if self.path == "/logout":
            return [f"{COOKIE}=; Path=/; Max-Age=0"]
        if not value.startswith(SECRET):
            return []
        number = int(value.removeprefix(SECRET))
        return [f"{COOKIE}={SECRET}{number + 1}; Path=/; HttpOnly; {_TTL}", "theme=dark"]

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running_cookie_site() -> Iterator[CookieSite]:
    """Run the site on a free port until the end of the block."""
    with CookieSite() as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            site.pause.set()
            site.shutdown()
            thread.join()
