"""Files over HTTP: on both engines, each over a real folder and a real S3 endpoint."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from gleanery.service.storage.engines import open_engine
from tests.support.files import (
    PDF,
    assert_harmless,
    hostile_names,
    memory_growth,
    upload,
    with_blob_store,
)
from tests.support.outputs import output
from tests.support.process import PROC
from tests.support.s3 import BUCKET, PLACE, Bucket, Credentials
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
MEMBERS = [
    *("id", "field", "url_etag_hash", "blob_key", "blob_url", "source_url", "create_date"),
    *("file_url", "file_type", "file_checksum", "file_metadata"),
]


class Blobs:
    """The blob store, as a test sees it."""

    def __init__(self, folder: Path, bucket: Bucket | None) -> None:
        self._folder, self._bucket = folder, bucket

    def keys(self) -> list[str]:
        if self._bucket is not None:
            return self._bucket.keys()
        return [str(p.relative_to(self._folder)) for p in self._folder.rglob("*") if p.is_file()]


@pytest.fixture(scope="session")
def keeper(
    engine: str,
    blob_store: str,
    bucket_or_none: Bucket | None,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """A service on this engine and this store."""
    fresh = fresh_settings(engine, request, tmp_path_factory.mktemp(f"files-{engine}-{blob_store}"))
    service = Service(with_blob_store(fresh, blob_store, max_file_bytes=10_000_000))
    yield service
    service.stop()


@pytest.fixture
def scraper(keeper: Service) -> Iterator[Client]:
    with keeper.client() as made:
        yield made


@pytest.fixture
def blobs(keeper: Service, bucket_or_none: Bucket | None) -> Blobs:
    return Blobs(Path(keeper.settings.blobs_location), bucket_or_none)


def with_file(number: int, file_id: str) -> dict[str, Any]:
    return output(number, files=[{"field": "attachments[0].url", "id": file_id}])


# --- uploads ------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_an_uploaded_file_is_found_by_its_source(scraper: Client) -> None:
    query = {"source_url": "https://a/x.pdf", "etag": '"v1"', "filename": "x.pdf"}
    stored = upload(scraper, **query)
    assert stored["file_checksum"] == hashlib.sha256(PDF).hexdigest()
    assert (stored["size"], stored["file_type"]) == (len(PDF), "application/pdf")
    asked = {"source_url": "https://a/x.pdf", "etag": '"v1"'}
    assert scraper.get("/v1/files", params=asked).json() == stored
    for other in ({"etag": '"v2"'}, {"source_url": "https://a/y.pdf"}):
        assert scraper.get("/v1/files", params=asked | other).status_code == 404
    assert scraper.get("/v1/files").status_code == 422


def test_the_same_bytes_are_stored_once(scraper: Client, keeper: Service, blobs: Blobs) -> None:
    first = upload(scraper, source_url="https://a/1")
    kept = blobs.keys()
    assert upload(scraper, source_url="https://a/1") == first
    second = upload(scraper, source_url="https://a/2")
    assert second["id"] != first["id"]
    assert second["blob_key"] == first["blob_key"]
    assert sorted(blobs.keys()) == sorted(kept)
    with keeper.client() as other:  # another organization has its own blob
        assert upload(other, source_url="https://a/1")["blob_key"] != first["blob_key"]
    assert len(blobs.keys()) == len(kept) + 1


def test_the_latest_upload_of_a_source_is_found(scraper: Client) -> None:
    query = {"source_url": "https://a/changing"}
    first = upload(scraper, b"one", **query)
    second = upload(scraper, b"two", **query)
    assert scraper.get("/v1/files", params=query).json() == second
    again = scraper.post("/v1/files", params=query, content=b"one", headers={"Content-Type": "a/b"})
    assert again.json() == first  # with the stored file type
    assert scraper.get("/v1/files", params=query).json() == first


def test_uploading_again_restores_lost_bytes(
    scraper: Client, keeper: Service, bucket_or_none: Bucket | None
) -> None:
    stored = upload(scraper, b"to be lost")
    if bucket_or_none is not None:
        key = PLACE.partition("://")[2].partition("/")[2] + "/" + stored["blob_key"]
        bucket_or_none.client.delete_object(Bucket=BUCKET, Key=key)
    else:
        Path(keeper.settings.blobs_location, stored["blob_key"]).unlink()
    assert scraper.get(f"/v1/files/{stored['id']}").status_code == 404
    assert upload(scraper, b"to be lost") == stored
    assert scraper.get(f"/v1/files/{stored['id']}").content == b"to be lost"


def test_concurrent_uploads_of_the_same_bytes_store_one_blob(
    scraper: Client, keeper: Service, blobs: Blobs
) -> None:
    before = len(blobs.keys())
    content = os.urandom(300_000)

    def send(number: int) -> dict[str, Any]:
        with keeper.client(scraper.token) as client:
            return upload(client, content, source_url=f"https://a/{number % 4}")

    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(send, range(16)))
    assert len({one["blob_key"] for one in stored}) == 1
    assert len({one["id"] for one in stored}) == 4
    assert len(blobs.keys()) == before + 1


@pytest.mark.parametrize(
    ("content", "declared", "expected"),
    [
        (PDF, "text/plain", "application/pdf"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\0" * 50, "", "image/png"),
        (b"a,b\n1,2\n", "text/csv; charset=utf-8", "text/csv"),
        (b"BMI,age\n1,2\n", "text/csv", "text/csv"),
        (b'<?xml version="1.0"?><svg/>', "image/svg+xml", "image/svg+xml"),
        (b"PK\x03\x04" + b"\0" * 60, XLSX, XLSX),
        (b"PK\x03\x04" + b"\0" * 60, "", "application/zip"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0" + b"\0" * 60, "image/png", "image/jpeg"),
        (b"nothing known", "no type", "application/octet-stream"),
        (b"nothing known", "", "application/octet-stream"),
        (b"", "text/plain", "text/plain"),
    ],
)
def test_the_bytes_decide_the_file_type(
    scraper: Client, content: bytes, declared: str, expected: str
) -> None:
    headers = {"Content-Type": declared} if declared else {}
    answer = scraper.post("/v1/files", content=content, headers=headers)
    stored = answer.json()
    assert (answer.status_code, stored["file_type"]) == (200, expected)
    got = scraper.get(f"/v1/files/{stored['id']}")
    assert (got.content, got.headers["content-type"]) == (content, expected)


def test_a_file_that_is_too_large_is_rejected(scraper: Client, blobs: Blobs) -> None:
    before = blobs.keys()
    assert scraper.post("/v1/files", content=b"x" * 10_000_001).status_code == 413
    chunked = (b"x" * 100_000 for _ in range(101))
    assert scraper.post("/v1/files", content=chunked).status_code == 413
    assert (
        scraper.post("/v1/files", content=b"x", headers={"Content-Encoding": "gzip"}).status_code
        == 415
    )
    wait_until(lambda: sorted(blobs.keys()) == sorted(before))


# --- forms --------------------------------------------------------------------------------------


def send_form(client: Client, *files: tuple[str, bytes, str], **query: str) -> httpx2.Response:
    return client.post("/v1/files", params=query, files=[("file", file) for file in files])


def downloaded_name(client: Client, file_id: str) -> str:
    return str(client.head(f"/v1/files/{file_id}").headers["content-disposition"])


def test_the_file_of_a_form_is_stored_without_the_form(scraper: Client) -> None:
    answer = send_form(scraper, ("x.pdf", PDF, "application/pdf"), source_url="https://a/form")
    assert answer.status_code == 200, answer.text
    stored = answer.json()
    assert (stored["size"], stored["file_type"]) == (len(PDF), "application/pdf")
    assert scraper.get(f"/v1/files/{stored['id']}").content == PDF
    assert downloaded_name(scraper, stored["id"]).endswith("''x.pdf")
    assert stored == upload(scraper, source_url="https://a/form")  # the same bytes, the same file


def test_the_type_and_the_name_of_a_form(scraper: Client) -> None:
    csv = send_form(scraper, ("ü.csv", b"a,b\n1,2\n", "text/csv")).json()
    assert csv["file_type"] == "text/csv"
    assert downloaded_name(scraper, csv["id"]).endswith("''%C3%BC.csv")
    named = send_form(scraper, ("x.txt", b"named", "text/plain"), filename="query.txt").json()
    assert downloaded_name(scraper, named["id"]).endswith("''query.txt")
    long_name = send_form(scraper, ("x" * 256, b"content", "text/plain"))
    assert long_name.status_code == 422
    assert long_name.json()["detail"][0]["loc"] == ["body", "filename"]


def test_a_large_form_is_streamed(scraper: Client) -> None:
    content = os.urandom(8_000_000)
    boundary = "b0undary"
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
    body = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    pieces = (body[n : n + 99_991] for n in range(0, len(body), 99_991))
    stored = scraper.post("/v1/files", content=pieces, headers=headers).json()
    assert stored["file_checksum"] == hashlib.sha256(content).hexdigest()


def test_a_form_with_more_or_less_than_one_file_is_rejected(
    scraper: Client, keeper: Service, blobs: Blobs
) -> None:
    before = blobs.keys()
    one = ("x.pdf", PDF, "application/pdf")
    field = {"source_url": "https://a/x"}
    answers = [
        send_form(scraper, one, one),
        scraper.post("/v1/files", data=field, files=[("file", one)]),
        scraper.post("/v1/files", files={"file": (None, b"text")}),
        scraper.post("/v1/files", content=b"x", headers={"Content-Type": "multipart/form-data"}),
    ]
    for answer in answers:
        assert answer.status_code == 422, answer.text
        [fault] = answer.json()["detail"]
        assert (fault["loc"], fault["type"]) == (["body"], "invalid_form")
        assert "curl -F file=@x.pdf" in fault["msg"]
    wait_until(lambda: unreferenced(keeper) == 0)
    assert sorted(blobs.keys()) == sorted(before)


def test_a_form_with_a_file_that_is_too_large_is_rejected(scraper: Client) -> None:
    assert send_form(scraper, ("x", b"x" * 10_000_001, "a/b")).status_code == 413


def test_the_default_type_of_curl_is_rejected(scraper: Client) -> None:
    """``curl -d @file`` removes line breaks and sends this type."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = scraper.post("/v1/files", content=b"a,b1,2", headers=headers)
    assert answer.status_code == 415
    assert "curl --data-binary" in answer.json()["detail"][0]["msg"]


