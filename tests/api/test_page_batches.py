"""Batches of repeated pages: the same bytes as on the usual path, and nothing can wait in them."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.common.settings import Settings
from gleanery.service.api import context, read_batches, response
from gleanery.service.api.pipeline import RequestPipeline
from gleanery.service.api.rate_limits import RateLimiter
from gleanery.service.application import App, build_app
from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.http import ClientDisconnected, Header, HeaderBlock
from gleanery.service.processes.start import prepare
from gleanery.service.resources.access import organizations
from gleanery.service.resources.access.authentication import TokenAuthenticator
from gleanery.service.resources.files.links import FileLinks
from gleanery.service.resources.outputs import handlers, search
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.sqlite.database import SqliteDatabase
from tests.support.outputs import output
from tests.support.service import EVERY_SCOPE

NOW = timestamps.now()
COUNT = 30


class FakeRequest:
    """A request without a connection. It notes how it is answered."""

    def __init__(
        self, app: App, block: HeaderBlock, target: str, method: str = "GET", body: bytes = b""
    ) -> None:
        path, _, query = target.encode().partition(b"?")
        self.method, self.path, self.query = method, path, query
        self.header_block, self.headers = block, block.headers
        self.keep_alive = True
        self.state: Any = None
        self.is_write_paused = self.is_closed = False
        self.reads_slowly = False
        self.has_left = False
        self.response: tuple[int, list[Header], bytes] | None = None
        self.is_in_batch = True
        self.started = asyncio.Event()
        self.drained = asyncio.Event()
        self.ended = asyncio.Event()
        self._application = app.application
        self._body = [body]

    async def receive(self) -> bytes:
        return self._body.pop() if self._body else b""

    async def disconnected(self) -> None:
        await asyncio.Event().wait()

    def respond(
        self, status: int, headers: Sequence[Header], body: Sequence[bytes | memoryview]
    ) -> None:
        assert self.response is None
        if self.has_left:
            raise ClientDisconnected
        self.response = (status, list(headers), b"".join(body))
        self.is_write_paused = self.reads_slowly

    def send(self, piece: bytes) -> None:
        raise AssertionError("no page is sent in pieces")

    async def drain(self) -> None:
        await self.drained.wait()
        self.is_write_paused = False

    def skip_body(self) -> None:
        pass

    def start(self) -> None:
        self.is_in_batch = False
        self.started.set()
        task = asyncio.create_task(self._application.handle(self))
        task.add_done_callback(lambda _: self.ended.set())

    def finish(self) -> None:
        self.ended.set()

    async def answered(self) -> FakeRequest:
        """Waits for the end of the request."""
        await self.ended.wait()
        return self

    @property
    def status(self) -> int:
        assert self.response is not None
        return self.response[0]

    @property
    def body(self) -> bytes:
        assert self.response is not None
        return self.response[2]


class Client:
    """Sends requests with the same headers, as one client on one connection."""

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        headers = {b"authorization": f"Bearer {token}".encode(), b"x-request-id": b"17"}
        self._block = HeaderBlock(headers)

    def request(self, target: str, **options: Any) -> FakeRequest:
        return FakeRequest(self._app, self._block, target, **options)

    def admit(self, request: FakeRequest) -> FakeRequest:
        self._app.application.admit(request)
        return request

    async def send(self, target: str, **options: Any) -> FakeRequest:
        return await self.admit(self.request(target, **options)).answered()

    async def store(self, group: str, *stored: dict[str, Any]) -> None:
        headers = dict(self._block.headers) | {b"content-type": b"application/json"}
        body = json_text.encode(list(stored))
        target = f"/v1/outputs/{group}"
        request = FakeRequest(self._app, HeaderBlock(headers), target, "POST", body)
        assert (await self.admit(request).answered()).status == 200


@asynccontextmanager
async def running(folder: Path, **changes: Any) -> AsyncIterator[App]:
    settings = Settings(data=folder, log_level="critical", token_cache_seconds=3600)
    settings = replace(settings, **changes)
    await prepare(settings)
    app = build_app(settings, lambda: NOW)
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


async def new_client(app: App, organization: str = "a", expires: int | None = None) -> Client:
    """A client with a group of outputs, whose token the service knows."""
    async with open_engine(app._services.settings) as database:
        token = await organizations.create_token(database, organization, EVERY_SCOPE, NOW, expires)
    client = Client(app, token)
    await client.store("shop", *(output(n) for n in range(COUNT)))
    return client


def run(folder: Path, test: Callable[[App], Awaitable[None]], **changes: Any) -> None:
    async def within() -> None:
        async with running(folder, **changes) as app:
            await asyncio.wait_for(test(app), 60)

    asyncio.run(within())


# --- the same bytes -------------------------------------------------------------------------------


def test_both_paths_send_the_same_bytes(tmp_path: Path) -> None:
    async def test(app: App) -> None:
        client = await new_client(app)
        for query in (
            "limit=3",
            "limit=100",
            "limit=2&job_id=j",
            "country=Germany&limit=1",
            "approved=false",
        ):
            first = await client.send(f"/v1/outputs/shop?{query}")
            again = await client.send(f"/v1/outputs/shop?{query}")
            assert first.response == again.response
            assert (first.is_in_batch, again.is_in_batch) == (False, True)

    run(tmp_path, test)


def test_another_cursor_gets_the_page_that_the_usual_path_sends(tmp_path: Path) -> None:
    async def test(app: App) -> None:
        client, other = await new_client(app), await new_client(app)
        cursor = None
        await client.send("/v1/outputs/shop?limit=7&cursor=1")
        while (cursor := next_cursor(await client.send(page(7, cursor)))) is not None:
            batched = await client.send(page(7, cursor))
            await other.send("/v1/cookies")  # so that the page is no repeat
            usual = await other.send(page(7, cursor))
            assert (batched.is_in_batch, usual.is_in_batch) == (True, False)
            assert batched.response == usual.response

    run(tmp_path, test)


def page(limit: int, cursor: int | None) -> str:
    return f"/v1/outputs/shop?limit={limit}&cursor={cursor or 1}"


def next_cursor(request: FakeRequest) -> int | None:
    cursor: int | None = json_text.decode(request.body)["metadata"]["next_cursor"]
    return cursor


def test_links_of_files_are_the_same_on_both_paths(tmp_path: Path) -> None:
    async def test(app: App) -> None:
        client = await new_client(app)
        upload = FakeRequest(app, client._block, "/v1/files", "POST", b"bytes")
        stored = json_text.decode((await client.admit(upload).answered()).body)
        await client.store("files", output(1) | {"files": [{"field": "f", "id": stored["id"]}]})
        first = await client.send("/v1/outputs/files")
        again = await client.send("/v1/outputs/files")
        assert b"signature=" in again.body
        assert (first.is_in_batch, again.is_in_batch) == (False, True)
        assert first.response == again.response

    run(tmp_path, test)


def test_requests_of_one_round_are_read_in_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    read_pages = SqliteDatabase.read_pages

    def noted(database: SqliteDatabase, reads: Sequence[Any]) -> Sequence[Any]:
        sizes.append(len(reads))
        return read_pages(database, reads)

    async def test(app: App) -> None:
        clients = [await new_client(app, f"organization {n % 3}") for n in range(12)]
        alone = [await client.send("/v1/outputs/shop?limit=2") for client in clients]
        monkeypatch.setattr(SqliteDatabase, "read_pages", noted)
        requests = [client.admit(client.request("/v1/outputs/shop?limit=2")) for client in clients]
        for request, one in zip(requests, alone, strict=True):
            assert (await request.answered()).response == one.response
        assert sizes == [8, 4]

    run(tmp_path, test)


def test_an_empty_page_is_part_of_a_batch(tmp_path: Path) -> None:
    async def test(app: App) -> None:
        client = await new_client(app)
        target = "/v1/outputs/shop?cursor=999999999999999999"
        first, again = await client.send(target), await client.send(target)
        assert (first.is_in_batch, again.is_in_batch) == (False, True)
        assert first.response == again.response

    run(tmp_path, test)


# --- irregular requests ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/outputs/shop?limit=101", 200),
        ("/v1/outputs/nowhere", 404),
        ("/v1/outputs/shop?limit=0", 422),
        ("/v1/changes/shop", 200),
        ("/healthz", 200),
    ],
)
def test_other_requests_take_the_usual_path(tmp_path: Path, target: str, status: int) -> None:
    async def test(app: App) -> None:
        client = await new_client(app)
        for _ in range(3):
            request = await client.send(target)
            assert (request.status, request.is_in_batch) == (status, False)

    run(tmp_path, test)


def test_a_grant_that_is_not_cached_takes_the_usual_path(tmp_path: Path) -> None:
    async def test(app: App) -> None:
        client = await new_client(app)
        for _ in range(3):
            request = await client.send("/v1/outputs/shop")
            assert (request.status, request.is_in_batch) == (200, False)

    run(tmp_path, test, token_cache_seconds=0)


def test_an_expired_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: App) -> None:
        client = await new_client(app, expires=NOW + timestamps.SECOND)
        assert [(await client.send("/v1/outputs/shop")).status for _ in range(3)] == [200] * 3
        monkeypatch.setattr(app.application._authenticator, "_clock", lambda: NOW * 2)
        assert (await client.send("/v1/outputs/shop")).status == 401

    run(tmp_path, test)


def test_a_request_is_counted_once_on_either_path(tmp_path: Path) -> None:
    async def test(app: App) -> None:
        client = await new_client(app)  # the first of four requests
        requests = [await client.send("/v1/outputs/shop") for _ in range(4)]
        assert [request.status for request in requests] == [200, 200, 200, 429]
        assert [request.is_in_batch for request in requests] == [False, True, True, False]
        left = [dict(request.response[1])[b"ratelimit"][:11] for request in requests]  # type: ignore[index]
        assert left == [b'"token";r=%d' % n for n in (2, 1, 0, 0)]

    run(tmp_path, test, rate_limit="4/hour")


def test_postgresql_has_no_batches() -> None:
    from gleanery.service.storage.postgres.database import PostgresDatabase

    assert PostgresDatabase.page_reader is None


# --- errors and slow clients ----------------------------------------------------------------------


def test_an_error_of_one_request_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_response = handlers.page_response

    def fails_once(*arguments: Any) -> Any:
        monkeypatch.setattr(handlers, "page_response", page_response)
        raise RuntimeError("the first response fails")

    async def test(app: App) -> None:
        clients = [await new_client(app, f"organization {n}") for n in range(4)]
        alone = [await client.send("/v1/outputs/shop") for client in clients]
        monkeypatch.setattr(handlers, "page_response", fails_once)
        requests = [client.admit(client.request("/v1/outputs/shop")) for client in clients]
        for request, one in zip(requests, alone, strict=True):
            assert (await request.answered()).response == one.response
        assert [request.is_in_batch for request in requests] == [False, True, True, True]

    run(tmp_path, test)


def test_a_read_that_fails_takes_the_usual_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_pages = SqliteDatabase.read_pages

    def second_fails(database: SqliteDatabase, reads: Sequence[Any]) -> Sequence[Any]:
        read = list(read_pages(database, reads))
        read[1] = RuntimeError("the second read fails")
        return read

    async def test(app: App) -> None:
        clients = [await new_client(app, f"organization {n}") for n in range(3)]
        for client in clients:
            await client.send("/v1/outputs/shop")
        monkeypatch.setattr(SqliteDatabase, "read_pages", second_fails)
        requests = [client.admit(client.request("/v1/outputs/shop")) for client in clients]
        for request in requests:
            assert (await request.answered()).status == 200
        assert [request.is_in_batch for request in requests] == [True, False, True]

    run(tmp_path, test)


def test_a_client_that_is_write_paused_keeps_its_slot(tmp_path: Path) -> None:
    async def test(app: App) -> None:
        client = await new_client(app)
        await client.send("/v1/outputs/shop")
        slow = client.request("/v1/outputs/shop")
        slow.reads_slowly = True
        await client.admit(slow).started.wait()
        assert slow.status == 200  # it is sent, and only the client is behind
        assert not app._services.capacity.requests.can_acquire(slow.state.organization_id)
        slow.drained.set()
        await slow.answered()
        assert (await client.send("/v1/outputs/shop")).status == 200

    run(tmp_path, test, max_requests=2)


def test_a_client_that_left_gives_its_slot_back(tmp_path: Path) -> None:
    async def test(app: App) -> None:
        client = await new_client(app)
        await client.send("/v1/outputs/shop")
        for _ in range(3):
            left = client.request("/v1/outputs/shop")
            left.has_left = True
            await client.admit(left).answered()
        assert (await client.send("/v1/outputs/shop")).status == 200

    run(tmp_path, test, max_requests=2)


# --- the guard ------------------------------------------------------------------------------------


def test_nothing_in_a_batch_can_wait() -> None:
    """Everything that the batch path calls is a plain function, and so is its own module."""
    tree = ast.parse(inspect.getsource(read_batches))
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield)
    assert not [node for node in ast.walk(tree) if isinstance(node, waiting)]
    for called in (
        TokenAuthenticator.cached_grant,
        FileLinks.insert_local,
        RateLimiter.count_in_process,
        SqliteDatabase.read_pages,
        handlers.BATCHED_PAGE.read,
        handlers.BATCHED_PAGE.respond,
        RequestPipeline._respond_in_batch,
        RequestPipeline._begin,
        context.hold_made_response,
        search.page_read,
        response.respond,
    ):
        assert not inspect.iscoroutinefunction(called)
        assert not inspect.isgeneratorfunction(called)
