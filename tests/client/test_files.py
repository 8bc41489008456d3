"""Files with the client: uploads that can be repeated, and downloads that continue."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from errno import EIO
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gleanery import AsyncClient, Client
from gleanery.client import (
    ClientError,
    ConnectionFailed,
    FileChanged,
    InvalidResponse,
    NotFound,
    StoredFile,
    Unauthorized,
)
from tests.support.faulty_server import Step, faulty_server, respond
from tests.support.service import Service
from tests.support.waiting import TIMEOUT_SECONDS

CONTENT = bytes(range(256)) * 4096  # 1 MiB
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()
SOURCE_URL = "https://shop.example/p/1.pdf"


class _BrokenStream(httpx2.SyncByteStream):
    """Body of a response that ends with an error after some bytes."""

    def __init__(self, inner: httpx2.SyncByteStream, length: int) -> None:
        self._inner = inner
        self._length = length

    def __iter__(self) -> Iterator[bytes]:
        sent = 0
        for piece in self._inner:
            yield piece[: self._length - sent]
            sent += len(piece)
            if sent >= self._length:
                raise httpx2.ReadError("connection reset")

    def close(self) -> None:
        self._inner.close()


class _Wire(httpx2.BaseTransport):
    """Passes requests on to the service. A test can look at them, and break connections."""

    def __init__(self) -> None:
        self._inner = httpx2.HTTPTransport(verify=False)
        self.requests: list[httpx2.Request] = []
        self.broken_after: list[int] = []
        """Lengths after which the next responses break."""
        self.broken_uploads = 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if self.broken_uploads and request.method == "POST":
            self.broken_uploads -= 1
            assert isinstance(request.stream, httpx2.SyncByteStream)
            next(iter(request.stream))
            raise httpx2.WriteError("connection reset")
        response = self._inner.handle_request(request)
        if self.broken_after and request.method == "GET":
            assert isinstance(response.stream, httpx2.SyncByteStream)
            response.stream = _BrokenStream(response.stream, self.broken_after.pop(0))
        return response

    @property
    def ranges(self) -> list[str | None]:
        return [request.headers.get("range") for request in self.requests]

    @property
    def methods(self) -> list[str]:
        return [request.method for request in self.requests]


@pytest.fixture
def wire() -> _Wire:
    return _Wire()


@pytest.fixture
def files(service: Service, wire: _Wire) -> Iterator[Client]:
    with httpx2.Client(transport=wire) as http_client:
        yield Client(service.url, service.token(), max_retries=1, http_client=http_client)


@pytest.fixture
def stored(files: Client, wire: _Wire) -> StoredFile:
    made = files.upload(CONTENT)
    wire.requests.clear()
    return made


# --- uploads ------------------------------------------------------------------------------------


def test_a_file_is_uploaded_from_a_path(files: Client, wire: _Wire, tmp_path: Path) -> None:
    path = tmp_path / "price list.csv"
    path.write_bytes(CONTENT)
    made = files.upload(path)
    assert (made.size, made.file_checksum, made.file_type) == (len(CONTENT), CHECKSUM, "text/csv")
    assert wire.requests[0].headers["content-length"] == str(len(CONTENT))
    assert "transfer-encoding" not in wire.requests[0].headers
    output = {"job_id": "shop", "source_url": SOURCE_URL, "data": {}}
    files.push("prices", [output | {"files": [{"field": "list", "id": made.id}]}])
    [file] = next(iter(files.outputs("prices"))).files
    assert file.file_metadata["filename"] == "price list.csv"
    files.download(file, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT


def test_a_file_is_uploaded_from_memory_and_from_an_open_file(files: Client) -> None:
    opened = io.BytesIO(b"skipped" + CONTENT)
    opened.seek(7)
    for source in (CONTENT, opened):
        made = files.upload(source, filename="a.pdf", content_type="text/plain; charset=utf-8")
        assert (made.file_checksum, made.file_type) == (CHECKSUM, "text/plain")
    assert files.upload(b"").size == 0
    with pytest.raises(ValueError, match="read again"):
        files.upload(os.fdopen(os.pipe()[0], "rb"))
    with pytest.raises(ValueError, match="binary"):
        files.upload(io.StringIO("text"))  # type: ignore[arg-type]


def test_a_known_file_is_not_sent_again(files: Client, wire: _Wire) -> None:
    first = files.upload(CONTENT, source_url=SOURCE_URL, etag="v7")
    assert files.upload(CONTENT, source_url=SOURCE_URL, etag="v7") == first
    assert wire.methods == ["GET", "POST", "GET"]
    other = files.upload(CONTENT[::-1], source_url=SOURCE_URL, etag="v7")
    assert other.file_checksum != first.file_checksum
    assert files.find_file(SOURCE_URL, "v7") == other
    assert files.find_file(SOURCE_URL) is None


@pytest.mark.thorough
def test_an_unknown_file_is_not_an_unknown_address(files: Client) -> None:
    assert files.find_file(SOURCE_URL) is None
    with (
        faulty_server(respond(404, b"<html>Not Found</html>")) as server,
        pytest.raises(NotFound, match="without an explanation"),
    ):
        Client(server.url, "t", max_retries=0).find_file(SOURCE_URL)


def test_an_upload_is_sent_again_from_the_start(files: Client, wire: _Wire) -> None:
    wire.broken_uploads = 1
    opened = io.BytesIO(CONTENT)
    assert files.upload(opened).file_checksum == CHECKSUM
    assert wire.methods == ["POST", "POST"]


def test_a_file_that_cannot_be_read_is_not_a_broken_connection(service: Service) -> None:
    class Damaged(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(EIO, "Input/output error")

    with (
        Client(service.url, service.token(), max_retries=0) as client,
        pytest.raises(OSError, match="Input/output error"),
    ):
        client.upload(Damaged(CONTENT))


@pytest.mark.parametrize("change", ["shorter", "another byte"])
def test_a_file_that_changes_during_the_upload_is_an_error(
    files: Client, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "changing"
    path.write_bytes(CONTENT)

    class Changing(io.FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if change == "shorter":
                os.truncate(path, 1000)
            else:
                path.write_bytes(b"x" + CONTENT[1:])
                os.utime(path, (0, 0))
            return super().read(-1 if size is None else size)

    with Changing(path) as changing, pytest.raises(FileChanged):
        files.upload(changing)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_a_rejection_before_the_end_of_an_upload_is_not_lost(
    service: Service, tmp_path: Path
) -> None:
    """The service reads 64 MiB more, and then closes the connection."""

    async def upload() -> None:
        async with AsyncClient(service.url, "unknown", max_retries=0) as client:
            await client.upload(path)

    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    with pytest.raises(Unauthorized):
        asyncio.run(upload())
    with pytest.raises(Unauthorized), Client(service.url, "unknown", max_retries=0) as client:
        client.upload(path)


def test_an_upload_that_breaks_in_another_transport_is_reported() -> None:
    def break_down(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.WriteError("connection reset")

    async def upload() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(break_down)) as given:
            client = AsyncClient("http://a.example", "t", max_retries=0, http_client=given)
            await client.upload(CONTENT)

    with pytest.raises(ConnectionFailed, match="connection reset"):
        asyncio.run(upload())


# --- downloads ----------------------------------------------------------------------------------


def test_a_download_replaces_the_destination(
    files: Client, stored: StoredFile, tmp_path: Path
) -> None:
    destination = tmp_path / "copy.bin"
    destination.write_bytes(b"older")
    files.download(stored.id, str(destination))
    assert destination.read_bytes() == CONTENT
    opened = io.BytesIO()
    files.download(stored, opened)
    assert opened.getvalue() == CONTENT
    files.download(files.upload(b""), tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""
    assert sorted(os.listdir(tmp_path)) == ["copy.bin", "empty"]


def test_a_download_that_fails_leaves_nothing(files: Client, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        files.download("0" * 32, tmp_path / "copy")
    with pytest.raises(IsADirectoryError):
        files.download("0" * 32, tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["path", "open file"])
def test_a_download_continues_after_a_broken_connection(
    files: Client, stored: StoredFile, wire: _Wire, tmp_path: Path, kind: str
) -> None:
    wire.broken_after = [300_000, 200_000]  # two failures with one retry: each got further
    opened = io.BytesIO()
    files.download(stored, tmp_path / "copy" if kind == "path" else opened)
    content = (tmp_path / "copy").read_bytes() if kind == "path" else opened.getvalue()
    assert content == CONTENT
    assert wire.ranges == [None, "bytes=300000-", "bytes=500000-"]
    assert wire.requests[1].headers["if-range"] == f'"{CHECKSUM}"'


@pytest.mark.parametrize("size", [100_000, 17 * 1024 * 1024])
def test_a_download_continues_after_the_service_closed_its_connection(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gleanery.client._sync.requester.sleep", lambda _: None)
    content = os.urandom(size)
    half = size // 2
    etag = f'"{hashlib.sha256(content).hexdigest()}"'
    part = {"etag": etag, "content_range": f"bytes {half}-{size - 1}/{size}"}
    broken = Step(respond(200, content, etag=etag).sent[: half - size])
    with (
        faulty_server(broken, respond(206, content[half:], **part)) as server,
        Client(server.url, "token", max_retries=1) as client,
    ):
        client.download("x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == content
    assert f"range: bytes={half}-" in server.heads[1].lower()


def test_a_destination_that_takes_a_part_gets_the_rest(files: Client, stored: StoredFile) -> None:
    class Slow(io.BytesIO):
        def write(self, piece: Any) -> int:
            return super().write(memoryview(piece)[:1000])

    destination = Slow()
    files.download(stored, destination)
    assert destination.getvalue() == CONTENT


@pytest.mark.thorough
def test_a_download_continues_where_an_earlier_one_has_ended(
    files: Client, stored: StoredFile, service: Service, wire: _Wire, tmp_path: Path
) -> None:
    destination = tmp_path / "copy"
    wire.broken_after = [300_000, 0]
    with pytest.raises(ConnectionFailed):
        files.download(stored.id, destination)
    assert not destination.exists()
    [part] = tmp_path.iterdir()
    wire.requests.clear()
    files.download(stored.id, destination)
    assert wire.ranges == ["bytes=299999-"]
    assert destination.read_bytes() == CONTENT
    part.write_bytes(CONTENT)  # complete, but not yet renamed
    wire.requests.clear()
    files.download(stored.id, destination)
    assert wire.ranges == [f"bytes={len(CONTENT) - 1}-"]
    assert os.listdir(tmp_path) == ["copy"]


@pytest.mark.parametrize(
    "left",
    [b"x" * 1000, CONTENT[:-1] + b"x", CONTENT + b"too long"],
    ids=["other bytes", "last byte", "too long"],
)
def test_a_part_that_does_not_belong_to_the_file_is_dropped(
    files: Client, stored: StoredFile, tmp_path: Path, left: bytes
) -> None:
    (tmp_path / f".copy.{stored.id}.part").write_bytes(left)
    files.download(stored.id, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["copy"]


def test_damaged_bytes_never_become_the_file(
    service: Service, stored: StoredFile, tmp_path: Path
) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=CONTENT[:-1], headers={"etag": f'"{CHECKSUM}"'})

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http_client:
        client = Client(service.url, "token", http_client=http_client)
        with pytest.raises(InvalidResponse, match="checksum"):
            client.download(stored, tmp_path / "copy")
    assert os.listdir(tmp_path) == []


_DOWNLOAD = """
import os, sys
import httpx2
from gleanery import Client
from gleanery.client.files import _PartFile

