"""Push: batches, their order and size, items at fault, and connections that break."""

from __future__ import annotations

import asyncio
import gzip
import json
import pickle
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import httpx2
import msgspec
import pytest

from gleanery import AsyncClient, Client
from gleanery.client import (
    Conflict,
    Invalid,
    ItemError,
    PushFailed,
    PushReport,
    TooLarge,
    Unauthorized,
)
from tests.support.forwarder import Forwarder
from tests.support.service import Client as HttpClient
from tests.support.service import Service


def _items(count: int, start: int = 0) -> Iterator[dict[str, Any]]:
    for n in range(start, start + count):
        yield {"url": f"https://shop.example/{n}", "sku": n, "price": n / 4}


def _data(client: Client, group: str = "prices") -> list[dict[str, Any]]:
    return [output.data for output in client.outputs(group)]


class _Wire(httpx2.BaseTransport):
    """Passes requests on to the service. A test can look at them, and let them fail."""

    def __init__(self) -> None:
        self._inner = httpx2.HTTPTransport(verify=False)
        self.requests: list[httpx2.Request] = []
        self.bodies: list[bytes] = []
        self.lost_responses = 0
        """Number of requests that are stored, and whose response does not arrive."""
        self.max_bytes = 1 << 30
        """The limit of a proxy."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        body = request.read()
        self.requests.append(request)
        self.bodies.append(body)
        request.url = request.url.copy_with(host="127.0.0.1")
        if len(body) > self.max_bytes:
            return httpx2.Response(413, text="<html>413 Request Entity Too Large</html>")
        response = self._inner.handle_request(request)
        if self.lost_responses:
            self.lost_responses -= 1
            response.read()
            raise httpx2.ReadError("connection reset")
        return response

    @property
    def keys(self) -> list[str]:
        return [request.headers["idempotency-key"] for request in self.requests]


@pytest.fixture
def wire() -> _Wire:
    return _Wire()


@pytest.fixture
def pusher(service: Service, wire: _Wire) -> Iterator[Client]:
    with httpx2.Client(transport=wire) as http_client:
        yield Client(service.url, service.token(), max_retries=2, http_client=http_client)


def test_items_are_stored_in_batches(pusher: Client, wire: _Wire) -> None:
    seen: list[int] = []
    report = pusher.push(
        "prices",
        _items(25),
        job_id="shop",
        key_field="sku",
        batch_size=10,
        on_progress=lambda report: seen.append(report.items),
    )
    assert report == PushReport(items=25, created=25, batches=3)
    assert seen == [10, 20, 25]
    assert len(set(wire.keys)) == 3
    assert _data(pusher) == [*_items(25)]
    assert {output.root_job_id for output in pusher.outputs("prices")} == {"shop"}


def test_pushing_again_changes_nothing(pusher: Client) -> None:
    pusher.push("prices", _items(5), job_id="shop")
    changed = [*_items(3), {"url": "https://shop.example/3", "price": 0}]
    report = pusher.push("prices", changed, job_id="shop")
    assert (report.created, report.updated, report.unchanged) == (0, 1, 3)


def test_items_without_a_job_are_outputs(pusher: Client) -> None:
    outputs = [{"job_id": "shop", "source_url": "https://a.example/", "data": {}, "key": "a"}]
    assert pusher.push("prices", outputs).created == 1
    assert pusher.push("prices", []) == PushReport()


def test_lines_are_sent_as_they_are(pusher: Client, wire: _Wire) -> None:
    lines = [
        b'{ "url": "https://a.example/", "n": 12345678901234567890.0 }\n',
        b"\n",
        '{"url": "https://b.example/", "name": "Straße"}\r\n',
        msgspec.Raw(b'{"url": "https://c.example/"}'),
    ]
    report = pusher.push("prices", lines, job_id="shop")
    assert (report.items, report.created, report.skipped) == (4, 3, 0)
    assert wire.bodies == [
        b'{ "url": "https://a.example/", "n": 12345678901234567890.0 }\n'
        b'{"url": "https://b.example/", "name": "Stra\xc3\x9fe"}\n'
        b'{"url": "https://c.example/"}'
    ]


def test_later_items_of_a_key_win(pusher: Client) -> None:
    items = [{"url": "https://a.example/", "n": n} for n in range(7)]
    pusher.push("prices", items, job_id="shop", batch_size=2)
    assert _data(pusher) == [{"url": "https://a.example/", "n": 6}]


def test_an_asynchronous_push_takes_both_kinds_of_iterables(service: Service) -> None:
    async def generate() -> AsyncIterator[dict[str, Any]]:
        for item in _items(5):
            yield item

    async def push(token: str) -> tuple[PushReport, PushReport]:
        async with AsyncClient(service.url, token) as client:
            first = await client.push("prices", generate(), job_id="shop", batch_size=2)
            return first, await client.push("prices", _items(5), job_id="shop")

    first, second = asyncio.run(push(service.token()))
    assert (first.created, first.batches, second.unchanged) == (5, 3, 5)


# --- values -------------------------------------------------------------------------------------


@dataclass
class Size:
    """A value of another type than JSON has."""

    width: float


def test_values_of_python_keep_their_meaning(pusher: Client) -> None:
    class Seller(msgspec.Struct, rename="camel"):
        full_name: str

    item = {
        "url": "https://a.example/",
        "seen": datetime(2026, 11, 16, 12, 30, tzinfo=UTC),
        "day": date(2026, 11, 16),
        "price": Decimal("9.50"),
        "large": Decimal("12345678901234567890123"),
        "integer": 2**80,
        "seller": Seller("Ann"),
        "size": Size(2.5),
        "colours": {"red", "blue"},
        "pair": (1, None),
        "text": 'Straße "\u2028\n',
    }
    pusher.push("prices", [item], job_id="shop")
    stored = json.loads(next(iter(pusher.outputs("prices").raw())))["data"]
    assert stored == {
        "url": "https://a.example/",
        "seen": "2026-11-16T12:30:00+00:00",
        "day": "2026-11-16",
        "price": 9.5,
        "large": 12345678901234567890123,
        "integer": 2**80,
        "seller": {"fullName": "Ann"},
        "size": {"width": 2.5},
        "colours": ["blue", "red"],
        "pair": [1, None],
        "text": 'Straße "\u2028\n',
    }


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (float("nan"), "NaN"),
        (b"secret", "bytes has no JSON form"),
        ({"secret", 1}, "without an order"),
        (Decimal("0.1234567890123456789"), "more digits"),
        (Decimal("NaN"), "more digits"),
        ("\ud800", "surrogate"),
        ({(1, 2): 3}, "key"),
        (object(), "object has no JSON form"),
    ],
)
def test_a_value_without_a_json_form_is_an_error(
    pusher: Client, wire: _Wire, value: Any, problem: str
) -> None:
    items = [*_items(3), {"url": "https://a.example/", "value": value}]
    with pytest.raises(PushFailed, match=problem) as raised:
        pusher.push("prices", items, job_id="shop", batch_size=2)
    assert [(error.index, error.loc) for error in raised.value.errors] == [(3, ("value",))]
    assert "secret" not in str(raised.value)
    assert raised.value.report.items == 2
    report = pusher.push("prices", items, job_id="shop", on_error="skip")
    assert (report.items, report.skipped, report.errors[0].index) == (4, 1, 3)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({"offers": [{"price": 1}, {"price": float("nan")}]}, "offers.1.price: NaN"),
        ({"size": Size(float("inf"))}, "size.width: NaN"),
        ({"a": {"\ud800": float("nan")}}, "a: NaN"),
        ({"a": "\ud800", "b": float("nan")}, "a: a lone surrogate"),
        ({"a": {1: b""}}, "a.1: bytes has no JSON form"),
    ],
)
def test_the_path_to_a_value_without_a_json_form_is_named(
    pusher: Client, data: dict[str, Any], place: str
) -> None:
    item = {"url": "https://a.example/", **data}
    with pytest.raises(PushFailed, match=re.escape(f"item 0: {place}")) as raised:
        pusher.push("prices", [item], job_id="shop")
    assert str(raised.value).isascii()


def test_the_path_to_a_reference_to_itself_ends(pusher: Client) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(PushFailed, match=r"item 0: value\.0.*: NaN, Infinity, or a reference"):
        pusher.push("prices", [{"url": "https://a.example/", "value": loop}], job_id="shop")


def test_a_line_break_inside_a_line_is_an_error(pusher: Client) -> None:
    with pytest.raises(PushFailed, match="item 0: has a line break"):
        pusher.push("prices", [b'{"url":\n"https://a.example/"}'], job_id="shop")


@pytest.mark.parametrize("kind", [LookupError, KeyboardInterrupt])
def test_the_items_before_an_error_of_their_source_are_stored(
    pusher: Client, kind: type[BaseException]
) -> None:
    def scrape() -> Iterator[dict[str, Any]]:
        yield from _items(25)
        raise kind("the site has changed")

    with pytest.raises(kind, match="the site has changed") as raised:
        pusher.push("prices", scrape(), job_id="shop", batch_size=10)
    assert raised.value.__notes__ == ["The first 25 items are stored."]
    assert _data(pusher) == [*_items(25)]


def test_the_items_before_an_error_of_an_asynchronous_source_are_stored(service: Service) -> None:
    async def scrape() -> AsyncIterator[dict[str, Any]]:
        for item in _items(5):
            yield item
        raise LookupError("the site has changed")

    async def push(token: str) -> int:
        async with AsyncClient(service.url, token) as client:
            with pytest.raises(LookupError, match="the site has changed"):
                await client.push("prices", scrape(), job_id="shop", batch_size=2)
            return len([output async for output in client.outputs("prices")])

    assert asyncio.run(push(service.token())) == 5


def test_a_failure_of_the_last_batch_does_not_hide_the_error_of_the_source(
    pusher: Client,
) -> None:
    def scrape() -> Iterator[dict[str, Any]]:
        yield {"no": "url"}
        raise LookupError("the site has changed")

    with pytest.raises(PushFailed, match="item 0: url: is missing") as raised:
        pusher.push("prices", scrape(), job_id="shop")
    causes = [raised.value.__context__]
    while causes[-1] is not None:
        causes.append(causes[-1].__context__)
    assert any(isinstance(cause, LookupError) for cause in causes)


def test_wrong_arguments_are_errors(pusher: Client) -> None:
    with pytest.raises(TypeError, match="iterable of items"):
        pusher.push("prices", "items.jsonl", job_id="shop")
    with pytest.raises(ValueError, match="batch_size"):
        pusher.push("prices", [], batch_size=1001)
    with pytest.raises(ValueError, match="max_batch_bytes"):
        pusher.push("prices", [], max_batch_bytes=0)


# --- items at fault -----------------------------------------------------------------------------


def test_an_invalid_item_is_named_by_its_position_in_the_input(pusher: Client) -> None:
    items = [*_items(25), {"url": 7}, b"{", *_items(5)]
    with pytest.raises(PushFailed, match=r"item 25: url: expected .* The first 20 items") as raised:
        pusher.push("prices", items, job_id="shop", batch_size=10)
    failure = raised.value
    assert [error.index for error in failure.errors] == [25, 26]
    assert failure.errors[0].loc == ("url",)
    assert isinstance(failure.cause, Invalid)
    assert (failure.report.items, failure.report.created) == (20, 20)
    assert len(_data(pusher)) == 20


def test_invalid_items_are_skipped_and_listed(pusher: Client) -> None:
    items = [{"sku": 1}, *_items(12), b"[", b"\n", {"url": "https://a.example/", "n": b""}]
    report = pusher.push("prices", items, job_id="shop", batch_size=5, on_error="skip")
    assert (report.items, report.created, report.skipped) == (16, 12, 3)
    assert [error.index for error in report.errors] == [0, 13, 15]
    assert report.errors[0] == ItemError(0, ("url",), "is missing", "missing")


def test_the_errors_of_a_report_are_bounded(pusher: Client) -> None:
    report = pusher.push("prices", [{}, b""] * 150, job_id="shop", on_error="skip", batch_size=20)
    assert (report.items, report.skipped, len(report.errors)) == (300, 150, 100)
    items = ({"n": float("inf")} for _ in range(150))
    report = pusher.push("prices", items, job_id="shop", on_error="skip", batch_size=20)
    assert (report.items, report.skipped, len(report.errors)) == (150, 150, 100)


def test_a_rejected_push_stores_nothing(pusher: Client, service: Service, wire: _Wire) -> None:
    with pytest.raises(PushFailed, match=r"No item is stored") as raised:
        Client(service.url, "wrong").push("prices", _items(1), job_id="shop")
    assert isinstance(raised.value.cause, Unauthorized)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    with pytest.raises(
        PushFailed, match=r"is no output with .*: give job_id, for bare items"
    ) as bare:
        pusher.push("prices", _items(1))
    assert "URL" not in str(bare.value)
    with pytest.raises(PushFailed, match="job_id"):
        pusher.push("prices", _items(1), key_field="sku", on_error="skip")
    assert len(wire.requests) == 2


# --- sizes --------------------------------------------------------------------------------------


def test_batches_are_limited_in_bytes(pusher: Client, wire: _Wire) -> None:
    large = {"url": "https://a.example/", "text": "x" * 5000}
    pusher.push("prices", [*_items(3), large, *_items(3)], job_id="shop", max_batch_bytes=200)
    assert [len(body.splitlines()) for body in wire.bodies] == [3, 1, 3]
    assert max(map(len, wire.bodies[::2])) <= 200


def test_a_batch_that_a_proxy_rejects_is_split(pusher: Client, wire: _Wire) -> None:
    wire.max_bytes = 400
    report = pusher.push("prices", _items(40), job_id="shop", batch_size=20)
    assert (report.items, report.created, report.skipped) == (40, 40, 0)
    assert _data(pusher) == [*_items(40)]
    rejected = [len(body) for body in wire.bodies if len(body) > 400]
    assert len(rejected) < 5  # the next batches are smaller


def test_an_item_that_is_too_large_is_named(pusher: Client, wire: _Wire) -> None:
    wire.max_bytes = 400
    items = [*_items(9), {"url": "https://a.example/", "text": "x" * 500}, *_items(3, 9)]
    with pytest.raises(PushFailed, match="item 9: ") as raised:
        pusher.push("prices", items, job_id="shop")
    assert isinstance(raised.value.cause, TooLarge)
    assert raised.value.report.items == len(_data(pusher))
    report = pusher.push("prices", items, job_id="shop", on_error="skip")
    assert (report.items, report.skipped, report.errors[0].index) == (13, 1, 9)
    assert len(_data(pusher)) == 12


@pytest.mark.thorough
def test_an_item_beyond_a_limit_of_the_service_is_skipped_alone(pusher: Client) -> None:
    values = b'{"url":"https://a.example/","n":[' + b"1," * 1_000_001 + b"1]}"
    items = [*_items(3), values, *_items(3, 3)]
    with pytest.raises(PushFailed, match="item 3: "):
        pusher.push("prices", items, job_id="shop")
    report = pusher.push("prices", items, job_id="shop", on_error="skip")
    assert (report.items, report.skipped, report.errors[0].index) == (7, 1, 3)
    assert _data(pusher) == [*_items(6)]


# --- connections that break ---------------------------------------------------------------------


@pytest.mark.thorough
def test_a_batch_whose_response_is_lost_is_counted_as_it_was_stored(
    pusher: Client, wire: _Wire
) -> None:
    wire.lost_responses = 1
    items = [*_items(4), {"sku": 1}]
    report = pusher.push("prices", items, job_id="shop", on_error="skip")
    assert (report.created, report.unchanged, report.skipped) == (4, 0, 1)
    assert (report.retries, len(wire.requests), len(set(wire.keys))) == (1, 2, 1)


_UNKNOWN = r"first 4 items are stored\. It is not known whether the batch after them is stored"


def test_a_first_batch_whose_response_is_lost_may_be_stored(pusher: Client, wire: _Wire) -> None:
    wire.lost_responses = 3
    with pytest.raises(PushFailed, match="not known whether the first batch is stored") as raised:
        pusher.push("prices", [*_items(4)], job_id="shop")
    assert "No item is stored" not in str(raised.value)


@pytest.mark.parametrize("kind", [list, iter])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"secret", {1, 2}, (1, 2)])
def test_a_list_stores_the_same_as_a_generator(
    pusher: Client, kind: Callable[[Any], Any], value: Any
) -> None:
    """A list of plain dicts is encoded at once; other values are encoded one by one."""
    deep = {"url": "https://a.example/deep", "values": [{"a": [None, {"b": [value]}]}]}
    plain = {"url": "https://a.example/", "values": [1.5, 1e16, 2**70, None, True, "ü\r\n\u2028"]}
    items = [*_items(3), deep, plain]
    report = pusher.push("prices", kind(items), job_id="shop", on_error="skip")
    assert report.items == 5
    if isinstance(value, set | tuple):
        assert report.skipped == 0
        expected = [*_items(3), {**deep, "values": [{"a": [None, {"b": [[1, 2]]}]}]}, plain]
    else:
        assert [error.index for error in report.errors] == [3]
        expected = [*_items(3), plain]
    assert _data(pusher) == expected


@pytest.mark.thorough
def test_a_push_that_gives_up_says_what_is_stored(pusher: Client, wire: _Wire) -> None:
    def items() -> Iterator[dict[str, Any]]:
        yield from _items(4)
        wire.lost_responses = 3
        yield from _items(4, 4)

    with pytest.raises(PushFailed, match=_UNKNOWN) as raised:
        pusher.push("prices", items(), job_id="shop", batch_size=4)
    report = raised.value.report
    assert (report.items, report.created, report.retries) == (4, 4, 2)
    rest = pusher.push("prices", [*_items(8)][report.items :], job_id="shop")
    assert rest.items == 4
    assert _data(pusher) == [*_items(8)]


def test_a_conflict_is_not_retried(client: HttpClient, service: Service) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        answered.append(request)
        detail = [{"loc": ["header", "idempotency-key"], "msg": "used", "type": "conflict"}]
        return httpx2.Response(409, json={"detail": detail})

    answered: list[httpx2.Request] = []
    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http_client:
        pusher = Client(service.url, client.token, http_client=http_client)
        with pytest.raises(PushFailed) as raised:
            pusher.push("prices", _items(1), job_id="shop")
    assert isinstance(raised.value.cause, Conflict)
    assert len(answered) == 1


def test_bodies_for_another_machine_are_compressed(service: Service, wire: _Wire) -> None:
    port = service.url.rpartition(":")[2]
    with httpx2.Client(transport=wire) as http_client:
        client = Client(
            f"http://other-machine.example:{port}", service.token(), http_client=http_client
        )
        client.push("prices", _items(100), job_id="shop")
        client.push("prices", _items(1), job_id="shop")
        assert len(_data(client)) == 100
    first, second, _ = wire.requests
    assert first.headers["content-encoding"] == "gzip"
    assert gzip.decompress(wire.bodies[0]).count(b"\n") == 99
    assert "content-encoding" not in second.headers  # it is small


@pytest.mark.thorough
def test_an_item_larger_than_a_body_may_be_is_named(pusher: Client) -> None:
    items = [*_items(1), {"url": "https://a.example/", "text": "x" * 33_600_000}, *_items(1, 1)]
    message = "item 1: A line may have at most 33554432 bytes. The first item is stored."
    with pytest.raises(PushFailed) as raised:
        pusher.push("prices", items, job_id="shop")
    assert str(raised.value) == message
    report = pusher.push("prices", items, job_id="shop", on_error="skip")
    assert (report.items, report.created, report.unchanged, report.skipped) == (3, 1, 1, 1)


@pytest.mark.thorough
def test_connections_that_break_at_any_point_change_no_count(service: Service) -> None:
    """A batch can be cut before it arrives, while it is stored, and in its response."""
    forwarder = Forwarder(("127.0.0.1", int(service.url.rpartition(":")[2])))
    forwarder.start()
    delays = iter([0.0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1])
    timers: list[threading.Timer] = []

    def cut() -> None:
        forwarder.stop()
        forwarder.start()

    def cut_later(report: PushReport) -> None:
        for timer in timers[-1:]:
            timer.join()
        if (delay := next(delays, None)) is not None:
            timers.append(threading.Timer(delay, cut))
            timers[-1].start()

    with Client(f"http://127.0.0.1:{forwarder.port}", service.token(), max_retries=8) as client:
        report = client.push(
            "prices", _items(4500), job_id="shop", batch_size=500, on_progress=cut_later
        )
        timers[-1].join()
        assert (report.items, report.created, report.unchanged) == (4500, 4500, 0)
        assert _data(client) == [*_items(4500)]
    forwarder.stop()
