"""Parser of one connection: finds the requests in the bytes that arrive."""

from __future__ import annotations

import re

from gleanery.http.body import ChunkedDecoder, LengthDecoder
from gleanery.http.errors import BadRequest, HeadTooLarge
from gleanery.http.head import REQUEST_LINE, HeaderCache, RequestHead, parse_head
from gleanery.http.request import HttpRequest, Transport

_HEAD_END = b"\r\n\r\n"
# Ends a head whose lines do not end in CRLF. It is malformed, so it is not waited for.
_ANY_HEAD_END = re.compile(rb"\n\r?\n")
_EMPTY_LINES = re.compile(rb"\A(?:\r\n)++")
_MAX_EMPTY_LINES = 10  # before one request
_METHOD_START = re.compile(rb"[A-Z][A-Z_-]{0,31}(?: |\Z)|\r\Z")


class RequestParser:
    """Finds one request at a time. The bytes after it stay unparsed until the next call."""

    def __init__(self, transport: Transport, max_head_bytes: int) -> None:
        self._transport = transport
        self._max_head_bytes = max_head_bytes
        self._cache = HeaderCache()
        self.unparsed = b""
        """Bytes that have arrived and were not parsed yet."""
        self._searched = 0  # unparsed bytes that do not contain the end of a head
        self._empty_lines = 0  # before the next request
        self._body: LengthDecoder | ChunkedDecoder | None = None
        self.parsed_heads = 0
        """Requests whose heads were complete."""

    @property
    def is_in_head(self) -> bool:
        """True if a part of a head has arrived."""
        return bool(self.unparsed) and self._body is None

    def add(self, data: bytes) -> None:
        self.unparsed = self.unparsed + data if self.unparsed else data

    def clear(self) -> None:
        """Drop everything that was not parsed."""
        self.unparsed, self._searched, self._body = b"", 0, None

    def next_request(self) -> HttpRequest | None:
        """Return the next request, without its body, if its head has arrived.

        Raise ``HttpError``, after which nothing more can be parsed.
        """
        data = self.unparsed
        target = self._cache.target_in(data)
        if target is not None:
            self.unparsed, self._searched = b"", 0
            return self._repeated_request(target)
        data = self._find_head()
        if not data:
            return None
        self.unparsed, self._searched = self.unparsed[len(data) :], 0
        self._empty_lines = 0
        target = self._cache.target_in(data)
        return self._parsed_request(data) if target is None else self._repeated_request(target)

    def _repeated_request(self, target: bytes) -> HttpRequest:
        self.parsed_heads += 1
        path, _, query = target.partition(b"?")
        return HttpRequest(self._transport, "GET", path, query, self._cache.block, True, True)

    def _parsed_request(self, data: bytes) -> HttpRequest:
        head = parse_head(data)
        self.parsed_heads += 1
        self._cache.store(data, head)
        self._body = self._decoder(head)
        return HttpRequest(
            self._transport,
            head.method,
            head.path,
            head.query,
            head.block,
            head.keep_alive,
            self._body is None,
            head.expects_continue,
            head.is_1_1,
        )

    def _decoder(self, head: RequestHead) -> LengthDecoder | ChunkedDecoder | None:
        if head.body_length is None:
            return ChunkedDecoder(self._max_head_bytes)
        return LengthDecoder(head.body_length) if head.body_length else None

    def _find_head(self) -> bytes:
        """Return the bytes of the next head; nothing if it is not complete."""
        if self.unparsed.startswith(b"\r\n"):  # some clients send an empty line after a body
            self._skip_empty_lines()
        data = self.unparsed
        end = data.find(_HEAD_END, self._searched) + len(_HEAD_END)
        if end < len(_HEAD_END):
            self._check_incomplete_head(data)
            self._searched = max(0, len(data) - len(_HEAD_END) + 1)
            return b""
        if end > self._max_head_bytes:
            raise HeadTooLarge(self._max_head_bytes)
        return data[:end]

    def _skip_empty_lines(self) -> None:
        rest = _EMPTY_LINES.sub(b"", self.unparsed, count=1)
        self._empty_lines += (len(self.unparsed) - len(rest)) // len(b"\r\n")
        if self._empty_lines > _MAX_EMPTY_LINES:
            raise BadRequest("there are too many empty lines before the request line")
        self.unparsed = rest

    def _check_incomplete_head(self, data: bytes) -> None:
        """Raise an error as early as possible, so that the client need not wait for it."""
        if not data:
            return
        if len(data) > self._max_head_bytes:
            raise HeadTooLarge(self._max_head_bytes)
        # The request line is checked once: a long one takes longer than a packet of one byte.
        has_new_line = data.find(b"\n") >= self._searched
        if _METHOD_START.match(data) is None or (has_new_line and not REQUEST_LINE.match(data)):
            raise BadRequest("the request line is malformed")
        if _ANY_HEAD_END.search(data, self._searched):
            raise BadRequest("the lines of a head must end with CR LF")

    def read_body(self, request: HttpRequest) -> bool:
        """Give a request the part of its body that has arrived. Return True if that is enough.

        Raise ``HttpError``, after which nothing more can be parsed.
        """
        assert self._body is not None
        pieces, self.unparsed = self._body.decode(self.unparsed)
        is_enough = request.add_body(pieces)
        if self._body.is_complete:
            self._body = None
            request.complete()
        return is_enough
