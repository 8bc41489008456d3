"""Compressed responses: which coding a client gets, and that the text is the same."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.support.compression import DECOMPRESS
from tests.support.outputs import output
from tests.support.service import Client

TEXT = "a description that every shop repeats for each of its products " * 10


class Received(NamedTuple):
    """A response as it was sent."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def coding(self) -> str | None:
        return self.headers.get("content-encoding")

    @property
    def text(self) -> bytes:
        return self.body if self.coding is None else DECOMPRESS[self.coding](self.body)


def fetch(client: Client, path: str, accepted: str | None, method: str = "GET") -> Received:
    """Sends a request; without Accept-Encoding if ``accepted`` is None."""
    client.headers.pop("accept-encoding", None)
    headers = {} if accepted is None else {"Accept-Encoding": accepted}
    with client.stream(method, path, headers=headers) as answer:
        return Received(answer.status_code, dict(answer.headers), b"".join(answer.iter_raw()))


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (None, None),
        ("", None),
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("GZip , x", "gzip"),
        ("x-gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=0.8, zstd;q=0.7", "gzip"),
        ("gzip;q=0.7, zstd;q=0.800", "zstd"),
        ("gzip;q=0.5 ,\tzstd ; q=0", "gzip"),
        ("*", "zstd"),
        ("zstd;q=0, *;q=0.1", "gzip"),
        ("gzip;q=0.2, *;q=0.5", "zstd"),
        ("*;q=0", None),
        ("gzip;q=0, zstd;Q=0.0", None),
        ("identity", None),
        ("identity, gzip", "gzip"),
        ("identity;q=0.5, gzip;q=0.4", None),
        ("identity;q=0, gzip", "gzip"),
        ("identity;q=0, br", None),
        (",, gzip,", "gzip"),
        ("gzip;q=2", None),
        ("gzip;q=0.1234", None),
        ("gzip;q=", None),
        ("gzip;level=1", None),
        ("gzip zstd", None),
        ("gzip, z/std", None),
        ("deflate, br", None),
    ],
)
def test_the_client_chooses_the_coding(
    client: Client, accepted: str | None, coding: str | None
) -> None:
    answer = fetch(client, "/openapi.json", accepted)
    assert (answer.status, answer.coding) == (200, coding)
    assert answer.text == fetch(client, "/openapi.json", None).body
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert answer.headers["vary"] == "accept-encoding"


def test_several_headers_are_read_as_one(client: Client) -> None:
    client.headers.pop("accept-encoding")
    headers = [("Accept-Encoding", "gzip;q=0.5"), ("Accept-Encoding", "zstd;q=0")]
    answer = client.get("/openapi.json", headers=headers)
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json()["openapi"] == "3.1.0"


@pytest.mark.thorough
@pytest.mark.parametrize("coding", ["zstd", "gzip"])
def test_pages_of_any_size_are_compressed(client: Client, coding: str) -> None:
    client.store("group", *(output(n, data={"text": f"{n} {TEXT}"}) for n in range(300)))
    for limit in (5, 100, 300):
        path = f"/v1/outputs/group?limit={limit}"
        plain = fetch(client, path, None)
        assert plain.coding is None
        for _ in range(3):  # a repeated small page takes a faster path
            answer = fetch(client, path, coding)
            assert (answer.coding, answer.text) == (coding, plain.body)
            assert int(answer.headers["content-length"]) == len(answer.body)
            assert len(answer.body) < len(plain.body) / 4
            assert answer.headers["vary"] == plain.headers["vary"] == "accept-encoding"
        head = fetch(client, path, coding, "HEAD")
        assert head.body == b""
        assert head.headers["content-length"] == answer.headers["content-length"]
        assert head.coding == coding


def test_a_page_of_large_items_is_compressed_on_the_fast_path(client: Client) -> None:
    """Read batching leaves it to the usual path, because a thread compresses it."""
    client.store("group", *(output(n, data={"text": TEXT * 40}) for n in range(10)))
    path = "/v1/outputs/group?limit=10"
    plain = fetch(client, path, None).body
    for _ in range(4):
        answer = fetch(client, path, "zstd")
        assert (answer.coding, answer.text) == ("zstd", plain)


def test_the_response_to_a_batch_is_compressed(client: Client) -> None:
    client.headers["Accept-Encoding"] = "gzip"
    outputs = [output(n) for n in range(100)]
    answer = client.post("/v1/outputs/group", json=outputs)
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json()["created"] == 100


@pytest.mark.parametrize("path", ["/docs", "/metrics", "/openapi.json"])
def test_texts_about_the_service_are_compressed(client: Client, path: str) -> None:
    for coding in ("zstd", "gzip", "zstd"):
        answer = fetch(client, path, coding)
        assert answer.coding == coding
        assert len(answer.text) > 3 * len(answer.body)


def test_a_small_response_is_not_compressed(client: Client) -> None:
    client.store("group", output(1))
    for path in ("/v1/outputs/group", "/healthz"):
        answer = fetch(client, path, "gzip, identity;q=0")
        assert (answer.coding, answer.headers["vary"]) == (None, "accept-encoding")


def test_an_error_is_not_compressed(client: Client) -> None:
    wrong = [{"job_id": "j"}] * 100
    answer = client.post("/v1/outputs/group", json=wrong, headers={"Accept-Encoding": "gzip"})
    assert answer.status_code == 422
    assert len(answer.content) > 1024
    assert "content-encoding" not in answer.headers
    assert "vary" not in answer.headers


def test_session_values_are_not_compressed(client: Client) -> None:
    cookies = [{"domain": "a.example", "name": f"n{n}", "value": "v" * 100} for n in range(50)]
    entries = [{"domain": "a.example", "key": f"k{n}", "value": "v" * 100} for n in range(50)]
    assert client.post("/v1/cookies", json=cookies).status_code == 200
    assert client.post("/v1/local-storage", json=entries).status_code == 200
    for path in ("/v1/cookies", "/v1/local-storage"):
        assert fetch(client, path, "gzip, zstd").coding is None


def test_a_stored_file_is_sent_as_it_is(client: Client) -> None:
    content = TEXT.encode() * 10
    stored = client.post("/v1/files", content=content, headers={"Content-Type": "text/plain"})
    path = f"/v1/files/{stored.json()['id']}"
    answer = fetch(client, path, "gzip, zstd")
    assert (answer.coding, answer.body) == (None, content)
    assert "vary" not in answer.headers
    fresh = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert fresh.status_code == 304
    assert "content-encoding" not in fresh.headers