# --- interrupted and very large uploads ---------------------------------------------------------


def unreferenced(service: Service) -> int:
    async def count() -> int:
        async with open_engine(service.settings) as database:
            return int(
                (await database.for_all_tenants().read("SELECT count(*) FROM unreferenced_blobs"))[
                    0
                ][0]
            )

    return asyncio.run(count())


def test_an_aborted_upload_leaves_nothing(scraper: Client, keeper: Service, blobs: Blobs) -> None:
    before = blobs.keys()
    target = urlsplit(keeper.url)
    with socket.create_connection((target.hostname, target.port)) as connection:
        connection.sendall(
            f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {scraper.token}\r\n"
            "Content-Length: 9000000\r\n\r\n".encode()
        )
        connection.sendall(b"x" * 8_000_000)  # the store has a part of it by then
        wait_until(lambda: unreferenced(keeper) == 1)
    wait_until(lambda: unreferenced(keeper) == 0)
    assert sorted(blobs.keys()) == sorted(before)


@pytest.mark.thorough
@pytest.mark.parametrize("length", ["Content-Length: {}", "Transfer-Encoding: chunked"])
def test_the_largest_file_has_at_most_10000_parts_in_s3(
    bucket: Bucket, request: pytest.FixtureRequest, tmp_path: Path, length: str
) -> None:
    """S3 accepts no more parts, so the first part must be large enough."""
    size = 80 * 2**30
    fresh = fresh_settings("sqlite", request, tmp_path)
    service = Service(with_blob_store(fresh, "s3", max_file_bytes=size))
    token, target = service.token(), urlsplit(service.url)
    before = bucket.keys()
    with socket.create_connection((target.hostname, target.port)) as connection:
        connection.sendall(
            f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            f"{length.format(size)}\r\n\r\n".encode()
        )
        content = b"x" * 20_000_000
        is_chunked = "chunked" in length
        connection.sendall(b"%x\r\n%b\r\n" % (len(content), content) if is_chunked else content)
        wait_until(lambda: bucket.parts() != [])
        assert bucket.parts()[0] * 10_000 >= size
    wait_until(lambda: sorted(bucket.keys()) == sorted(before))
    service.stop()


