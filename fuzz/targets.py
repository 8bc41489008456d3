"""The readers under the contract, each with what must hold for any bytes, and a few to start from.

A target returns for bytes that are rightly taken or rightly refused, and raises for all others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from tempfile import gettempdir
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fuzz import connection
from gleanery.api import authentication, binding, urls
from gleanery.api.file_links import FileLinks
from gleanery.api.operations import OPERATIONS
from gleanery.api.repeats import BoundRequest, RequestMemo
from gleanery.api.routing import Router
from gleanery.blobs import open_blobs
from gleanery.errors import (
    ErrorDetail,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    Unauthenticated,
)
from gleanery.http import HttpError, RangeNotSatisfiable
from gleanery.http.parser import Position, RequestParser
from gleanery.http.ranges import is_not_modified, requested_range
from gleanery.http.request import HttpRequest
from gleanery.models import fields
from gleanery.models.batches import Batch
from gleanery.models.requests import Output, OutputIn, OutputQuery
from gleanery.security import tokens
from gleanery.security.vault import Vault
from gleanery.values import countries, hostnames, json_text, media_types, timestamps


class Target(NamedTuple):
    """What is done with the bytes, and the bytes to begin with."""

    run: Callable[[bytes], None]
    seeds: Sequence[bytes]


# --- JSON -----------------------------------------------------------------------------------------


def read_json(text: bytes) -> None:
    """Both ways of reading agree, no digit is lost, and what is written is read back."""
    try:
        value = json_text.decode(text)
    except json_text.BadJson:
        return
    assert alike(value, json_text._decoded_exactly(text))
    assert_keeps_digits(value, json.loads(text, parse_float=Decimal))
    assert alike(json_text.decode(json_text.encode(value)), value)
    canonical = json_text.canonical(value)
    assert json_text.canonical(json_text.decode(canonical)) == canonical


def alike(one: Any, other: Any) -> bool:
    """Equal, members in the same order, and numbers of one type: 1 and 1.0 are written apart."""
    return type(one) is type(other) and repr(one) == repr(other)


def assert_keeps_digits(value: Any, exact: Any) -> None:
    """No integer, however it is spelled, has become another one."""
    if isinstance(exact, dict):
        for name, member in exact.items():
            assert_keeps_digits(value[name], member)
    elif isinstance(exact, list):
        for element, its in zip(value, exact, strict=True):
            assert_keeps_digits(element, its)
    elif isinstance(exact, Decimal) and exact != exact.to_integral_value():
        assert value == float(exact)
    elif isinstance(exact, Decimal):
        assert Decimal(repr(value)) == exact
    else:
        assert value == exact


# --- dates, hosts, places -------------------------------------------------------------------------


def read_date(data: bytes) -> None:
    """What is taken is what datetime reads too, and one value however often it is written."""
    text = data.decode("utf-8", "replace")
    try:
        moment = timestamps.parse(text)
    except ValueError:
        return
    written = timestamps.render_moment(moment)
    assert timestamps.parse(written) == moment // timestamps.SECOND * timestamps.SECOND
    assert timestamps.parse(text.lower()) == moment
    read = datetime.fromisoformat(text.upper())
    read = read if read.tzinfo else read.replace(tzinfo=UTC)
    microseconds = (read - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if timestamps.parse("0001-01-01") <= microseconds <= timestamps.LAST * timestamps.SECOND:
        assert moment == microseconds


def read_expiry(data: bytes) -> None:
    """An expiry of any JSON type; what a list gives back is taken as it is."""
    try:
        seconds = fields._expiry(json_text.decode(data))
    except ValueError:
        return
    if seconds is not None:
        assert fields._expiry(timestamps.render(seconds)) == seconds
        assert seconds < 0 or fields._expiry(seconds) == seconds


def read_host(data: bytes) -> None:
    """One form for all spellings, in which nobody finds a scheme, a port or a path."""
    text = data.decode("utf-8", "replace")
    try:
        host = hostnames.normalize(text)
    except ValueError:
        return
    assert hostnames.normalize(host) == host == host.lower()
    assert len(host) <= hostnames.LONGEST
    if "[" not in host:  # what stands in brackets is taken by its form alone
        bare = host.removeprefix(".")
        assert urlsplit(f"http://{bare}/")[:3] == ("http", bare, "/")
    if text.isascii():
        assert hostnames.normalize(text.upper()) == host == text.lower()


def read_place(data: bytes) -> None:
    """A country's code stands for itself; a region has one spelling."""
    text = data.decode("utf-8", "replace")
    key = countries.country_key(text)
    assert key is None or "\0" not in key
    if key is not None and re.fullmatch("[A-Z]{2}", key):
        assert countries.country_key(key) == key
    if text.isascii():
        assert countries.country_key(text.upper()) == countries.country_key(text.lower()) == key
    region = countries.region_key(text)
    assert region is None or countries.region_key(text.lower()) == region == text.upper()


