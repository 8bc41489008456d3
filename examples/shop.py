"""A small web shop to scrape: a listing, 300 products behind a login, and a PDF for each product.

Run it with ``python shop.py``. ``--day 2`` changes the price of every 25th product. It needs
nothing but Python, and listens on this computer only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

PRODUCTS = 300
PAGE_SIZE = 20
CHANGED_EVERY = 25
USER, PASSWORD = "ada", "lovelace"
SESSION = "shop_session"
STORAGE_KEY = "shop.member"

_COLOURS = ("blue", "green", "grey", "red", "white")
_THINGS = ("kettle", "lamp", "backpack", "chair", "mug", "blanket")


class Product(NamedTuple):
    """A product, as its page shows it."""

    sku: str
    name: str
    price: float
    in_stock: bool


def product(number: int, day: int = 1) -> Product:
    """Return a product. On the second day, every 25th is one unit cheaper."""
    name = f"{_COLOURS[number % len(_COLOURS)]} {_THINGS[number % len(_THINGS)]} {number}"
    price = 10 + number * 0.5
    if day > 1 and number % CHANGED_EVERY == 0:
        price -= 1
    return Product(f"SKU-{number:04}", name.capitalize(), price, number % 7 != 0)


def data_sheet(number: int) -> bytes:
    """Return the PDF of a product. It has one page with one line of text."""
    text = f"BT /F1 18 Tf 40 100 Td (Data sheet {product(number).sku}) Tj ET".encode()
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(text), text),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )
    content, offsets = b"%PDF-1.4\n", []
    for index, body in enumerate(objects, 1):
        offsets.append(len(content))
        content += b"%d 0 obj%s endobj\n" % (index, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    trailer = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (size, len(content))
    return content + b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table) + trailer


class Shop(ThreadingHTTPServer):
    """The server. It counts its responses, so that a test can see what was downloaded."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0, day: int = 1) -> None:
        super().__init__(("127.0.0.1", port), _Connection)
        self.day = day
        self.session = hashlib.sha256(f"{USER} {PASSWORD}".encode()).hexdigest()
        self.counts: dict[str, int] = {}
        """Number of responses by kind of page, such as ``product`` or ``pdf``."""
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def count(self, kind: str) -> None:
        with self._lock:
            self.counts[kind] = self.counts.get(kind, 0) + 1


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Shop

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/":
            page = parse_qs(address.query).get("page", ["1"])[0]
            self._send_listing(max(int(page), 1) if page.isdecimal() else 1)
        elif address.path == "/login":
            self._send_page("login", "Log in", _FORM)
        elif address.path == "/robots.txt":
            self._send("robots", 200, b"User-agent: *\nAllow: /\n", {"Content-Type": "text/plain"})
        elif found := re.fullmatch(r"/products/(\d+)(/data-sheet\.pdf)?", address.path):
            self._send_product(int(found[1]), found[2] is not None)
        else:
            self._send_page("missing", "Not found", "<p>There is no such page.</p>", 404)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.path != "/login":
            self._send_page("missing", "Not found", "<p>There is no such page.</p>", 404)
        elif parse_qs(body) == {"user": [USER], "password": [PASSWORD]}:
            cookie = f"{SESSION}={self.server.session}; Path=/; HttpOnly; Max-Age=604800"
            self._send_page("welcome", "Welcome", _WELCOME, headers={"Set-Cookie": cookie})
        else:
            self._send_page("refused", "Log in", f"<p>Wrong password.</p>{_FORM}", 403)

    def _send_listing(self, page: int) -> None:
        first = (page - 1) * PAGE_SIZE + 1
        numbers = range(first, min(first + PAGE_SIZE, PRODUCTS + 1))
        links = "".join(
            f'<li><a class="product" href="/products/{number}">{escape(product(number).name)}</a>'
            for number in numbers
        )
        has_more = first + PAGE_SIZE <= PRODUCTS
        more = f'<a class="next" href="/?page={page + 1}">Next</a>' if has_more else ""
        self._send_page("listing", f"Products, page {page}", f"<ul>{links}</ul>{more}")

    def _send_product(self, number: int, is_pdf: bool) -> None:
        if not 1 <= number <= PRODUCTS:
            self._send_page("missing", "Not found", "<p>There is no such product.</p>", 404)
        elif not self._is_logged_in():
            self._send("redirect", 302, b"", {"Location": "/login"})
        elif is_pdf:
            self._send_pdf(data_sheet(number))
        else:
            shown = product(number, self.server.day)
            stock = "In stock" if shown.in_stock else "Sold out"
            body = (
                f'<p>Article <span class="sku">{shown.sku}</span></p>'
                f'<p><span class="price">{shown.price:.2f}</span> EUR</p>'
                f'<p class="stock">{stock}</p>'
                f'<p><a class="pdf" href="/products/{number}/data-sheet.pdf">Data sheet</a></p>'
            )
            self._send_page("product", shown.name, body)

    def _send_pdf(self, content: bytes) -> None:
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        if self.headers.get("If-None-Match") == etag:
            self._send("pdf not modified", 304, b"", {"ETag": etag})
        else:
            kind = "pdf" if self.command == "GET" else "pdf head"
            self._send(kind, 200, content, {"Content-Type": "application/pdf", "ETag": etag})

    def _is_logged_in(self) -> bool:
        cookies = SimpleCookie(self.headers.get("Cookie", ""))
        return SESSION in cookies and cookies[SESSION].value == self.server.session

    def _send_page(
        self,
        kind: str,
        title: str,
        body: str,
        status: int = 200,
        headers: dict[str, str] | None = None,
    ) -> None:
        page = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
            f"<h1>{escape(title)}</h1>{body}</html>"
        )
        content_type = {"Content-Type": "text/html; charset=utf-8"}
        self._send(kind, status, page.encode(), content_type | (headers or {}))

    def _send(self, kind: str, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.server.count(kind)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


_FORM = """<form method="post" action="/login"><label>User <input name="user"></label>
<label>Password <input name="password" type="password"></label><button>Log in</button></form>"""
_WELCOME = (
    f"<p>You are logged in.</p><script>localStorage.setItem({json.dumps(STORAGE_KEY)}, "
    f'{json.dumps(USER)})</script><p><a href="/">Products</a></p>'
)


@contextmanager
def running_shop(day: int = 1) -> Iterator[Shop]:
    """Run the shop on a free port until the end of the block."""
    with Shop(day=day) as shop:
        thread = threading.Thread(target=shop.serve_forever)
        thread.start()
        try:
            yield shop
        finally:
            shop.shutdown()
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--port", type=int, default=8080, help="default: 8080")
    parser.add_argument("--day", type=int, default=1, help="2 changes some prices; default: 1")
    arguments = parser.parse_args()
    try:
        shop = Shop(arguments.port, arguments.day)
    except OSError as error:
        parser.error(f"port {arguments.port} cannot be used ({error.strerror}): choose another one")
    with shop:
        print(f"The shop is at {shop.url}, day {shop.day}. Log in as {USER} / {PASSWORD}.")
        with suppress(KeyboardInterrupt):
            shop.serve_forever()


if __name__ == "__main__":
    main()