write = _PartFile.write
def write_and_wait(self, piece):
    write(self, piece)
    if self.position > 300_000:
        print("waiting", flush=True)
        sys.stdin.read()
_PartFile.write = write_and_wait
Client(sys.argv[1], os.environ["GLEANERY_TOKEN"]).download(sys.argv[2], sys.argv[3])
"""


@pytest.mark.thorough
def test_a_download_continues_after_its_process_was_killed(
    service: Service, tmp_path: Path
) -> None:
    token, destination = service.token(), tmp_path / "copy"
    client = Client(service.url, token)
    stored = client.upload(CONTENT)
    arguments = [sys.executable, "-c", _DOWNLOAD, service.url, stored.id, str(destination)]
    environment = os.environ | {"GLEANERY_TOKEN": token}
    with subprocess.Popen(
        arguments, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        with pytest.raises(ClientError, match="Another process"):
            client.download(stored.id, destination)
        process.kill()
        process.wait(TIMEOUT_SECONDS)
    [part] = tmp_path.iterdir()
    assert part.stat().st_size > 300_000
    client.download(stored, destination)
    assert destination.read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["copy"]


def test_the_asynchronous_client_does_the_same(service: Service, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    token = service.token()

    async def exchange() -> StoredFile:
        async with AsyncClient(service.url, token) as client:
            made = await client.upload(tmp_path / "a.bin", source_url=SOURCE_URL)
            assert await client.find_file(SOURCE_URL) == made
            await client.download(made, tmp_path / "copy")
            return made

    assert asyncio.run(exchange()).file_checksum == CHECKSUM
    assert (tmp_path / "copy").read_bytes() == CONTENT