# --- downloads-----------------------------------------------------------------------------------


def test_an_output_shows_all_members_of_its_files(scraper: Client, keeper: Service) -> None:
    stored = upload(scraper, source_url="https://a/x.pdf", etag="1", filename="Bericht ü.pdf")
    elsewhere = {
        "field": "video",
        "source_url": "https://b/v",
        "file_url": "https://cdn/v.mp4",
        "file_type": "video/mp4",
        "file_checksum": "abc",
        "file_metadata": {"seconds": 7},
    }
    mine = {"field": "attachments[0].url", "id": stored["id"], "file_metadata": {"page": 3}}
    result = scraper.store("group", output(1, files=[mine, elsewhere]))["results"][0]
    [item] = scraper.items("group")
    ours, theirs = item["files"]
    assert list(ours) == MEMBERS
    assert list(theirs) == MEMBERS
    for name in ("id", "blob_key", "file_checksum", "file_type", "url_etag_hash"):
        assert ours[name] == stored[name]
    assert (ours["field"], ours["source_url"]) == ("attachments[0].url", "https://a/x.pdf")
    assert ours["file_metadata"] == {"size": len(PDF), "filename": "Bericht ü.pdf", "page": 3}
    assert ours["file_url"] == f"{keeper.url}/v1/files/{stored['id']}"
    assert {name: theirs[name] for name in elsewhere} == elsewhere
    assert (theirs["blob_key"], theirs["blob_url"]) == ("", "")
    assert httpx2.get(ours["blob_url"]).content == PDF  # no token
    assert scraper.get(ours["file_url"]).content == PDF
    assert httpx2.get(ours["file_url"]).status_code == 401
    [change] = scraper.get("/v1/changes/group").json()["changes"]
    assert httpx2.get(change["output"]["files"][0]["blob_url"]).content == PDF
    assert scraper.store("group", output(1, files=[mine, elsewhere]))["unchanged"] == 1
    assert scraper.store("group", output(1, files=[mine]))["updated"] == 1
    assert result["output_id"] == scraper.items("group")[0]["output_id"]
    assert len(scraper.items("group")[0]["files"]) == 1


