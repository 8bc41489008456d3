"""Fuzz targets: the parsers of untrusted input, their invariants and their seed inputs.

A target returns if the input is correctly accepted or correctly rejected. Otherwise it raises.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from tempfile import gettempdir
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from fuzz import connection, session_documents
from gleanery.service.api import binding
from gleanery.service.api.context import BoundRequest, RequestMemo, api_url
from gleanery.service.api.operation import Router
from gleanery.service.application import OPERATIONS
from gleanery.service.foundation import field_types
from gleanery.service.foundation.blobs import open_blobs
from gleanery.service.foundation.errors import (
    ErrorDetail,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    Unauthenticated,
)
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import countries, json_text, timestamps
from gleanery.service.http import HttpError, InvalidForm, RangeNotSatisfiable
from gleanery.service.http.content import FileForm, FileHead, requested_range
from gleanery.service.http.parser import RequestParser
from gleanery.service.http.request import HttpRequest, Transport, is_not_modified
from gleanery.service.resources.access import authentication
from gleanery.service.resources.files import handlers
from gleanery.service.resources.files.links import FileLinks
from gleanery.service.resources.outputs import batches
from gleanery.service.resources.outputs.batches import Batch, BatchOptions
from gleanery.service.resources.outputs.models import IngestQuery, Output, OutputQuery
from gleanery.sessions.model import MAX_DOMAIN_LENGTH, normalize_domain


class Target(NamedTuple):
    """A check that must hold for any input, and the inputs to start from."""

    run: Callable[[bytes], None]
    seeds: Sequence[bytes]


# --- JSON -----------------------------------------------------------------------------------------


def check_json(text: bytes) -> None:
    """Both decoders agree, numbers keep all digits, and encoding preserves the value."""
    try:
        value = json_text.decode(text)
    except json_text.InvalidJson:
        return
    assert is_identical(value, json_text._decode_exactly(text))
    assert_same_numbers(value, json.loads(text, parse_float=Decimal))
    assert is_identical(json_text.decode(json_text.encode(value)), value)
    canonical = json_text.canonical(value)
    assert json_text.canonical(json_text.decode(canonical)) == canonical


def is_identical(one: Any, other: Any) -> bool:
    """Compare values, the order of members and the types of numbers: 1 and 1.0 differ."""
    return type(one) is type(other) and repr(one) == repr(other)


def assert_same_numbers(value: Any, exact: Any) -> None:
    """Assert that decoding changed no integer, in any notation."""
    if isinstance(exact, dict):
        for name, member in exact.items():
            assert_same_numbers(value[name], member)
    elif isinstance(exact, list):
        for element, exact_element in zip(value, exact, strict=True):
            assert_same_numbers(element, exact_element)
    elif isinstance(exact, Decimal) and exact != exact.to_integral_value():
        assert value == float(exact)
    elif isinstance(exact, Decimal):
        assert Decimal(repr(value)) == exact
    else:
        assert value == exact


# --- timestamps, hostnames, countries -------------------------------------------------------------


def check_timestamp(data: bytes) -> None:
    """Accepted timestamps equal those of ``datetime``, and survive rendering and parsing."""
    text = data.decode("utf-8", "replace")
    try:
        timestamp = timestamps.parse(text)
    except ValueError:
        return
    rendered = timestamps.render_microseconds(timestamp)
    assert timestamps.parse(rendered) == timestamp // timestamps.SECOND * timestamps.SECOND
    assert timestamps.parse(text.lower()) == timestamp
    expected = datetime.fromisoformat(text.upper())
    expected = expected if expected.tzinfo else expected.replace(tzinfo=UTC)
    microseconds = (expected - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if timestamps.parse("0001-01-01") <= microseconds <= timestamps.MAX_SECONDS * timestamps.SECOND:
        assert timestamp == microseconds


def check_expiry(data: bytes) -> None:
    """An expiry of any JSON type. Values that the API returns are accepted unchanged."""
    try:
        seconds = field_types._parse_expiry(json_text.decode(data))
    except ValueError:
        return
    if seconds is not None:
        assert field_types._parse_expiry(timestamps.render(seconds)) == seconds
        assert seconds < 0 or field_types._parse_expiry(seconds) == seconds


def check_hostname(data: bytes) -> None:
    """All spellings have one normal form, which holds no scheme, port or path."""
    text = data.decode("utf-8", "replace")
    try:
        host = normalize_domain(text)
    except ValueError:
        return
    assert normalize_domain(host) == host == host.lower()
    assert len(host) <= MAX_DOMAIN_LENGTH
    if "[" not in host:  # in brackets only the syntax is checked
        bare = host.removeprefix(".")
        assert urlsplit(f"http://{bare}/")[:3] == ("http", bare, "/")
    if text.isascii():
        assert normalize_domain(text.upper()) == host == text.lower()


def check_country(data: bytes) -> None:
    """A country code maps to itself, and a region has one spelling."""
    text = data.decode("utf-8", "replace")
    key = countries.country_key(text)
    assert key is None or "\0" not in key
    if key is not None and re.fullmatch("[A-Z]{2}", key):
        assert countries.country_key(key) == key
    if text.isascii():
        assert countries.country_key(text.upper()) == countries.country_key(text.lower()) == key
    region = countries.region_key(text)
    assert region is None or countries.region_key(text.lower()) == region == text.upper()


# --- parts of a request ---------------------------------------------------------------------------


_QUERIES = [operation.query for operation in OPERATIONS if operation.query is not None]
_OUTPUTS = bytes([_QUERIES.index(OutputQuery)])  # the first byte selects the operation
_ROUTER = Router(OPERATIONS)


def check_query(data: bytes) -> None:
    """A URL built from a bound query binds to the same query."""
    model, query_string = _QUERIES[(data or b"\0")[0] % len(_QUERIES)], data[1:]
    bound = bind_query(model, query_string)
    if bound is not None and "cursor" in model.model_fields:
        query = dict(bound.next_page_parameters) | {"cursor": bound.cursor}
        url = urlsplit(api_url("http://host", "outputs", query=query))
        assert bind_query(model, url.query.encode("ascii")) == bound


def bind_query(model: Any, query_string: bytes) -> binding.BoundQuery | None:
    """Return the bound query; None if it is invalid."""
    try:
        return binding.bind_query(model, query_string)
    except InvalidRequest:
        return None


def check_head(data: bytes) -> None:
    """A request is read the same with and without a request before it that it repeats."""
    first, _, second = data.partition(b"\0")
    before = _Reader()
    before.feed(first)
    if not before.is_between_requests or len(before.requests) != 1:
        return
    alone = _Reader()
    alone.feed(second)
    before.feed(second)
    assert before.requests[1:] == alone.requests
    if len(alone.requests) == 1 and before.is_well:
        assert_is_repeat_of(before.requests[0], alone.requests[0])


def assert_is_repeat_of(one: _Read, other: _Read) -> None:
    """A request that is taken for a repeat is bound to the same, except for the cursor."""
    bound = bind_query(OutputQuery, one.query)
    if bound is None:
        return
    memo = RequestMemo()
    memo.store(one.path, one.query, BoundRequest(OPERATIONS[0], {}, bound))
    cursor = memo.find_cursor(other.path, other.query)
    if cursor is not None:
        found = bind_query(OutputQuery, other.query)
        assert found is not None
        assert one.path == other.path
        assert (found.next_page_parameters, found.cursor) == (bound.next_page_parameters, cursor)


class _Read(NamedTuple):
    method: str
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    keep_alive: bool


class _Reader:
    """Takes the requests that a parser finds, as a connection does."""

    def __init__(self) -> None:
        self.parser = RequestParser(cast(Transport, None), 65536)
        self.requests: list[_Read] = []
        self.is_well = True
        self._current: HttpRequest | None = None

    @property
    def is_between_requests(self) -> bool:
        """Tells if another request may follow."""
        if not self.is_well or not all(request.keep_alive for request in self.requests):
            return False
        return not self.parser.unparsed and self._is_complete

    @property
    def _is_complete(self) -> bool:
        return self._current is None or self._current.is_complete

    def feed(self, data: bytes) -> None:
        try:
            if self.is_well and data:
                self.parser.add(data)
                self._read_requests()
        except HttpError:
            self.is_well = False

    def _read_requests(self) -> None:
        while True:
            if not self._is_complete:
                self.parser.read_body(cast(HttpRequest, self._current))
            if not self._is_complete or (found := self.parser.next_request()) is None:
                return
            self._current = found
            self.requests.append(
                _Read(found.method, found.path, found.query, found.headers, found.keep_alive)
            )


def check_path(data: bytes) -> None:
    """A path that matches an operation matches it again after its parameters are re-encoded."""
    try:
        operation, parameters = _ROUTER.find("GET", data)
        binding.bind_path(parameters, operation.creates_resource)
    except (NotFound, MethodNotAllowed, InvalidRequest):
        return
    template = operation.path.split("/")
    segments = [parameters[part[1:-1]] if part[:1] == "{" else part for part in template]
    if operation.path.startswith("/v1/"):
        path = urlsplit(api_url("http://host", *segments[2:], query={})).path
        assert _ROUTER.find("GET", path.encode("ascii")) == (operation, parameters)


_BODIES = [operation.body for operation in OPERATIONS if operation.body not in (None, bytes)]


def check_body(data: bytes) -> None:
    """A body is accepted, or rejected with error details that have a message and a location."""
    try:
        bound = binding.bind_body(_BODIES[(data or b"\0")[0] % len(_BODIES)], data[1:], 100, 10_000)
        if isinstance(bound, Batch):
            bound.parse_all()
        details: Sequence[ErrorDetail] = ()
    except InvalidRequest as error:
        details = error.details
    for detail in details:
        assert detail.msg
        assert all(isinstance(part, str) for part in detail.loc)


def check_batch(text: bytes) -> None:
    """The fast path and the model return the same outputs or the same errors."""
    by_model = _result(lambda: batches.parse_outputs(text, 100))
    by_fast_path = _result(lambda: _bound(text, IngestQuery()).parsed)
    assert by_fast_path == by_model
    if isinstance(by_fast_path, str):
        outputs = _bound(text, IngestQuery()).outputs
        identities = [(output.job_id, output.source_url, output.key) for output in outputs]
        assert identities == [
            (o.job_id, o.source_url, o.key) for o in batches.parse_outputs(text, 100)
        ]


def _bound(text: bytes, query: IngestQuery) -> Batch:
    batch = batches.bind_json(text, 100, 10_000, query)
    assert isinstance(batch, Batch)
    return batch


def check_items(text: bytes) -> None:
    """Bare items are the same outputs on both paths. If some are skipped, the others are stored."""
    query = IngestQuery(job_id="j", url_field="u", key_field="k")
    options = BatchOptions.from_query(query)
    strictly = _result(lambda: batches.parse_json(text, 100, options).parsed)
    assert _result(lambda: _bound(text, query).parsed) == strictly
    if isinstance(strictly, str):
        identified = [(output.source_url, output.key) for output in _bound(text, query).outputs]
        assert identified == [(o.source_url, o.key) for o in _bound(text, query).parsed]
    skip = query.model_copy(update={"on_error": "skip"})
    skipping = _result(lambda: _bound(text, skip).parsed)
    if isinstance(strictly, str):
        assert skipping == strictly
    elif isinstance(skipping, str):  # an element was skipped; else the whole text is invalid
        skipped = _bound(text, skip).skipped
        assert skipped is not None
        assert list(skipped.details) == list(strictly)


def _result(read: Callable[[], Sequence[Output]]) -> str | Sequence[ErrorDetail]:
    """Return the errors, or a text of the outputs in which 1 and 1.0 differ."""
    try:
        return repr(list(read()))
    except InvalidRequest as error:
        return error.details


def check_range(data: bytes) -> None:
    """A range is inside the file, and is the whole file if the header asks for no range."""
    size, header = len(data) % 7 * 10, data
    try:
        part = requested_range({b"range": header}, b'"etag"', size)
    except RangeNotSatisfiable:
        return
    assert 0 <= part.start <= part.stop <= size
    assert (part.start < part.stop) if part.is_partial else (part.start, part.stop) == (0, size)
    assert requested_range({b"range": header, b"if-range": b'"x"'}, b'"etag"', size).stop == size
    is_not_modified({b"if-none-match": header}, b'"etag"')


def check_form(data: bytes) -> None:
    """A form gives the same file, or is rejected, however its bytes arrive."""
    assert _parse_form([data]) == _parse_form([data[n : n + 1] for n in range(len(data))])


def _parse_form(pieces: Sequence[bytes]) -> tuple[FileHead, bytes] | None:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def parse() -> tuple[FileHead, bytes]:
        form = FileForm("multipart/form-data; boundary=b", chunks())
        return await form.head(), b"".join([chunk async for chunk in form.content()])

    try:
        return asyncio.run(parse())
    except InvalidForm:
        return None


def check_token(data: bytes) -> None:
    """Only a header with a well-formed token causes a database query."""
    try:
        token = authentication._bearer_token(data)
    except Unauthenticated:
        return
    assert token.startswith(tokens.PREFIX)
    assert len(tokens.digest(token)) == 32


_LINKS = FileLinks("http://host", Vault(lambda: [b"k" * 32]), open_blobs(gettempdir()), 900)


def check_file_link(data: bytes) -> None:
    """No input has a valid signature."""
    parts = data.decode("utf-8", "replace").split(" ", 3)
    organization, expires, signature, file_id = parts + [""] * (4 - len(parts))
    assert not _LINKS.is_valid(file_id, organization, expires, signature, now=0)


def check_media_type(data: bytes) -> None:
    """The detected media type is always valid in a header."""
    declared, _, head = data.partition(b"\n")
    detected = handlers.detect_media_type(head[: handlers.HEAD_BYTES], declared.decode("latin-1"))
    assert re.fullmatch(r"[!-~]+/[!-~]+", detected)


# --- all targets ----------------------------------------------------------------------------------

_ID = b"0123456789abcdef0123456789abcdef"
_PAGE = b"GET /v1/outputs/shop?limit=10&cursor=%s HTTP/1.1\r\nHost: a\r\nAccept: cursor=1 \r\n\r\n"
TARGETS = {
    "json": Target(
        check_json,
        (
            b'{"a":[1,2.5,-3e2,true,null],"b":{"c":"\\u00e9\\ud83d\\ude00"},"a":0}',
            b"[9007199254740993.0,123456789012345678901234567890,1e16,-0.0,1E400]",
            b"[" * 120 + b'"\\ud800"' + b"]" * 120,
        ),
    ),
    "timestamps": Target(
        check_timestamp,
        (b"2026-11-15", b"2026-11-15T10:20:30Z", b"0001-01-01t00:00:00.123456789+23:59"),
    ),
    "expiry": Target(check_expiry, (b'"2030-01-01T00:00:00+01:00"', b"-1", b"1.5e9", b"null")),
    "hostnames": Target(
        check_hostname, (b".Example.com", "bücher.example".encode(), b"[::1]", "a。b".encode())
    ),
    "countries": Target(
        check_country, (b"U.S.A.", "Côte d’Ivoire".encode(), b"The Gambia", b"de-by")
    ),
    "query": Target(
        check_query,
        (
            _OUTPUTS + b"limit=10&cursor=17&job_id=a%20b&created_after=2026-01-01",
            _OUTPUTS + b"country=UK&region=GB-LND&url=https%3A%2F%2Fa.example%2F%3Fa%3D1&cursor=0",
            b"\x00domain=.a.example&cursor=1&cursor=2",
        ),
    ),
    "head": Target(
        check_head,
        (
            _PAGE % b"17" + b"\0" + _PAGE % b"123456789012345678",
            _PAGE % b"1&cursor=2" + b"\0" + _PAGE % b"007",
            _PAGE % b"17" + b"\0" + _PAGE % b"17 HTTP/1.1\r\nhost: a\r\n\r\n",
            _PAGE % b"1&url=/?cursor=7" + b"\0" + _PAGE % b"1&url=/?cursor=8",
            _PAGE.replace(b"&cursor=%s", b"") + b"\0" + b"17",
        ),
    ),
    "path": Target(
        check_path,
        (b"/v1/outputs/shop%20prices", b"/v1/groups/a%2Fb", b"/v1/files/" + _ID, b"/healthz"),
    ),
    "body": Target(
        check_body,
        (
            b'\x00[{"domain":"a.example","name":"n","value":"v","expires":"2030-01-01T00:00:00Z"}]',
            b'\x01[{"domain":"a.example","key":"k","value":"v","group_id":0,"path":"/"}]',
            b'\x02{"job_id":"j","status":"approved","comment":"fine"}',
            b'\x03[{"job_id":"j","source_url":"u","data":{},"tags":{},"files":[{"field":"f"}]}]',
            b'\x04{"key_fields":["a"],"schema":{"type":"object"},"retain_days":30,"keep_versions":0}',
        ),
    ),
    "batch": Target(
        check_batch,
        (
            b'[{"job_id":"j","source_url":"u","data":{"a":1.0},"key":null,"more":"\xc3\xa9"}]',
            b'[ {"data":{},"data":{"a":[]},"source_url":"u","job_id":"\\u006a"} , {"job_id":"j"}]',
            b'[{"job_id":".","source_url":"\\u0000","data":{"n":12345678901234567890},"tags":{}}]',
            b'[{"job_id":"j","source_url":"u","data":{"a":' + b"[" * 98 + b"]" * 98 + b"}}]",
            b'[{"job_id":"j","source_url":"u","data":{"a":' + b"[" * 97 + b"]" * 97 + b"}}]",
            b'[{"job_id":"j","source_url":"u","data":{},"files":[{"field":"f","file_url":"u"}]}]',
        ),
    ),
    "items": Target(
        check_items,
        (
            b'[{"u":"https://a","k":1,"x":[1.0]},{"u":"b","k":"1"},{"u":"","k":"2"}]',
            b'[{"u":"a","k":12345678901234567890123},{"u":"a","k":1.0},{"u":"a","k":true},1]',
            b'[{"u":"a","u":"b","k":"\\u0000"},{"k":"k"},{"u":"\\ud800","k":null},{"u":NaN}]',
            b'[{"u":"a","k":1,"d":' + b"[" * 97 + b"]" * 97 + b'},{"u":"a","k":1}]',
            b'[{"u":"a","k":1,"d":' + b"[" * 98 + b"]" * 98 + b'},{"u":"a","k":1}]',
        ),
    ),
    "range": Target(check_range, (b"bytes=0-9", b"bytes=-5", b"bytes=5-", b'W/"etag", *')),
    "form": Target(
        check_form,
        (
            b'--b\r\nContent-Disposition: form-data; name=f; filename="a"\r\n\r\nx\r\n--b--\r\n',
            b"--b\r\nContent-Disposition: form-data; filename*=utf-8''a\r\n\r\n\r\n--\r\n--b--",
        ),
    ),
    "token": Target(check_token, (b"Bearer " + b"glean_" + b"0" * 49, b"basic YTpi")),
    "file-link": Target(check_file_link, (b"1 99999999999 " + _ID + b" " + _ID,)),
    "media-type": Target(
        check_media_type,
        (b"application/pdf\n%PDF-1.7\n", b"text/csv; charset=utf-8\na,b\n1,2\n", b"\nPK\x03\x04"),
    ),
    **{
        f"session-{name}": Target(session_documents.target(name), session_documents.seeds(name))
        for name in session_documents.READERS
    },
    "connection": Target(connection.run, connection.SEEDS),
}