# --- the parts of a request -----------------------------------------------------------------------


_QUERIES = [operation.query for operation in OPERATIONS if operation.query is not None]
_OUTPUTS = bytes([_QUERIES.index(OutputQuery)])  # the first byte chooses the operation
_ROUTER = Router(OPERATIONS)


def read_query(data: bytes) -> None:
    """What is asked by a link that repeats the query is what was asked."""
    model, raw = _QUERIES[(data or b"\0")[0] % len(_QUERIES)], data[1:]
    found = asked(model, raw)
    if found is not None and "cursor" in model.model_fields:
        repeated = dict(found.repeated) | {"cursor": found.cursor}
        link = urlsplit(urls.address("http://host", "outputs", query=repeated))
        assert asked(model, link.query.encode("ascii")) == found


def asked(model: Any, raw: bytes) -> binding.BoundQuery | None:
    try:
        return binding.bind_query(model, raw)
    except InvalidRequest:
        return None


def read_head(data: bytes) -> None:
    """A request is read the same with and without a request before it that it repeats."""
    first, _, second = data.partition(b"\0")
    before = _Reader()
    before.feed(first)
    if before.parser.position is not Position.BETWEEN_REQUESTS or len(before.requests) != 1:
        return
    alone = _Reader()
    alone.feed(second)
    before.feed(second)
    assert before.requests[1:] == alone.requests
    if len(alone.requests) == 1 and before.is_well:
        assert_is_repeat_of(before.requests[0], alone.requests[0])


def assert_is_repeat_of(one: _Read, other: _Read) -> None:
    """A request that is taken for a repeat is bound to the same, except for the cursor."""
    bound = asked(OutputQuery, one.query)
    if bound is None:
        return
    memo = RequestMemo()
    memo.store(one.path, one.query, BoundRequest(OPERATIONS[0], {}, bound))
    cursor = memo.find_cursor(other.path, other.query)
    if cursor is not None:
        found = asked(OutputQuery, other.query)
        assert found is not None
        assert one.path == other.path
        assert (found.repeated, found.cursor) == (bound.repeated, cursor)


class _Read(NamedTuple):
    method: str
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    keep_alive: bool


class _Reader:
    """Takes the requests that a parser finds; stands for a connection."""

    def __init__(self) -> None:
        self.parser = RequestParser(self, 65536)
        self.requests: list[_Read] = []
        self.is_well = True

    def feed(self, data: bytes) -> None:
        try:
            if self.is_well and data:
                self.parser.feed(data)
        except HttpError:
            self.is_well = False

    def on_request(self, request: HttpRequest) -> None:
        read = (request.method, request.path, request.query, request.headers, request.keep_alive)
        self.requests.append(_Read(*read))

    def on_body(self, piece: bytes) -> None:
        pass

    def on_request_end(self) -> None:
        pass

    def on_upgrade(self) -> None:
        self.is_well = False


