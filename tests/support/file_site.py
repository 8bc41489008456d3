"""A site with files, whose versions and faults a test chooses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileSite(ThreadingHTTPServer):
    """``content`` and ``headers`` are those of every file. ``/status/503`` has this status."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.content = b"first"
        self.headers: dict[str, str] = {}
        self.has_head = True
        self.requests: list[str] = []
        """Methods of the requests."""
        self.is_open = threading.Event()
        """While it is not set, requests wait for their response."""
        self.is_open.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FileSite

    def do_GET(self) -> None:
        site = self.server
        site.requests.append(self.command)
        site.is_open.wait()
        is_rejected = self.command == "HEAD" and not site.has_head
        _, _, named = self.path.partition("/status/")
        status = 405 if is_rejected else int(named or 200)
        self.send_response(status)
        for name, value in site.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(site.content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(site.content)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running_file_site() -> Iterator[FileSite]:
    """Run the site on a free port until the end of the block."""
    with FileSite() as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            site.is_open.set()
            site.shutdown()
            thread.join()
