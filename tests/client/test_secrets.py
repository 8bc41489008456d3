"""The token is in no text that the client produces."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import pickle
import traceback
from collections.abc import Iterator
from types import CoroutineType, FrameType, FunctionType, ModuleType

import pytest

from gleanery import AsyncClient, Client
from gleanery.client import ClientError, FileChanged
from tests.support import faulty_server as faults
from tests.support.faulty_server import PAGE, Step, faulty_server, respond

SECRET = "planted-secret-token"


def reachable_objects(start: object) -> Iterator[object]:
    """Everything that the object refers to, except code and the text of the token itself."""
    found = {id(start): start}
    waiting = [start]
    while waiting:
        current = waiting.pop()
        yield current
        for value in gc.get_referents(current):
            if id(value) not in found and not isinstance(
                value, type | ModuleType | FunctionType | FrameType | str | bytes
            ):
                found[id(value)] = value
                waiting.append(value)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is logged, by the HTTP library as well."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    # An integration that another test has used makes the loggers of the library quiet.
    loggers = [logging.getLogger(name) for name in ("", "httpx2", "httpcore2")]
    levels = [logger.level for logger in loggers]
    loggers[0].addHandler(handler)
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    yield text
    loggers[0].removeHandler(handler)
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def test_no_object_of_the_client_shows_the_token(log: io.StringIO) -> None:
    with (
        faulty_server(respond(503, retry_after="0"), PAGE) as server,
        Client(server.url, SECRET, headers={"x-team": "a"}) as client,
    ):
        list(client.outputs("g"))
        shown = [repr(value) for value in reachable_objects(client)]
    assert len(shown) > 50
    assert [text for text in shown if SECRET in text] == []
    assert "retry 1 in" in log.getvalue()
    assert SECRET not in log.getvalue()


def test_the_asynchronous_client_does_not_show_the_token_either(log: io.StringIO) -> None:
    async def read(url: str) -> list[str]:
        async with AsyncClient(url, SECRET) as client:
            assert [output async for output in client.outputs("g")] == []
            objects = reachable_objects(client)
            return [repr(value) for value in objects if not isinstance(value, CoroutineType)]

    with faulty_server(PAGE) as server:
        shown = asyncio.run(read(server.url))
    assert [text for text in shown if SECRET in text] == []
    assert "send_request_headers" in log.getvalue()  # httpcore2 logs what it does
    assert SECRET not in log.getvalue()


FAULTS = [
    *(respond(status, b"<html>no</html>") for status in (301, 401, 403, 404, 409, 410, 413)),
    *(respond(status, b"<html>no</html>") for status in (422, 429, 500, 503)),
    respond(422, {"detail": [{"loc": ["query", "x"], "msg": "no", "type": "t"}]}),
    respond(200, {}),
    faults.CLOSE,
    faults.CLOSE_IN_BODY,
    faults.STALL,
    faults.DAMAGED_GZIP,
    faults.NOT_HTTP,
]


def all_texts(error: BaseException) -> Iterator[str]:
    yield from traceback.TracebackException.from_exception(error, capture_locals=True).format()
    link: BaseException | None = error
    while link is not None:
        yield from (str(link), repr(link))
        link = link.__cause__ or link.__context__


@pytest.mark.parametrize("fault", FAULTS)
def test_no_error_shows_the_token(fault: Step, log: io.StringIO) -> None:
    with faulty_server(fault) as server:
        client = Client(server.url, SECRET, max_retries=0, timeout=0.1)
        with pytest.raises(ClientError) as raised:
            list(client.outputs("g"))
    assert [text for text in all_texts(raised.value) if SECRET in text] == []
    assert SECRET.encode() not in pickle.dumps(raised.value)
    assert SECRET not in log.getvalue()


def test_an_upload_that_fails_in_its_body_does_not_show_the_token() -> None:
    class Shrinking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return b""

    with (
        faulty_server(PAGE) as server,
        Client(server.url, SECRET, max_retries=0) as client,
        pytest.raises(FileChanged) as raised,
    ):
        client.upload(Shrinking(b"content"))
    assert [text for text in all_texts(raised.value) if SECRET in text] == []


def test_headers_that_cannot_be_sent_are_not_shown() -> None:
    for headers in ({"x-key": f"{SECRET}\n"}, {"x-key": f"{SECRET}ü"}):
        with (
            faulty_server(PAGE) as server,
            Client(server.url, SECRET, headers=headers) as client,
            pytest.raises(ClientError, match="check the address and headers") as raised,
        ):
            list(client.outputs("g"))
        link = raised.value.__cause__ or raised.value.__context__
        assert link is None
        assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_an_own_authorization_header_does_not_replace_the_token() -> None:
    with faulty_server(PAGE) as server:
        headers = {"Authorization": "Basic other", "X-Team": "a"}
        with Client(server.url, SECRET, headers=headers) as client:
            list(client.outputs("g"))
        assert f"authorization: Bearer {SECRET}".lower() in server.heads[0].lower()
        assert "Basic" not in server.heads[0]
        assert "x-team: a" in server.heads[0].lower()