def read_path(data: bytes) -> None:
    """A path leads to an operation or nowhere, and its names, written anew, lead there again."""
    try:
        operation, named = _ROUTER.find("GET", data)
        binding.bind_path(named, operation.creates_resource)
    except (NotFound, MethodNotAllowed, InvalidRequest):
        return
    steps = [named[part[1:-1]] if part[:1] == "{" else part for part in operation.path.split("/")]
    if operation.path.startswith("/v1/"):
        target = urlsplit(urls.address("http://host", *steps[2:], query={})).path
        assert _ROUTER.find("GET", target.encode("ascii")) == (operation, named)


_BODIES = [operation.body for operation in OPERATIONS if operation.body not in (None, bytes)]


def read_body(data: bytes) -> None:
    """A body is bound, or its faults are told without a word of what it held."""
    try:
        bound = binding.bind_body(_BODIES[(data or b"\0")[0] % len(_BODIES)], data[1:], 100)
        if isinstance(bound, Batch):
            bound.read_whole()
        faults: Sequence[ErrorDetail] = ()
    except InvalidRequest as error:
        faults = error.details
    for fault in faults:
        assert fault.msg
        assert all(isinstance(part, str) for part in fault.loc)


def read_batch(text: bytes) -> None:
    """Cut into texts, outputs say what they say to the model, or have the same faults."""
    strict = _outcome(lambda: binding._outputs(text, 100))
    cut = _outcome(lambda: binding.bind_body(list[OutputIn], text, 100).read_whole().heads)
    assert cut == strict
    if isinstance(cut, str):
        heads = binding.bind_body(list[OutputIn], text, 100).heads
        told = [(head.job_id, head.source_url, head.key) for head in heads]
        assert told == [(o.job_id, o.source_url, o.key) for o in binding._outputs(text, 100)]


def _outcome(read: Callable[[], Sequence[Output]]) -> str | Sequence[ErrorDetail]:
    """Members in the same order, and numbers of one type: 1 and 1.0 are written apart."""
    try:
        return repr(list(read()))
    except InvalidRequest as error:
        return error.details


def read_range(data: bytes) -> None:
    """What is given is inside the file and is what was asked for."""
    size, header = len(data) % 7 * 10, data
    try:
        part = requested_range({b"range": header}, b'"etag"', size)
    except RangeNotSatisfiable:
        return
    assert 0 <= part.start <= part.stop <= size
    assert (part.start < part.stop) if part.is_partial else (part.start, part.stop) == (0, size)
    assert requested_range({b"range": header, b"if-range": b'"x"'}, b'"etag"', size).stop == size
    is_not_modified({b"if-none-match": header}, b'"etag"')


def read_token(data: bytes) -> None:
    """No header but one with a token of ours is worth a look into the database."""
    try:
        token = authentication._bearer_token(data)
    except Unauthenticated:
        return
    assert token.startswith(tokens.PREFIX)
    assert len(tokens.digest(token)) == 32


_LINKS = FileLinks("http://host", Vault(lambda: [b"k" * 32]), open_blobs(gettempdir()), 900)


def read_link(data: bytes) -> None:
    """Nobody makes a link but we."""
    parts = data.decode("utf-8", "replace").split(" ", 3)
    organization, expires, signature, file_id = parts + [""] * (4 - len(parts))
    assert not _LINKS.is_valid(file_id, organization, expires, signature, now=0)


def read_media(data: bytes) -> None:
    """A type that may stand in a header, whatever the bytes and whatever was said of them."""
    declared, _, head = data.partition(b"\n")
    found = media_types.media_type(head[: media_types.HEAD_BYTES], declared.decode("latin-1"))
    assert re.fullmatch(r"[!-~]+/[!-~]+", found)


# --- all of them ----------------------------------------------------------------------------------

