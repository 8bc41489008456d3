"""Retries of the client, against a server that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Protocol

import pytest

from gleanery import AsyncClient, Client
from gleanery.client import (
    ApiError,
    ConnectionFailed,
    InvalidResponse,
    RateLimited,
    TimedOut,
    Unavailable,
)
from tests.support import faulty_server as faults
from tests.support.faulty_server import PAGE, FaultyServer, Step, faulty_server, respond

TOKEN = "token"


class Start(Protocol):
    def __call__(self, *script: Step) -> FaultyServer: ...


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a server with a script."""
    with ExitStack() as stack:
        yield lambda *script: stack.enter_context(faulty_server(*script))


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays before retries; nothing waits."""
    found: list[float] = []
    monkeypatch.setattr("gleanery.client._sync.requester.sleep", found.append)
    return found


def read(server: FaultyServer, **options: float) -> list[object]:
    with Client(server.url, TOKEN, **options) as client:  # type: ignore[arg-type]
        return list(client.outputs("g"))


TEMPORARY = {
    **{f"status {status}": respond(status) for status in (408, 429, 500, 502, 503, 504)},
    "closed at once": faults.CLOSE,
    "closed in the head": faults.CLOSE_IN_HEAD,
    "closed in the body": faults.CLOSE_IN_BODY,
    "chunks without an end": faults.CHUNKS_WITHOUT_END,
    "another protocol": faults.NOT_HTTP,
}


@pytest.mark.parametrize("fault", TEMPORARY.values(), ids=TEMPORARY.keys())
def test_temporary_failures_are_retried(fault: Step, start: Start, delays: list[float]) -> None:
    server = start(fault, fault, PAGE)
    assert read(server) == []
    assert len(server.heads) == 3
    assert 0.25 <= delays[0] <= 0.5 <= delays[1] <= 1.0


@pytest.mark.parametrize("fault", [faults.STALL, faults.STALL_IN_BODY])
def test_a_response_that_stops_is_retried(fault: Step, start: Start, delays: list[float]) -> None:
    server = start(fault, PAGE)
    assert read(server, timeout=0.1) == []
    assert len(server.heads) == 2


@pytest.mark.parametrize("status", [300, 301, 304, 400, 401, 404, 409, 410, 412, 413, 422, 501])
def test_other_statuses_are_not_retried(status: int, start: Start, delays: list[float]) -> None:
    server = start(respond(status))
    with pytest.raises(ApiError) as raised:
        read(server)
    assert (raised.value.status, raised.value.attempts) == (status, 1)
    assert len(server.heads) == 1


@pytest.mark.parametrize(
    "body", [faults.DAMAGED_GZIP, respond(200, {"ok": True}), respond(204, b"")]
)
def test_a_response_of_another_form_is_not_retried(body: Step, start: Start) -> None:
    server = start(body)
    with pytest.raises(InvalidResponse):
        read(server)
    assert len(server.heads) == 1


def test_a_page_for_people_is_retried_and_names_its_content_type(
    start: Start, delays: list[float]
) -> None:
    page = respond(200, b"<html>Please wait</html>", content_type="text/html; charset=utf-8")
    server = start(page, PAGE)
    read(server)
    assert len(server.heads) == 2
    with pytest.raises(InvalidResponse, match=r"text/html, status 200.* \(after 3 attempts\)"):
        read(start(page), max_retries=2)


def test_a_response_of_another_form_names_its_content_type(start: Start) -> None:
    with pytest.raises(InvalidResponse, match=r"\(text/plain\)"):
        read(start(respond(200, b"ok", content_type="text/plain")))


def test_an_error_says_how_often_the_request_was_sent(start: Start, delays: list[float]) -> None:
    server = start(respond(503))
    with pytest.raises(Unavailable, match=r"status 503 .* \(after 3 attempts\)") as raised:
        read(server, max_retries=2)
    assert raised.value.attempts == len(server.heads) == 3
    with pytest.raises(ConnectionFailed, match=r"after 5 attempts"):
        read(start(faults.CLOSE))


def test_delays_grow_up_to_a_limit(start: Start, delays: list[float]) -> None:
    with pytest.raises(Unavailable):
        read(start(respond(503)), max_retries=20)
    longest = [min(0.5 * 2**retry, 8.0) for retry in range(20)]
    pairs = list(zip(delays, longest, strict=True))
    assert all(limit / 2 <= delay <= limit for delay, limit in pairs)
    assert len(set(delays)) == 20  # random, so that clients do not retry at the same time


def test_the_service_says_when_to_retry(start: Start, delays: list[float]) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    script = [respond(429, retry_after="7"), respond(503, retry_after=date), PAGE]
    assert read(start(*script)) == []
    assert delays[0] == 7
    assert 50 < delays[1] <= 60


@pytest.mark.parametrize("value", ["soon", "-5", "Sun, 99 Foo 2026", "1.5", ""])
def test_an_unreadable_retry_after_is_ignored(
    value: str, start: Start, delays: list[float]
) -> None:
    assert read(start(respond(503, retry_after=value), PAGE)) == []
    assert delays[0] <= 0.5


def test_a_long_retry_after_is_an_error_at_once(start: Start, delays: list[float]) -> None:
    server = start(respond(429, retry_after="121"))
    with pytest.raises(RateLimited) as raised:
        read(server)
    assert (raised.value.retry_after, raised.value.attempts) == (121, 1)
    assert delays == []
    assert read(start(respond(429, retry_after="121"), PAGE), max_retry_after=200) == []
    assert delays == [121]


@pytest.mark.thorough
def test_the_asynchronous_client_retries_too(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def read_async(server: FaultyServer) -> list[object]:
        async with AsyncClient(server.url, TOKEN, timeout=0.1) as client:
            return [output async for output in client.outputs("g")]

    waited: list[float] = []
    monkeypatch.setattr("gleanery.client._async.requester.sleep", sleep)
    script = [faults.CLOSE_IN_BODY, respond(503, retry_after="3"), faults.STALL_IN_BODY, PAGE]
    assert asyncio.run(read_async(start(*script))) == []
    assert waited[1] == 3
    with pytest.raises(TimedOut, match="after 5 attempts"):
        asyncio.run(read_async(start(faults.STALL)))