@pytest.mark.thorough
def test_a_page_full_of_files(scraper: Client) -> None:
    ids = [upload(scraper, b"content %d" % n)["id"] for n in range(7)]
    batch = [
        output(n, files=[{"field": f"f{k}", "id": ids[(n + k) % 7]} for k in range(n % 4)])
        for n in range(60)
    ]
    scraper.store("group", *batch)
    items = scraper.items("group", limit=1000)
    for number, item in enumerate(items):
        assert [file["id"] for file in item["files"]] == [
            ids[(number + k) % 7] for k in range(number % 4)
        ]
    for file in items[3]["files"] + items[59]["files"]:
        content = b"content %d" % ids.index(file["id"])
        assert httpx2.get(file["blob_url"]).content == content


def test_an_output_cannot_name_an_unknown_file(scraper: Client, keeper: Service) -> None:
    with keeper.client() as other:
        foreign = upload(other)["id"]
    stored = upload(scraper)["id"]
    batch = [with_file(1, stored), with_file(2, foreign), with_file(3, "0" * 32), output(4)]
    answer = scraper.post("/v1/outputs/group", json=batch)
    assert answer.status_code == 404
    places = [fault["loc"] for fault in answer.json()["detail"]]
    assert places == [["body", "1", "files", "0", "id"], ["body", "2", "files", "0", "id"]]
    assert scraper.get("/v1/outputs/group").status_code == 404  # nothing was stored


@pytest.mark.parametrize(
    "file",
    [
        {"field": "f"},
        {"field": "f", "id": "x"},
        {"field": "f", "id": "A" * 32},
        {"id": "0" * 32},
        {"field": "f", "id": None},
    ],
)
def test_an_invalid_file_in_an_output_is_rejected(scraper: Client, file: dict[str, Any]) -> None:
    answer = scraper.post("/v1/outputs/group", json=[output(1, files=[file])])
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][:4] == ["body", "0", "files", "0"]


def test_another_organization_cannot_see_a_file(scraper: Client, keeper: Service) -> None:
    stored = upload(scraper, source_url="https://a/x")
    with keeper.client() as other:
        unknown = other.get(f"/v1/files/{'0' * 32}")
        foreign = other.get(f"/v1/files/{stored['id']}")
        assert (foreign.status_code, foreign.content) == (404, unknown.content)
        asked = {"source_url": "https://a/x"}
        assert other.get("/v1/files", params=asked).status_code == 404


