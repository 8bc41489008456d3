"""Tables of requests as bytes, with the answer that RFC 9110 and RFC 9112 ask for.

Every table maps a name to a ``Case``. ``test_cases.py`` sends them to the server, and
``tests/slow/test_proxies.py`` sends them through nginx and HAProxy.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
"""A request that is a part of another request. The server must never see it."""


class Case(NamedTuple):
    """Bytes that a client sends, and the answers in their order."""

    data: bytes
    answers: tuple[str | int, ...]
    """Body of each request that is accepted; status of a rejection, which is the last."""
    closes: bool = False
    """True if the connection is closed after the last request, although it is accepted."""


def request(
    *lines: str, start: str = "POST /echo HTTP/1.1", body: bytes = b"", host: str | None = "Host: x"
) -> bytes:
    """A request with these header lines."""
    head = [start, *([] if host is None else [host]), *lines, "", ""]
    return "\r\n".join(head).encode("latin-1") + body


def accepted(data: bytes, body: str = "") -> Case:
    return Case(data, (body,))


def rejected(status: int, data: bytes) -> Case:
    return Case(data, (status,))


def _started(start: str) -> bytes:
    return request(start=start)


# --- request line ---------------------------------------------------------------------------------

_METHODS = {
    **dict.fromkeys(("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"), 200),
    **dict.fromkeys(("PROPFIND", "M-SEARCH", "VERSION-CONTROL", "A", "A_B", "A" * 32), 200),
    "CONNECT": 501,
    **dict.fromkeys(("get", "Get", "GET1", "1GET", "-GET", "G=T", "GET:", "G\tT", "G(T"), 400),
    **dict.fromkeys(("", " GET", "GET ", "G T", "\x00GET", "GÉT", "[GET]", "A" * 33), 400),
}
METHODS = {
    f"method {name!r}": (
        accepted(_started(f"{name} /echo HTTP/1.1"))
        if status == 200
        else rejected(status, _started(f"{name} /echo HTTP/1.1"))
    )
    for name, status in _METHODS.items()
}
METHODS["CONNECT with an authority"] = rejected(501, _started("CONNECT x:443 HTTP/1.1") + HIDDEN)
METHODS["CONNECT with a length"] = rejected(
    501, request(f"Content-Length: {len(HIDDEN)}", start="CONNECT x:443 HTTP/1.1") + HIDDEN
)

_VERSIONS = {
    "HTTP/1.1": 200,
    **dict.fromkeys(("HTTP/0.9", "HTTP/0.0", "HTTP/1.2", "HTTP/1.9", "HTTP/2.0", "HTTP/3.0"), 505),
    **dict.fromkeys(("HTTP/9.9", "HTTP/2.1", "HTTP/0.1"), 505),
    **dict.fromkeys(("HTTP/1", "HTTP/2", "HTTP/1.", "HTTP/.1", "HTTP/1.10", "HTTP/11.1"), 400),
    **dict.fromkeys(("HTTP/01.1", "http/1.1", "Http/1.1", "HTTPS/1.1", "HTTP/1,1", "HTP/1.1"), 400),
    **dict.fromkeys(("HTTP/-1.1", "HTTP/1.1 ", " HTTP/1.1", "HTTP/1.1\t", "HTTP/ 1.1"), 400),
    **dict.fromkeys(
        ("HTTP/1.1x", "HTTP/a.b", "HTTP 1.1", "HTTP/1.1;", "1.1", "", "HTTP/1.\xb1"), 400
    ),
}
VERSIONS = {
    f"version {version!r}": (
        accepted(_started(f"POST /echo {version}"))
        if status == 200
        else rejected(status, _started(f"POST /echo {version}"))
    )
    for version, status in _VERSIONS.items()
}
VERSIONS |= {
    "HTTP/1.0": Case(_started("POST /echo HTTP/1.0"), ("",), closes=True),
    "HTTP/1.0 without Host": Case(request(start="GET /a HTTP/1.0", host=None), ("",), closes=True),
    "HTTP/1.0 with keep-alive": Case(
        request("Connection: keep-alive", start="GET /a HTTP/1.0"), ("",), closes=True
    ),
    "HTTP/1.0 with a length": Case(
        request("Content-Length: 5", start="POST /a HTTP/1.0", body=b"hello"), ("hello",), True
    ),
    "HTTP/1.0 with chunks": rejected(
        400, request("Transfer-Encoding: chunked", start="POST /a HTTP/1.0", body=b"0\r\n\r\n")
    ),
    "HTTP/0.9": rejected(400, b"GET /echo\r\n"),
    "HTTP/2 preface": rejected(505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": rejected(400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
}

_ACCEPTED_TARGETS = (
    "/",
    "/echo?",
    "/echo?a=b?c",
    "//",
    "/echo//a/../b/.",
    "/%00%ff%zz",
    "/a;b=c,d",
    "/'\"<>\\^`{|}",
    "http://x",
    "http://x/echo",
    "https://x:443/echo?a",
    "HTTP://x?a",
    "http://[::1]:80/",
    "http://other/echo",
)
_REJECTED_TARGETS = (
    "",
    "echo",
    "?a",
    "*",
    "x:443",
    "http:",
    "http://",
    "http:///echo",
    "http://:80/",
    "http://user@x/",
    "http://user:password@x/",
    "http://x:port/",
    "http://[::1/",
    "http://x y/",
    "ftp://x/",
    "javascript:1",
    "/a b",
    "/a#b",
    "/a?b#c",
    "/a\tb",
    "/é",
)
TARGETS = {
    **{f"target {t!r}": accepted(_started(f"GET {t} HTTP/1.1")) for t in _ACCEPTED_TARGETS},
    **{f"target {t!r}": rejected(400, _started(f"GET {t} HTTP/1.1")) for t in _REJECTED_TARGETS},
    "target of OPTIONS '*'": accepted(_started("OPTIONS * HTTP/1.1")),
}
TARGETS |= {
    f"byte {byte:#04x} in a target": (
        accepted if 0x21 <= byte <= 0x7E and byte != 0x23 else lambda data: rejected(400, data)
    )(b"GET /a" + bytes([byte]) + b"b HTTP/1.1\r\nHost: x\r\n\r\n")
    for byte in range(256)
}

# --- headers --------------------------------------------------------------------------------------

_TOKEN_BYTES = b"!#$%&'*+-.^_`|~0123456789:" + bytes(range(65, 91)) + bytes(range(97, 123))
NAMES = {  # with a colon inside, the rest is the value
    f"byte {byte:#04x} in a header name": (
        accepted if byte in _TOKEN_BYTES else lambda data: rejected(400, data)
    )(b"GET / HTTP/1.1\r\nHost: x\r\nX" + bytes([byte]) + b"Y: v\r\n\r\n")
    for byte in range(256)
}
VALUES = {
    f"byte {byte:#04x} in a header value": (
        accepted if byte == 9 or (byte >= 32 and byte != 127) else lambda data: rejected(400, data)
    )(b"GET / HTTP/1.1\r\nHost: x\r\nX: a" + bytes([byte]) + b"b\r\n\r\n")
    for byte in range(256)
}
_HEADER_LINES = {
    "X:": 200,
    "X: ": 200,
    "X:\t \t": 200,
    "X:a": 200,
    "X: a \t": 200,
    "X: a:b": 200,
    "X: a\r\nX: b": 200,
    "x: a\r\nX: a": 200,
    "X: " + "a" * 10_000: 200,
    "no colon": 400,
    "X": 400,
    ":": 400,
    ": a": 400,
    " : a": 400,
    "X : a": 400,
    "X\t: a": 400,
    " X: a": 400,
    "\tX: a": 400,
    "X: a\r\n b": 400,
    "X: a\r\n\tb": 400,
    "X: a\r\n ": 400,
    "X: a\nY: b": 400,
    "X: a\rY: b": 400,
    "X: a\r\r\nY: b": 400,
    "X: a\r": 400,
    "X: a\n": 400,
    "X: a\0": 400,
    "X\0: a": 400,
    "X: a\x0b": 400,
    "X: a\r\n: b": 400,
    "X: a\n\n" + HIDDEN.decode(): 400,
    "X: a\n\r\n" + HIDDEN.decode(): 400,
}
HEADER_LINES = {
    f"header {line[:20]!r} ({len(line)})": (
        accepted(request(line)) if status == 200 else rejected(status, request(line))
    )
    for line, status in _HEADER_LINES.items()
}

_HOSTS = {
    **dict.fromkeys(("x", "X.example", "x:80", "x:", "127.0.0.1:1", "[::1]", "[::1]:80"), 200),
    **dict.fromkeys(("a_b", "a-b.c", "x.", "xn--bcher-kva.example", "a%20b", "a,b", "a;b=c"), 200),
    **dict.fromkeys(("", " ", ":", ":80", "x:y", "x:80:80", "x:123456", "x y", "x, y", "x/y"), 400),
    **dict.fromkeys(("http://x", "u@x", "x?y", "x#y", "[::1", "::1", "[x]", "[]", "x\\y"), 400),
    **dict.fromkeys(("x:-1", "x:+1", "%2", "%zz", "é", '"x"', "<x>", "x\ty", "{x}", "x|y"), 400),
}
HOSTS = {
    f"host {value!r}": (
        accepted(request(host=f"Host: {value}"))
        if status == 200
        else rejected(status, request(host=f"Host: {value}"))
    )
    for value, status in _HOSTS.items()
}
HOSTS |= {
    "no Host": rejected(400, request(host=None)),
    "two Hosts": rejected(400, request("Host: y")),
    "two equal Hosts": rejected(400, request("Host: x")),
    "two Hosts in another case": rejected(400, request("HOST: x")),
    "two Hosts, one empty": rejected(400, request("Host:")),
    "Host after other headers": accepted(request("X: y", "Host: x", host=None)),
    "space before the colon of Host": rejected(400, request(host="Host : x")),
    "two Hosts in HTTP/1.0": rejected(400, request("Host: y", start="GET / HTTP/1.0")),
    "malformed Host in HTTP/1.0": rejected(400, request(start="GET / HTTP/1.0", host="Host: a b")),
    "absolute target without Host": rejected(
        400, request(start="GET http://x/ HTTP/1.1", host=None)
    ),
}

_CONNECTIONS = {
    **dict.fromkeys(("keep-alive", "Keep-Alive", "upgrade", "closed", "x-close", "", ","), False),
    **dict.fromkeys(("Content-Length", "Host, Transfer-Encoding", "clo se", '"close"'), False),
    **dict.fromkeys(("close", "Close", "CLOSE", "keep-alive, close", "close, keep-alive"), True),
    **dict.fromkeys(("close\t", ",close ,", "a,\tclose", "keep-alive\r\nConnection: close"), True),
}
CONNECTIONS = {
    f"connection {value!r}": Case(request(f"Connection: {value}"), ("",), closes)
    for value, closes in _CONNECTIONS.items()
}

_EXPECTATIONS = {
    **dict.fromkeys(("100-continue", "100-Continue", "100-CONTINUE"), "hello"),
    **dict.fromkeys(("", "100", "100-continued", "200-ok", "100-continue, 100-continue"), 417),
    **dict.fromkeys(("100-continue;a=b", "a=b", "close", "100 continue"), 417),
}
EXPECTATIONS = {
    f"expect {value!r}": Case(
        request(f"Expect: {value}", "Content-Length: 5", body=b"hello"), (answer,)
    )
    for value, answer in _EXPECTATIONS.items()
}
EXPECTATIONS |= {
    f"expect {value!r} in HTTP/1.0": Case(
        request(f"Expect: {value}", "Content-Length: 5", start="PUT / HTTP/1.0", body=b"hello"),
        ("hello",),
        closes=True,
    )
    for value in ("100-continue", "200-ok")
}
EXPECTATIONS["expect without a body"] = accepted(request("Expect: 100-continue"))

# --- bodies ---------------------------------------------------------------------------------------

_LENGTHS = {
    **dict.fromkeys(("5", "05", "005", "5 ", "\t5", "0" * 17 + "5"), "hello"),
    **dict.fromkeys(("", " ", "+5", "-5", "-0", "5.0", "5e0", "0x5", "5h", "five", "5 5"), 400),
    **dict.fromkeys(("5, 5", "5,5", "5,", ",5", "5;a=b", '"5"', "5\0", "٥", "½", "5_0"), 400),
    **dict.fromkeys(("9" * 19, "1" * 40, "18446744073709551621", "4294967301" * 2), 400),
    **dict.fromkeys(("5\r\nContent-Length: 5", "5\r\nContent-Length: 6"), 400),
    **dict.fromkeys(("6\r\nContent-Length: 5", "5\r\ncontent-length:", "5\r\n 5", "0\r\n 5"), 400),
    **dict.fromkeys(("5\nX: y", "5\rX: y", "\x0b5", "\x0c5", "\xa05", "5\x85"), 400),
}
LENGTHS = {
    f"length {value!r}": Case(
        request(f"Content-Length: {value.encode().decode('latin-1')}")
        + (b"hello" if answer == "hello" else HIDDEN),
        (answer,),
    )
    for value, answer in _LENGTHS.items()
}
LENGTHS |= {
    "length 0": accepted(request("Content-Length: 0")),
    "no length": accepted(request()),
    "no length, and bytes": Case(request() + b"hello", ("", 400)),
    "length of GET": accepted(
        request(f"Content-Length: {len(HIDDEN)}", start="GET / HTTP/1.1") + HIDDEN, HIDDEN.decode()
    ),
    "space before the colon of the length": rejected(
        400, request(f"Content-Length : {len(HIDDEN)}") + HIDDEN
    ),
    "length with an underscore": Case(request("Content_Length: 5"), ("",)),
}

CHUNKED = "Transfer-Encoding: chunked"
_HELLO = b"5\r\nhello\r\n0\r\n\r\n"
_CODINGS = {
    **dict.fromkeys(("chunked", "Chunked", "CHUNKED", "chunked ", "\tchunked"), "hello"),
    **dict.fromkeys(("", "identity", "gzip", "deflate", "compress", "xchunked", "chunkedx"), 501),
    **dict.fromkeys(
        ("chunked, chunked", "gzip, chunked", "chunked, gzip", "identity, chunked"), 501
    ),
    **dict.fromkeys(("chunked, identity", "chunked,", ",chunked", ", chunked", "chunked;a=b"), 501),
    **dict.fromkeys(
        ('"chunked"', "'chunked'", "chun ked", "chunk", "\xa0chunked", "[chunked]"), 501
    ),
    **dict.fromkeys(
        ("chunked\r\nTransfer-Encoding: chunked", "chunked\r\nTransfer-Encoding:"), 501
    ),
    **dict.fromkeys(
        ("identity\r\nTransfer-Encoding: chunked", "x\r\ntransfer-encoding: chunked"), 501
    ),
    **dict.fromkeys(("\x0bchunked", "chunked\0", "\x0cchunked", "chunked\x7f", "chunked\r"), 400),
    **dict.fromkeys(("\r\n chunked", "chunked\r\n x", "x\nTransfer-Encoding: chunked"), 400),
}
CODINGS = {
    f"coding {value!r}": Case(
        request(f"Transfer-Encoding: {value}")
        + (_HELLO if answer == "hello" else b"0\r\n\r\n" + HIDDEN),
        (answer,),
    )
    for value, answer in _CODINGS.items()
}
CODINGS |= {
    "space before the colon of the coding": rejected(
        400, request("Transfer-Encoding : chunked") + b"0\r\n\r\n" + HIDDEN
    ),
    "coding with an underscore": accepted(request("Transfer_Encoding: chunked")),
    "TE is no coding of the body": accepted(request("TE: chunked, trailers")),
}

# Lines about the length of a body, and how each must be understood.
_FRAMING_LINES = {
    "Content-Length: 5": "length",
    "content-length: 5": "length",
    "Content-Length: 6": "length",
    "Content-Length: 0": "length",
    "Content-Length: +5": "bad length",
    "Content-Length : 5": "malformed",
    "Transfer-Encoding: chunked": "chunked",
    "transfer-encoding: CHUNKED": "chunked",
    "Transfer-Encoding:\tchunked": "chunked",
    "Transfer-Encoding: identity": "coding",
    "Transfer-Encoding: xchunked": "coding",
    "Transfer-Encoding: gzip, chunked": "coding",
    "Transfer-Encoding : chunked": "malformed",
    " Transfer-Encoding: chunked": "malformed",
    "X: y\nTransfer-Encoding: chunked": "malformed",
    "Transfer_Encoding: chunked": "nothing",
    "X-Content-Length: 5": "nothing",
}


def _framing_status(meanings: list[str]) -> int:
    """Status of a request with two of these lines."""
    has_length = not {"length", "bad length"}.isdisjoint(meanings)
    has_coding = not {"chunked", "coding"}.isdisjoint(meanings)
    if "malformed" in meanings or "bad length" in meanings or (has_length and has_coding):
        return 400
    if meanings.count("length") > 1:
        return 400
    if "coding" in meanings or meanings.count("chunked") > 1:
        return 501
    return 200


def _framed(lines: tuple[str, str]) -> Case:
    meanings = [_FRAMING_LINES[line] for line in lines]
    status = _framing_status(meanings)
    if status != 200:
        return rejected(status, request(*lines) + b"0\r\n\r\n" + HIDDEN)
    if "chunked" in meanings:
        return accepted(request(*lines) + _HELLO, "hello")
    lengths = [int(line[-1]) for line in lines if _FRAMING_LINES[line] == "length"]
    body = "hello!"[: sum(lengths)]
    return accepted(request(*lines) + body.encode(), body)


PERMUTATIONS = {
    " | ".join(lines): _framed(lines) for lines in itertools.product(_FRAMING_LINES, repeat=2)
}

_CHUNKS = {
    "one": (_HELLO, "hello"),
    "two": (b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "hello"),
    "none": (b"0\r\n\r\n", ""),
    "leading zeros": (b"0005\r\nhello\r\n000\r\n\r\n", "hello"),
    "upper and lower case": (b"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "0123456789" * 2),
    "a request inside": (b"%x\r\n" % len(HIDDEN) + HIDDEN + b"\r\n0\r\n\r\n", HIDDEN.decode()),
    "the last chunk inside": (b"5\r\n0\r\n\r\n\r\n0\r\n\r\n", "0\r\n\r\n"),
    "extension": (b"5;a\r\nhello\r\n0\r\n\r\n", "hello"),
    "extension with a value": (b"5;a=b\r\nhello\r\n0;c=d\r\n\r\n", "hello"),
    "quoted extension": (b'5;a="b;\\"c"\r\nhello\r\n0\r\n\r\n', "hello"),
    "two extensions": (b"5;a=b;c\r\nhello\r\n0\r\n\r\n", "hello"),
    "trailer": (b"5\r\nhello\r\n0\r\nX: y\r\nZ:\r\n\r\n", "hello"),
    "no size": (b"\r\nhello\r\n0\r\n\r\n", 400),
    "no hexadecimal size": (b"g\r\nhello\r\n0\r\n\r\n", 400),
    "0x": (b"0x5\r\nhello\r\n0\r\n\r\n", 400),
    "plus": (b"+5\r\nhello\r\n0\r\n\r\n", 400),
    "minus": (b"-5\r\nhello\r\n0\r\n\r\n", 400),
    "underscore": (b"0_5\r\nhello\r\n0\r\n\r\n", 400),
    "space before the size": (b" 5\r\nhello\r\n0\r\n\r\n", 400),
    "space after the size": (b"5 \r\nhello\r\n0\r\n\r\n", 400),
    "tab after the size": (b"5\t\r\nhello\r\n0\r\n\r\n", 400),
    "a comma": (b"5,\r\nhello\r\n0\r\n\r\n", 400),
    "two sizes": (b"5 5\r\nhello\r\n0\r\n\r\n", 400),
    "size of 16 digits": (b"0000000000000005\r\nhello\r\n0\r\n\r\n", 400),
    "size of 2**64 + 5": (b"10000000000000005\r\nhello\r\n0\r\n\r\n", 400),
    "size ends with LF": (b"5\nhello\r\n0\r\n\r\n", 400),
    "size ends with CR": (b"5\rhello\r\n0\r\n\r\n", 400),
    "size ends with CR CR LF": (b"5\r\r\nhello\r\n0\r\n\r\n", 400),
    "chunk ends with LF": (b"5\r\nhello\n0\r\n\r\n", 400),
    "chunk without an end": (b"5\r\nhello0\r\n\r\n", 400),
    "chunk that is too long": (b"4\r\nhello\r\n0\r\n\r\n", 400),
    "chunk that is too short": (b"7\r\nhello\r\n0\r\n\r\n", 400),
    "chunk with two ends": (b"5\r\nhello\r\n\r\n0\r\n\r\n", 400),
    "last chunk with LF": (b"5\r\nhello\r\n0\n\n", 400),
    "body ends with LF": (b"5\r\nhello\r\n0\r\n\n", 400),
    "space before an extension": (b"5 ;a=b\r\nhello\r\n0\r\n\r\n", 400),
    "tab before an extension": (b"5\t;a=b\r\nhello\r\n0\r\n\r\n", 400),
    "space before an extension of the last chunk": (b"5\r\nhello\r\n0 ;a\r\n\r\n", 400),
    "space after an extension": (b"5;a \r\nhello\r\n0\r\n\r\n", 400),
    "space before the name of an extension": (b"5; a=b\r\nhello\r\n0\r\n\r\n", 400),
    "space before the sign of an extension": (b"5;a =b\r\nhello\r\n0\r\n\r\n", 400),
    "space before the value of an extension": (b"5;a= b\r\nhello\r\n0\r\n\r\n", 400),
    "space between extensions": (b"5;a ;b\r\nhello\r\n0\r\n\r\n", 400),
    "empty extension": (b"5;\r\nhello\r\n0\r\n\r\n", 400),
    "extension without a name": (b"5;=b\r\nhello\r\n0\r\n\r\n", 400),
    "extension without a value": (b"5;a=\r\nhello\r\n0\r\n\r\n", 400),
    "extension with an open quote": (b'5;a="b\r\nhello\r\n0\r\n\r\n', 400),
    "extension with LF": (b"5;a\nb\r\nhello\r\n0\r\n\r\n", 400),
    "extension with CR": (b"5;a\rb\r\nhello\r\n0\r\n\r\n", 400),
    "extension with NUL": (b"5;a\0\r\nhello\r\n0\r\n\r\n", 400),
    "long extension": (b"5;" + b"a" * 5000 + b"\r\nhello\r\n0\r\n\r\n", 400),
    "trailer without a colon": (b"0\r\nX\r\n\r\n", 400),
    "trailer without a name": (b"0\r\n: y\r\n\r\n", 400),
    "trailer with a space before the colon": (b"0\r\nX : y\r\n\r\n", 400),
    "trailer in two lines": (b"0\r\nX: y\r\n z\r\n\r\n", 400),
    "trailer with LF": (b"0\r\nX: y\n\r\n", 400),
    "trailer with CR": (b"0\r\nX: y\rz\r\n\r\n", 400),
    "trailer with NUL": (b"0\r\nX: \0\r\n\r\n", 400),
}
CHUNKS = {
    f"chunks: {name}": Case(request(CHUNKED) + body, (answer,))
    for name, (body, answer) in _CHUNKS.items()
}

_TRAILERS = (
    "Connection: close",
    "Connection: keep-alive",
    "Connection: Upgrade",
    "Proxy-Connection: close",
    "Proxy-Connection: keep-alive",
    "Upgrade: h2c",
    "Upgrade: websocket",
    "Connection: Upgrade\r\nUpgrade: websocket",
    "X-Content-Length: 33",
    "Content-Lengths: 33",
    "Transfer-Encodin: chunked",
    "Host: y",
    "Expect: 100-continue",
    "Authorization: Bearer x",
    "Trailer: Connection",
)
_REJECTED_TRAILERS = (
    "Content-Length: 33",
    "Content-Length: 0",
    "Content-Length: x",
    "content-length:",
    "Transfer-Encoding: chunked",
    "TRANSFER-ENCODING: gzip",
    "X: y\r\nContent-Length: 33",
    "Connection: close\r\nContent-Length: 33",
    "Transfer-Encoding: chunked\r\nContent-Length: 33",
)
TRAILER_BODIES = {
    trailer: b"5\r\nhello\r\n0\r\n" + trailer.encode() + b"\r\n\r\n"
    for trailer in (*_TRAILERS, *_REJECTED_TRAILERS)
}
"""Chunked bodies by the trailers at their end."""
TRAILERS = {
    f"trailer {trailer!r}{' twice' * (count - 1)}": Case(
        (request(CHUNKED) + TRAILER_BODIES[trailer]) * count, ("hello",) * count
    )
    for trailer in _TRAILERS
    for count in (1, 2)
}
TRAILERS |= {
    f"trailer {trailer!r}": rejected(400, request(CHUNKED) + TRAILER_BODIES[trailer] + HIDDEN)
    for trailer in _REJECTED_TRAILERS
}

_OFFERS = {
    "h2c": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
    "websocket": ("Connection: upgrade", "Upgrade: websocket"),
    "TLS": ("Upgrade: TLS/1.0", "Connection: Upgrade"),
    "an unknown protocol": ("Connection: Upgrade", "Upgrade: x/1, y"),
    "Upgrade without Connection": ("Upgrade: h2c",),
    "Connection without Upgrade": ("Connection: Upgrade",),
    "an empty Upgrade": ("Connection: Upgrade", "Upgrade:"),
}
_BODIES = {
    "no body": ((), b"", ""),
    "a length": (("Content-Length: 5",), b"hello", "hello"),
    "chunks": ((CHUNKED,), _HELLO, "hello"),
}
UPGRADES = {
    f"{method} offers {protocol}, with {kind}": Case(
        request(*offer, *headers, start=f"{method} /echo HTTP/1.1", body=body) * 2, (text, text)
    )
    for method in ("GET", "POST", "PUT")
    for protocol, offer in _OFFERS.items()
    for kind, (headers, body, text) in _BODIES.items()
}
UPGRADES["close and an offer"] = Case(
    request("Connection: close, Upgrade", "Upgrade: h2c", "Content-Length: 5", body=b"hello"),
    ("hello",),
    closes=True,
)

# --- several requests -----------------------------------------------------------------------------

_GET = request(start="GET / HTTP/1.1")
SEQUENCES = {
    "an empty line before a request": accepted(b"\r\n" + _GET),
    "ten empty lines before a request": accepted(b"\r\n" * 10 + _GET),
    "eleven empty lines before a request": rejected(400, b"\r\n" * 11 + _GET),
    "many empty lines before a request": rejected(400, b"\r\n" * 1000 + _GET),
    "ten empty lines before each request": Case((b"\r\n" * 10 + _GET) * 3, ("",) * 3),
    "empty lines between requests": Case(_GET + b"\r\n\r\n\r\n" + _GET, ("", "")),
    "an empty line after a body": Case(
        request("Content-Length: 5", body=b"hello\r\n") + _GET, ("hello", "")
    ),
    "LF before a request": rejected(400, b"\n" + _GET),
    "CR before a request": rejected(400, b"\r" + _GET),
    "a space before a request": rejected(400, b" " + _GET),
    "lines that end with LF": rejected(400, _GET.replace(b"\r\n", b"\n")),
    "lines that end with CR": rejected(400, _GET.replace(b"\r\n", b"\r") + b"\r\n\r\n"),
    "70 requests": Case(_GET * 70, ("",) * 70),
    "requests with different bodies": Case(
        b"".join(
            request(*headers, start=f"{method} /echo HTTP/1.1", body=body)
            for headers, body, _ in _BODIES.values()
            for method in ("POST", "GET")
        ),
        tuple(text for _, _, text in _BODIES.values() for _ in range(2)),
    ),
    "rubbish after a request": Case(_GET + b"\0\r\n\r\n" + HIDDEN, ("", 400)),
    "a version after a request": Case(_GET + b"GET / HTTP/2.0\r\n\r\n" + HIDDEN, ("", 505)),
    "a coding after a request": Case(_GET + request("Transfer-Encoding: x") + HIDDEN, ("", 501)),
}

TABLES: dict[str, dict[str, Case]] = {
    "methods": METHODS,
    "versions": VERSIONS,
    "targets": TARGETS,
    "names": NAMES,
    "values": VALUES,
    "header lines": HEADER_LINES,
    "hosts": HOSTS,
    "connections": CONNECTIONS,
    "expectations": EXPECTATIONS,
    "lengths": LENGTHS,
    "codings": CODINGS,
    "permutations": PERMUTATIONS,
    "chunks": CHUNKS,
    "trailers": TRAILERS,
    "upgrades": UPGRADES,
    "sequences": SEQUENCES,
}
CASES = {name: case for table in TABLES.values() for name, case in table.items()}
