"""A site with a login, which checks every cookie and the local storage that it gave out.

Its names do not exist in the DNS: the site is also the HTTP proxy that leads to it. So any tool
reaches it as it reaches other sites, over HTTPS, once ``HTTPS_PROXY`` names that proxy.
"""

from __future__ import annotations

import json
import secrets
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

from tests.support.certificates import write_certificate

HOST = "shop.example"
SUBDOMAIN = f"www.{HOST}"
PORT = 8443
ORIGIN = f"https://{HOST}:{PORT}"
"""Origin of the login. Its local storage is not that of the same host on another port."""
USER, PASSWORD = "Jürgen", "pass & word"
LOGGED_IN = "logged in"
STORAGE_KEY = "auth.token"

_DAY = 86_400
_JSON = '{"theme":"dark","cart":[1,2],"name":"a b"}'


class IssuedCookie(NamedTuple):
    """A cookie that the login sets."""

    name: str
    value: str
    attributes: str
    path: str = "/"
    with_subdomains: bool = False

    @property
    def header(self) -> str:
        domain = f"; Domain={HOST}" if self.with_subdomains else ""
        return f"{self.name}={self.value}; Path={self.path}{domain}{self.attributes}"


def _issued_cookies() -> tuple[IssuedCookie, ...]:
    """Returns one cookie of each kind, with values that formats spell differently."""
    year = f"; Max-Age={365 * _DAY}"
    sid = secrets.token_urlsafe()
    return (
        IssuedCookie("sid", f"{sid}==", "; Secure; HttpOnly; SameSite=Lax"),
        IssuedCookie("__Host-csrf", "a=b=c&d", "; Secure; HttpOnly; SameSite=Strict"),
        IssuedCookie("embedded", "100%25", f"; Secure; SameSite=None{year}"),
        IssuedCookie("partitioned", "1", f"; Secure; SameSite=None; Partitioned{year}"),
        IssuedCookie("remember", '"quoted, value"', f"; HttpOnly; SameSite=Strict{year}"),
        IssuedCookie("prefs", _JSON, year),
        IssuedCookie("user.name", "J%C3%BCrgen%20%E2%82%AC", "; SameSite=Lax"),
        IssuedCookie("long", "x" * 3500, "; Secure"),
        IssuedCookie("seen", "", ""),
        IssuedCookie("orders", "7", "; HttpOnly", path="/account"),
        IssuedCookie("orders", "all", ""),
        IssuedCookie("visitor", "#1 $HOME 'a' \\ b", f"; Secure{year}", with_subdomains=True),
    )


class LoginSite(ThreadingHTTPServer):
    """The site, and the proxy that leads to it."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.proxy = f"http://127.0.0.1:{self.server_port}"
        self.certificate, key = write_certificate(folder, names=(HOST, SUBDOMAIN))
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.certificate, key)
        self.cookies = _issued_cookies()
        self.stored_value = json.dumps({"token": secrets.token_hex(), "text": 'ü "€"\n\t</b>'})

    def expected(self, host: str, path: str) -> dict[str, list[str]]:
        """Returns the values that a browser sends to this page, by the names of the cookies."""
        sent: dict[str, list[str]] = {}
        for cookie in sorted(self.cookies, key=lambda one: -len(one.path)):
            if (cookie.with_subdomains or host == HOST) and path.startswith(cookie.path):
                sent.setdefault(cookie.name, []).append(cookie.value)
        return sent

    def findings(self, host: str, path: str, cookie_header: str) -> str:
        """Describes how the cookies of a request differ from the expected ones, by their names."""
        expected, sent = self.expected(host, path), _values_by_name(cookie_header)
        differences = {
            "missing": expected.keys() - sent.keys(),
            "unexpected": sent.keys() - expected.keys(),
            "wrong value": {n for n in expected.keys() & sent.keys() if expected[n] != sent[n]},
        }
        return "; ".join(f"{kind}: {sorted(names)}" for kind, names in differences.items() if names)


def _values_by_name(cookie_header: str) -> dict[str, list[str]]:
    sent: dict[str, list[str]] = {}
    for pair in cookie_header.split("; ") if cookie_header else ():
        name, _, value = pair.partition("=")
        sent.setdefault(name, []).append(value)
    return sent


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LoginSite

    def do_CONNECT(self) -> None:
        """Takes the place of the host, if it is one of ours."""
        if self.path.partition(":")[0] not in (HOST, SUBDOMAIN):
            self.send_error(502)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        try:
            self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        except OSError:  # the tool does not trust the certificate, or was faster with another
            self.close_connection = True
            return
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb")
        self.close_connection = False

    def do_GET(self) -> None:
        host, _, port = self.headers["Host"].partition(":")
        if self.path == "/login":
            self._send(200, _FORM)
        elif self.path in ("/", "/account"):
            found = self.server.findings(host, self.path, self.headers["Cookie"] or "")
            text = f"not logged in: {found}" if found else LOGGED_IN
            kept = self.server.stored_value if (host, port) == (HOST, str(PORT)) else None
            self._send(403 if found else 200, _page(_ACCOUNT, text, kept))
        else:
            self._send(404, "not found")

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if form != {"user": [USER], "password": [PASSWORD]}:
            self._send(403, "wrong password")
            return
        cookies = [cookie.header for cookie in self.server.cookies]
        self._send(200, _page(_WELCOME, "welcome", self.server.stored_value), cookies)

    def _send(self, status: int, page: str, cookies: list[str] | tuple[()] = ()) -> None:
        body = page.encode()
        self.send_response(status)
        for cookie in cookies:
            self.send_header("Set-Cookie", cookie)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # the server closes only the connection without TLS

    def log_message(self, *_: object) -> None:
        pass


_FORM = """<!doctype html><form method="post">
<input name="user"><input name="password" type="password"><button>Log in</button></form>"""
_WELCOME = "localStorage.setItem(key, value); location = '/account'"
_ACCOUNT = """if (localStorage.getItem(key) !== value)
document.getElementById('status').textContent += ', but the local storage is wrong'"""


def _page(script: str, text: str, stored_value: str | None) -> str:
    """Returns a page that shows the text, and whose script knows the value of the local storage."""
    value = json.dumps(stored_value).replace("<", r"\u003c")
    known = f"const key = {json.dumps(STORAGE_KEY)}, value = {value};"
    return f'<!doctype html><p id="status">{text}</p><script>{known}{script}</script>'


@contextmanager
def running_login_site(folder: Path) -> Iterator[LoginSite]:
    """Runs the site until the end of the block."""
    with LoginSite(folder) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield site
        site.shutdown()
        thread.join()