@pytest.mark.parametrize(
    ("wanted", "status", "start", "stop"),
    [
        ("bytes=0-99", 206, 0, 100),
        ("bytes=100-", 206, 100, len(PDF)),
        ("bytes=-5", 206, len(PDF) - 5, len(PDF)),
        (f"bytes=0-{len(PDF) + 50}", 206, 0, len(PDF)),
        ("bytes=0-", 206, 0, len(PDF)),
        ("bytes=5-2", 200, 0, len(PDF)),
        ("bytes=0-1,4-5", 200, 0, len(PDF)),
        ("lines=0-1", 200, 0, len(PDF)),
        ("bytes=-", 200, 0, len(PDF)),
        (f"bytes={len(PDF)}-", 416, 0, 0),
        ("bytes=-0", 416, 0, 0),
    ],
)
def test_a_range_of_a_file(
    scraper: Client, wanted: str, status: int, start: int, stop: int
) -> None:
    address = f"/v1/files/{upload(scraper)['id']}"
    answer = scraper.get(address, headers={"Range": wanted})
    assert answer.status_code == status
    if status == 416:
        assert answer.headers["content-range"] == f"bytes */{len(PDF)}"
        assert answer.json()["detail"][0]["loc"] == ["header", "range"]
        return
    assert answer.content == PDF[start:stop]
    if status == 206:
        assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(PDF)}"


def test_if_match_protects_a_download_in_pieces(scraper: Client) -> None:
    stored = upload(scraper)
    scraper.store("group", with_file(1, stored["id"]))
    [file] = scraper.items("group")[0]["files"]
    etag = f'"{stored["file_checksum"]}"'
    part = {"Range": "bytes=0-9"}
    addresses = [file["file_url"]] + [file["blob_url"]] * ("/v1/blobs/" in file["blob_url"])
    for address in addresses:
        for wanted in (etag, f'"other", {etag}', "*"):
            answer = scraper.get(address, headers=part | {"If-Match": wanted})
            assert (answer.status_code, answer.content) == (206, PDF[:10])
        for wanted in ('"other"', f"W/{etag}", stored["file_checksum"]):
            answer = scraper.get(address, headers=part | {"If-Match": wanted})
            assert answer.status_code == 412
            assert answer.json()["detail"][0]["loc"] == ["header", "if-match"]
            assert scraper.head(address, headers={"If-Match": wanted}).status_code == 412
        both = {"If-Match": '"other"', "If-None-Match": etag}
        assert scraper.get(address, headers=both).status_code == 412  # checked first


def test_the_response_headers_of_a_file(scraper: Client) -> None:
    stored = upload(scraper, filename='a "b"/../ü\r\nX: y.pdf')
    address = f"/v1/files/{stored['id']}"
    answer = scraper.get(address)
    assert answer.headers["etag"] == f'"{stored["file_checksum"]}"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    name = "a%20%22b%22%2F..%2F%C3%BC%0D%0AX%3A%20y.pdf"
    assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''{name}"
    head = scraper.head(address)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(PDF))
    held = scraper.get(address, headers={"If-None-Match": f'"x", {answer.headers["etag"]}'})
    assert (held.status_code, held.content) == (304, b"")
    assert "content-type" not in held.headers
    part = scraper.head(address, headers={"Range": "bytes=0-9"})
    assert (part.status_code, part.headers["content-length"]) == (200, str(len(PDF)))
    changed = {"Range": "bytes=0-9", "If-Range": '"other"'}
    assert scraper.get(address, headers=changed).status_code == 200
    same = {"Range": "bytes=0-9", "If-Range": answer.headers["etag"]}
    assert scraper.get(address, headers=same).status_code == 206


# --- links --------------------------------------------------------------------------------------


def link_to_a_file(client: Client) -> str:
    client.store("group", with_file(1, upload(client)["id"]))
    link: str = client.items("group")[0]["files"][0]["blob_url"]
    return link