_ID = b"0123456789abcdef0123456789abcdef"
_PAGED = b"GET /v1/outputs/shop?limit=10&cursor=%s HTTP/1.1\r\nHost: a\r\nAccept: cursor=1 \r\n\r\n"
TARGETS = {
    "json": Target(
        read_json,
        (
            b'{"a":[1,2.5,-3e2,true,null],"b":{"c":"\\u00e9\\ud83d\\ude00"},"a":0}',
            b"[9007199254740993.0,123456789012345678901234567890,1e16,-0.0,1E400]",
            b"[" * 120 + b'"\\ud800"' + b"]" * 120,
        ),
    ),
    "dates": Target(
        read_date,
        (b"2026-11-15", b"2026-11-15T10:20:30Z", b"0001-01-01t00:00:00.123456789+23:59"),
    ),
    "expiry": Target(read_expiry, (b'"2030-01-01T00:00:00+01:00"', b"-1", b"1.5e9", b"null")),
    "hosts": Target(
        read_host, (b".Example.com", "bücher.example".encode(), b"[::1]", "a。b".encode())
    ),
    "places": Target(read_place, (b"U.S.A.", "Côte d’Ivoire".encode(), b"The Gambia", b"de-by")),
    "query": Target(
        read_query,
        (
            _OUTPUTS + b"limit=10&cursor=17&job_id=a%20b&created_after=2026-01-01",
            _OUTPUTS + b"country=UK&region=GB-LND&url=https%3A%2F%2Fa.example%2F%3Fa%3D1&cursor=0",
            b"\x00domain=.a.example&cursor=1&cursor=2",
        ),
    ),
    "head": Target(
        read_head,
        (
            _PAGED % b"17" + b"\0" + _PAGED % b"123456789012345678",
            _PAGED % b"1&cursor=2" + b"\0" + _PAGED % b"007",
            _PAGED % b"17" + b"\0" + _PAGED % b"17 HTTP/1.1\r\nhost: a\r\n\r\n",
            _PAGED % b"1&url=/?cursor=7" + b"\0" + _PAGED % b"1&url=/?cursor=8",
            _PAGED.replace(b"&cursor=%s", b"") + b"\0" + b"17",
        ),
    ),
    "path": Target(
        read_path,
        (b"/v1/outputs/shop%20prices", b"/v1/groups/a%2Fb", b"/v1/files/" + _ID, b"/healthz"),
    ),
    "body": Target(
        read_body,
        (
            b'\x00[{"domain":"a.example","name":"n","value":"v","expires":"2030-01-01T00:00:00Z"}]',
            b'\x01[{"domain":"a.example","key":"k","value":"v","group_id":0,"path":"/"}]',
            b'\x02{"job_id":"j","status":"approved","comment":"fine"}',
            b'\x03[{"job_id":"j","source_url":"u","data":{},"tags":{},"files":[{"field":"f"}]}]',
            b'\x04{"key_fields":["a"],"schema":{"type":"object"},"retain_days":30}',
        ),
    ),
    "batch": Target(
        read_batch,
        (
            b'[{"job_id":"j","source_url":"u","data":{"a":1.0},"key":null,"more":"\xc3\xa9"}]',
            b'[ {"data":{},"data":{"a":[]},"source_url":"u","job_id":"\\u006a"} , {"job_id":"j"}]',
            b'[{"job_id":".","source_url":"\\u0000","data":{"n":12345678901234567890},"tags":{}}]',
            b'[{"job_id":"j","source_url":"u","data":{"a":' + b"[" * 98 + b"]" * 98 + b"}}]",
            b'[{"job_id":"j","source_url":"u","data":{"a":' + b"[" * 97 + b"]" * 97 + b"}}]",
            b'[{"job_id":"j","source_url":"u","data":{},"files":[{"field":"f","file_url":"u"}]}]',
        ),
    ),
    "range": Target(read_range, (b"bytes=0-9", b"bytes=-5", b"bytes=5-", b'W/"etag", *')),
    "token": Target(read_token, (b"Bearer " + b"glean_" + b"0" * 49, b"basic YTpi")),
    "link": Target(read_link, (b"1 99999999999 " + _ID + b" " + _ID,)),
    "media": Target(
        read_media,
        (b"application/pdf\n%PDF-1.7\n", b"text/csv; charset=utf-8\na,b\n1,2\n", b"\nPK\x03\x04"),
    ),
    "connection": Target(connection.run, connection.SEEDS),
}
