"""Errors that the client makes of responses."""

from __future__ import annotations

import asyncio
import copy
import pickle

import httpx2
import pytest

from gleanery import AsyncClient, Client
from gleanery.client import ApiError, ClientError, ErrorDetail, errors
from tests.support.faulty_server import PAGE, Step, faulty_server, respond

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]


def error_of(kind: type[ClientError]) -> ClientError:
    if issubclass(kind, ApiError):
        return kind(429, [ErrorDetail(("query",), "no", "t")], "request", 3.0)
    return kind("no")


def test_errors_can_be_pickled_and_copied() -> None:
    for kind in KINDS:
        if not issubclass(kind, ClientError):
            continue
        error = error_of(kind)
        error.attempts = 2
        error.add_note("note")
        for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(other) is kind
            assert str(other) == str(error)
            assert vars(other) == vars(error)


def test_a_redirect_is_reported_and_not_followed() -> None:
    given = httpx2.Client(follow_redirects=True, verify=False)
    with faulty_server(PAGE) as other:
        place = f"{other.url}/v1/outputs/g?signature=secret"
        with (
            faulty_server(respond(308, b"", location=place)) as server,
            Client(server.url, "t", http_client=given) as client,
            pytest.raises(ApiError, match="redirects to") as raised,
        ):
            list(client.outputs("g"))
        assert other.url in str(raised.value)
        assert "secret" not in str(raised.value)
        assert other.heads == []


def test_a_page_of_a_proxy_gives_a_short_error() -> None:
    page = b"<html>" + b"<p>Bad Gateway</p>" * 1000
    with (
        faulty_server(respond(502, page, content_type="text/html")) as server,
        Client(server.url, "t", max_retries=0) as client,
        pytest.raises(ApiError) as raised,
    ):
        list(client.outputs("g"))
    assert str(raised.value) == "The service responded with status 502 and without an explanation"


@pytest.mark.parametrize("body", [{"detail": "Not Found"}, {"detail": []}, {"detail": {}}, [], 1])
def test_errors_of_another_service_have_a_message(body: object) -> None:
    with (
        faulty_server(respond(404, body)) as server,
        Client(server.url, "t") as client,
        pytest.raises(ApiError, match="status 404 and without an explanation"),
    ):
        list(client.outputs("g"))


def test_interim_responses_are_skipped() -> None:
    async def read() -> list[object]:
        async with AsyncClient(server.url, "t") as client:
            return [output async for output in client.outputs("g")]

    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    with faulty_server(Step(interim * 2 + PAGE.sent, "keep")) as server:
        with Client(server.url, "t") as client:
            assert [*client.outputs("g"), *client.outputs("g")] == asyncio.run(read()) == []
        assert len(server.heads) == 3