@pytest.mark.thorough
def test_a_changed_link_is_rejected(timed_service: Service, clock: Clock) -> None:
    with timed_service.client() as client, timed_service.client() as other:
        link, foreign = link_to_a_file(client), link_to_a_file(other)
        second = upload(client, b"another")["id"]
        assert httpx2.get(link).content == PDF
        assert httpx2.get(link, headers={"Range": "bytes=1-3"}).content == PDF[1:4]
        [organization] = re.findall(r"organization=(\d+)", link)
        [expires] = re.findall(r"expires=(\d+)", link)
        [signature] = re.findall(r"signature=(\w+)", link)
        [file_id] = re.findall(r"blobs/(\w+)", link)
        [others_organization] = re.findall(r"organization=(\d+)", foreign)
        changes = [
            (expires, str(int(expires) + 1)),
            (expires, "x"),
            (expires, "٣"),
            (signature, "0" * 32),
            (signature, signature[:-1]),
            (signature, signature.upper() + "g"),
            (file_id, second),
            (file_id, file_id[:-2]),
            (f"organization={organization}", f"organization={others_organization}"),
            (f"organization={organization}", "organization=x"),
        ]
        for old, new in changes:
            answer = httpx2.get(link.replace(old, new))
            assert answer.status_code == 403, (old, new)
            assert answer.json()["detail"][0]["type"] == "forbidden"
        clock.move(seconds=14 * 60)
        assert httpx2.get(link).status_code == 200
        clock.move(seconds=2 * 60)
        assert httpx2.get(link).status_code == 403


def test_a_page_whose_next_output_has_the_first_file(scraper: Client) -> None:
    file_id = upload(scraper, source_url="https://a/x.pdf")["id"]
    scraper.store("lone", output(0), output(1), with_file(2, file_id), output(3))
    cursor, files = 1, []
    for _ in range(4):  # on one connection: the requests differ only in their cursor
        page = scraper.get(f"/v1/outputs/lone?limit=1&cursor={cursor}")
        assert page.status_code == 200, page.text
        files += [item["files"] for item in page.json()["items"]]
        cursor = page.json()["metadata"]["next_cursor"]
    assert [len(some) for some in files] == [0, 0, 1, 0]
    assert cursor is None
    assert httpx2.get(files[2][0]["blob_url"]).content == PDF


