"""Exports as CSV and Parquet have exactly the values that the client's exports have."""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet
import pytest

from gleanery import Client as Library
from gleanery.service.foundation.errors import Overloaded
from gleanery.service.resources.exports import tables
from gleanery.service.resources.exports.tables import TableExports, TableFile
from tests.client.exports.test_type_drift import KINDS
from tests.support.api_examples import EXAMPLES
from tests.support.console import ConsoleClient
from tests.support.exports import SlowExport, export_link
from tests.support.outputs import output
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

FORMATS = ("csv", "parquet")
TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
LINE = json.loads(str(EXAMPLES["export_outputs"].response).splitlines()[0])
LINE = json.dumps(LINE | {"data": {"text": "x" * 600}}).encode() + b"\n"
NOT_STORED = (b"\\u0000", b"1e400", b"1e-400")

pytestmark = pytest.mark.thorough


def store_all_kinds(client: Client) -> None:
    """Stores outputs of which each key has values of several kinds."""
    kinds = [text for texts in KINDS.values() for text in texts if text is not None]
    kinds = [text for text in kinds if not any(part in text for part in NOT_STORED)]
    bodies = [
        b'{"job_id":"job","source_url":"https://shop.example/%d","data":{"any":%s,"key %d":%s}}'
        % (number, text, number % 7, text)
        for number, text in enumerate(kinds)
    ]
    answer = client.post(
        "/v1/outputs/group",
        content=b"\n".join(bodies),
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert answer.status_code == 200, answer.text


def get_table(client: Client, format_: str, **query: str) -> bytes:
    answer = client.get("/v1/exports/group", params={"format": format_, **query})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == TYPES[format_]
    assert answer.headers["content-length"] == str(len(answer.content))
    assert "transfer-encoding" not in answer.headers
    disposition = f"attachment; filename*=UTF-8''group.{format_}"
    assert answer.headers["content-disposition"] == disposition
    return answer.content


def client_file(client: Client, path: Path, **filters: Any) -> bytes:
    with Library(str(client.base_url), token=client.token) as library:
        library.export("group", path, **filters)
    return path.read_bytes()


def read_parquet(content: bytes, path: Path) -> tuple[Any, Any, dict[bytes, Any]]:
    path.write_bytes(content)
    table = pyarrow.parquet.read_table(path)
    metadata = {key: json.loads(text) for key, text in (table.schema.metadata or {}).items()}
    fields = [(one.name, one.type, one.metadata) for one in table.schema]
    return table.to_pydict(), fields, metadata


def test_csv_is_what_the_client_writes(client: Client, tmp_path: Path) -> None:
    store_all_kinds(client)
    assert get_table(client, "csv") == client_file(client, tmp_path / "a.csv")


def test_parquet_is_what_the_client_writes(client: Client, tmp_path: Path) -> None:
    store_all_kinds(client)
    served = read_parquet(get_table(client, "parquet"), tmp_path / "served.parquet")
    written = client_file(client, tmp_path / "written.parquet")
    assert served == read_parquet(written, tmp_path / "written.parquet")


@pytest.mark.parametrize("format_", FORMATS)
def test_filters_choose_the_rows_and_are_in_the_metadata(
    client: Client, tmp_path: Path, format_: str
) -> None:
    client.store("group", *(output(n, job_id=f"job {n % 2}") for n in range(6)))
    client.post("/v1/reviews/group", json={"job_id": "job 1", "status": "approved"})
    query = {"approved": "true", "job_id": "job 1"}
    content = get_table(client, format_, **query)
    path = tmp_path / f"written.{format_}"
    written = client_file(client, path, approved=True, job_id="job 1")
    if format_ == "csv":
        assert content == written
        assert content.count(b"\r\n") == 4
    else:
        assert read_parquet(content, path) == read_parquet(written, path)
    view = get_table(client, format_, view="approved")
    assert view


@pytest.mark.parametrize("format_", FORMATS)
def test_a_group_without_outputs_is_a_table_without_rows(client: Client, format_: str) -> None:
    client.put("/v1/groups/group", json={})
    assert get_table(client, format_)


def test_a_formula_is_escaped(client: Client) -> None:
    client.store("group", output(1, data={"name": "=1+1"}))
    assert b'"\'=1+1"' in get_table(client, "csv")


@pytest.mark.parametrize("format_", FORMATS)
def test_a_link_has_the_format(client: Client, service: Service, format_: str) -> None:
    client.store("group", output(1))
    link = export_link(client, format=format_)
    assert urlsplit(link).path.endswith(f"/group/outputs.{format_}")
    with service.stranger() as stranger:
        answer = stranger.get(link)
        disposition = f"attachment; filename*=UTF-8''group.{format_}"
        assert answer.headers["content-disposition"] == disposition
        assert answer.headers["content-type"] == TYPES[format_]
        assert answer.content[:4] in (b"sour", b"PAR1")
        other = link.replace(f"outputs.{format_}", "outputs.jsonl")
        assert stranger.get(other).status_code == 404
        other = other.replace(f"format={format_}", "format=jsonl")
        assert stranger.get(other).status_code == 403


def test_head_names_the_file(client: Client) -> None:
    client.store("group", output(1))
    answer = client.head("/v1/exports/group", params={"format": "csv"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == TYPES["csv"]
    assert "gleanery-cursor" in answer.headers


def test_the_changes_continue_at_the_cursor(client: Client) -> None:
    client.store("group", output(1))
    cursor = client.get("/v1/exports/group", params={"format": "csv"}).headers["gleanery-cursor"]
    client.store("group", output(2))
    page = client.get("/v1/changes/group", params={"cursor": cursor}).json()
    assert len(page["changes"]) == 1


def test_errors_come_before_the_table(client: Client) -> None:
    query = {"format": "csv"}
    assert client.get("/v1/exports/unknown", params=query).status_code == 404
    client.store("group", output(1))
    unknown = client.get("/v1/exports/group", params={"format": "xlsx"})
    assert unknown.status_code == 422
    part = client.get("/v1/exports/group", params=query, headers={"Range": "bytes=5-"})
    assert part.status_code == 422


def test_without_the_library_the_message_says_what_to_install(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.store("group", output(1))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for answer in (
        client.get("/v1/exports/group", params={"format": "parquet"}),
        client.post("/v1/exports/group/links", params={"format": "parquet"}),
    ):
        assert answer.status_code == 422
        [detail] = answer.json()["detail"]
        assert detail["loc"] == ["query", "format"]
        assert "pip install 'gleanery[server,parquet]'" in detail["msg"]
    assert client.token is not None
    with closing(ConsoleClient(str(client.base_url), client.token)) as console:
        assert console.get("/console/api/session").json()["export_formats"] == ["csv", "jsonl"]


# --- temporary files ----------------------------------------------------------------------------


@pytest.fixture
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A service in which an export may have 100 KB."""
    settings = replace(fresh_settings("sqlite", request, tmp_path), max_export_bytes=100_000)
    service = Service(settings)
    yield service
    service.stop()


def leftovers(service: Service) -> list[Path]:
    return [*(service.settings.data / "exports").glob("*")]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_large_export_is_refused_with_advice(small: Service, format_: str) -> None:
    with small.client() as client:
        client.store("group", *(output(n, data={"text": "x" * 1000}) for n in range(200)))
        answer = client.get("/v1/exports/group", params={"format": format_})
        assert answer.status_code == 422
        assert "gleanery export" in answer.json()["detail"][0]["msg"]
        assert leftovers(small) == []


def test_a_table_larger_than_its_outputs_is_refused(small: Service) -> None:
    """Each output has its own key, so the table has many empty cells."""
    with small.client() as client:
        client.store(
            "group", *(output(n, data={f"{n} {k}": n for k in range(4)}) for n in range(160))
        )
        assert len(client.get("/v1/exports/group").content) < 100_000
        assert client.get("/v1/exports/group", params={"format": "csv"}).status_code == 422
        assert leftovers(small) == []


def test_a_disk_without_space_is_reported(small: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MIN_FREE_BYTES", 2**60)
    with small.client() as client:
        client.store("group", output(1))
        answer = client.get("/v1/exports/group", params={"format": "csv"})
        assert answer.status_code == 503
        assert "disk space" in answer.json()["detail"][0]["msg"]
        assert leftovers(small) == []


def test_a_killed_conversion_is_reported_and_leaves_nothing(
    small: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_PROGRAM", "gleanery.no_such_program")
    with small.client() as client:
        client.store("group", output(1))
        assert client.get("/v1/exports/group", params={"format": "csv"}).status_code == 503
        assert leftovers(small) == []


def test_folders_of_killed_services_are_deleted(small: Service) -> None:
    abandoned = small.settings.data / "exports/abandoned"
    abandoned.mkdir(parents=True)
    (abandoned / "outputs.csv").write_bytes(b"rest")
    with small.client() as client:
        client.store("group", output(1))
        assert get_table(client, "csv")
    assert leftovers(small) == []


def test_a_client_that_disconnects_ends_the_conversion(
    small: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program of the process is replaced by one that never ends."""
    (tmp_path / "endless.py").write_text(
        f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "while True: time.sleep(1)"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), *sys.path)))
    monkeypatch.setattr(tables, "_PROGRAM", "endless")
    with small.client() as client:
        client.store("group", output(1))
        parts = urlsplit(small.url)
        connection = socket.create_connection((parts.hostname, parts.port))
        head = "GET /v1/exports/group?format=csv HTTP/1.1\r\nHost: x\r\n"
        connection.sendall(f"{head}Authorization: Bearer {client.token}\r\n\r\n".encode())
        pid = tmp_path / "pid"
        wait_until(lambda: pid.exists() and bool(pid.read_text()))
        assert len(leftovers(small)) == 1
        connection.close()
        wait_until(lambda: leftovers(small) == [])
        wait_until(lambda: not Path(f"/proc/{pid.read_text()}").exists())


def test_a_folder_that_cannot_be_locked_is_reported(
    small: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with small.client() as client:
        client.store("group", output(1))
        with monkeypatch.context() as patch:
            patch.setattr(tables.fcntl, "flock", refuse)
            assert client.get("/v1/exports/group", params={"format": "csv"}).status_code == 503
        assert leftovers(small) == []
        assert get_table(client, "csv")


def test_a_folder_in_use_is_not_deleted(tmp_path: Path) -> None:
    """Two workers share the data folder, and each conversion deletes abandoned folders."""
    first, second = (TableExports(tmp_path, 100_000) for _ in range(2))

    async def run() -> None:
        is_reading, goes_on = asyncio.Event(), asyncio.Event()

        async def slow_lines() -> AsyncIterator[bytes]:
            is_reading.set()
            await goes_on.wait()
            yield LINE

        slow = asyncio.create_task(first.convert(1, "csv", {}, slow_lines()))
        await is_reading.wait()
        [in_use] = (tmp_path / "exports").iterdir()
        (tmp_path / "exports/abandoned").mkdir()
        assert (await second.convert(1, "csv", {}, lines(1))).file.read()
        assert [*(tmp_path / "exports").iterdir()] == [in_use]
        goes_on.set()
        assert (await slow).file.read().endswith(b"\r\n")
        assert [*(tmp_path / "exports").iterdir()] == []

    asyncio.run(run())


# --- files that clients have not read -------------------------------------------------------------

FILE_BYTES = 100_000


async def lines(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield LINE


def test_a_slow_client_uses_up_only_the_share_of_its_organization(tmp_path: Path) -> None:
    exports = TableExports(tmp_path, FILE_BYTES)

    async def convert(organization_id: int) -> TableFile:
        async with exports.turn(organization_id):
            return await exports.convert(organization_id, "csv", {}, lines(40))

    async def run() -> None:
        unread = [await convert(1), await convert(1)]
        assert FILE_BYTES < sum(file.size for file in unread) < 2 * FILE_BYTES
        with pytest.raises(Overloaded):
            await convert(1)
        others = [await convert(number) for number in (2, 3)]  # each of the largest size
        assert all(other.file.read() for other in others)
        unread.pop()  # as if the client has disconnected
        assert await convert(1)

    asyncio.run(run())


def test_all_organizations_together_are_bounded(tmp_path: Path) -> None:
    exports = TableExports(tmp_path, FILE_BYTES)

    async def run() -> None:
        unread: list[TableFile] = []

        async def convert_many() -> None:
            for number in range(10):
                unread.append(await exports.convert(number, "csv", {}, lines(40)))

        with pytest.raises(Overloaded):
            await convert_many()
        assert 4 * FILE_BYTES <= sum(file.size for file in unread) < 5 * FILE_BYTES

    asyncio.run(run())


def test_the_other_organization_exports_while_one_does_not_read(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The files are larger than the buffers of the connections."""
    settings = fresh_settings("sqlite", request, tmp_path)
    service = Service(replace(settings, max_export_bytes=12_000_000))
    with service.client() as greedy, service.client(service.token("other")) as other:
        greedy.store("group", *(output(n, data={"text": "x" * 100_000}) for n in range(110)))
        other.store("group", output(1))
        path = "/v1/exports/group?format=csv"
        unread = [SlowExport(greedy, path) for _ in range(2)]
        refused = greedy.get(path)
        assert refused.status_code == 503
        assert "still being sent" in refused.json()["detail"][0]["msg"]
        assert get_table(other, "csv")
        for one in unread:
            one.close()
        wait_until(lambda: greedy.get(path).status_code == 200)
    service.stop()