@pytest.mark.thorough
@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_link_leads_to_the_public_address_of_the_bucket(
    variable: str,
    engine: str,
    bucket: Bucket,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service uses 127.0.0.1, and clients localhost. The signature contains the host."""
    monkeypatch.setenv(variable, f"http://127.0.0.1:{bucket.port}")
    public = f"http://localhost:{bucket.port}"
    fresh = fresh_settings(engine, request, tmp_path)
    service = Service(with_blob_store(fresh, "s3", blobs_public_url=public))
    with service.client() as client:
        client.store("group", with_file(0, upload(client)["id"]))
        link: str = client.items("group")[0]["files"][0]["blob_url"]
        feed = client.get("/v1/changes/group").json()
    service.stop()
    assert link.startswith(f"{public}/{PLACE.removeprefix('s3://')}/")
    assert httpx2.get(link).content == PDF
    assert httpx2.get(feed["changes"][0]["output"]["files"][0]["blob_url"]).content == PDF
    other_host = link.replace("localhost", "127.0.0.1")
    assert httpx2.get(other_host).status_code == 403


# --- when the store fails -----------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("blob_store", ["s3"], indirect=True, scope="session")
def test_requests_survive_a_failing_blob_store(scraper: Client, bucket: Bucket) -> None:
    bucket.failing = 3
    stored = upload(scraper, b"retried")
    bucket.failing = 3
    assert scraper.get(f"/v1/files/{stored['id']}").content == b"retried"
    bucket.failing = 10**6
    try:
        answers = [
            scraper.get(f"/v1/files/{stored['id']}"),
            scraper.post("/v1/files", content=b"refused"),
        ]
    finally:
        bucket.failing = 0
    for answer in answers:
        assert answer.status_code == 503
        assert "store of files" in answer.json()["detail"][0]["msg"]
        assert answer.headers["retry-after"]
    assert scraper.get("/v1/outputs/none").status_code == 404  # other requests succeed
    assert upload(scraper, b"refused")["size"] == 7


@pytest.fixture
def credentials(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Credentials]:
    asked = Credentials()
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", asked.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    yield asked
    asked.stop()


@pytest.fixture
def unsure(
    engine: str, credentials: Credentials, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Service]:
    """A service whose S3 credentials expire soon."""
    service = Service(with_blob_store(fresh_settings(engine, request, tmp_path), "s3"))
    yield service
    service.stop()


@pytest.mark.thorough
def test_pages_are_503_while_links_cannot_be_signed(
    unsure: Service, credentials: Credentials
) -> None:
    with unsure.client() as client:
        client.store("group", with_file(0, upload(client)["id"]))
        pages = [f"/v1/outputs/group?cursor={n}" for n in (1, 2, 3)]
        assert [client.get(page).status_code for page in pages] == [200] * 3
        credentials.are_known = False
        wait_until(
            lambda: client.get(pages[0]).status_code == 503
        )  # the old credentials are cached
        assert [client.get(page).status_code for page in pages] == [503] * 3
        credentials.are_known = True
        assert client.get(pages[0]).status_code == 200


# --- cleanup ------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_file_that_no_output_uses_is_deleted(
    engine: str,
    blob_store: str,
    bucket_or_none: Bucket | None,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: Clock,
) -> None:
    fresh = fresh_settings(engine, request, tmp_path)
    service = Service(with_blob_store(fresh, blob_store, sweep_seconds=0.1), clock)
    blobs = Blobs(Path(service.settings.blobs_location), bucket_or_none)
    before = set(blobs.keys())
    with service.client() as client:
        shared = upload(client, b"shared", source_url="https://a/1")
        same = upload(client, b"shared", source_url="https://a/2")
        named, dropped = upload(client, b"named"), upload(client, b"dropped")
        lonely = upload(client, b"lonely")
        client.store("group", with_file(1, shared["id"]), with_file(2, named["id"]))
        client.store("group", with_file(3, named["id"]), with_file(4, dropped["id"]))

        def is_held(file: dict[str, Any]) -> bool:
            return bool(client.get(f"/v1/files/{file['id']}").status_code == 200)

        clock.move(seconds=6 * DAY)
        client.store("group", output(4))  # without the file
        gone = client.items("group", job_id="job")[1]["output_id"]
        assert (
            client.delete(f"/v1/outputs/group/{gone}").status_code == 200
        )  # one of two outputs that use it
        clock.move(seconds=2 * DAY)
        wait_until(lambda: not is_held(lonely) and not is_held(same))
        assert is_held(shared) and is_held(named) and is_held(dropped)  # noqa: PT018
        clock.move(seconds=6 * DAY)
        wait_until(lambda: not is_held(dropped))
        assert client.delete("/v1/groups/group").json() == {"deleted": 3}
        assert is_held(shared) and is_held(named)  # noqa: PT018
        clock.move(seconds=8 * DAY)
        wait_until(lambda: not is_held(shared) and not is_held(named))
        wait_until(lambda: set(blobs.keys()) == before)
        assert upload(client, b"shared", source_url="https://a/1")["id"] == shared["id"]
    service.stop()


def test_a_file_that_is_found_by_its_source_is_kept_for_an_output(
    swept: Client, clock: Clock
) -> None:
    found = upload(swept, b"found", source_url="https://a/found")
    forgotten = upload(swept, b"forgotten")
    clock.move(seconds=6 * DAY)
    query = {"source_url": "https://a/found"}
    assert swept.get("/v1/files", params=query).json() == found
    clock.move(seconds=2 * DAY)
    wait_until(lambda: swept.get(f"/v1/files/{forgotten['id']}").status_code == 404)
    assert swept.get("/v1/files", params=query).json() == found
    swept.store("group", with_file(1, found["id"]))
    swept.delete("/v1/groups/group")
    clock.move(seconds=8 * DAY)
    wait_until(lambda: swept.get(f"/v1/files/{found['id']}").status_code == 404)
    assert swept.get("/v1/files", params=query).status_code == 404


# --- size and names -----------------------------------------------------------------------------


@pytest.mark.extended
@pytest.mark.thorough
@PROC
def test_memory_does_not_grow_with_the_size_of_a_file(
    blob_store: str, bucket_or_none: Bucket | None, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = with_blob_store(fresh_settings("sqlite", request, tmp_path), blob_store)
    assert memory_growth(settings, blob_store, bucket_or_none, mebibytes=100) < 60 * 2**20


@pytest.mark.thorough
def test_nothing_that_a_client_sends_becomes_a_path(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert_harmless(hostile_names(500), fresh_settings("sqlite", request, tmp_path / "data"))


def test_a_link_with_too_many_digits_is_rejected(service: Service) -> None:
    with service.stranger() as nobody:
        query = {"organization": "1", "signature": "x", "expires": "9" * 5000}
        assert nobody.get(f"/v1/blobs/{'a' * 32}", params=query).status_code == 403


def test_many_unknown_files_get_a_short_response(scraper: Client) -> None:
    files = [{"field": "a", "id": f"{number:032x}"} for number in range(200)]
    answer = scraper.post("/v1/outputs/group", json=[output(1, files=files)])
    assert answer.status_code == 404
    assert len(answer.json()["detail"]) == 100
