"""Compressed request bodies: gzip and zstd, limited while they are decompressed."""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

import pytest

from gleanery.service.foundation.scheduling.fair_shares import FairThread
from tests.support.calls import note_calls
from tests.support.compression import COMPRESS, zstd_with_window
from tests.support.outputs import output
from tests.support.service import Client

JSON, LINES = "application/json", "application/x-ndjson"
SKIPPABLE_FRAME = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
MIB = 1024 * 1024
REQUIRED = ("job_id", "source_url", "data")
NOISE = random.Random(1).randbytes(150_000).hex()
"""Text that compresses to a half. A body without it is compressed too well."""
both_codings = pytest.mark.parametrize("coding", ["gzip", "zstd"])


def post(
    client: Client, content: Any, coding: str, media: str = LINES, **headers: str
) -> tuple[int, Any]:
    answer = client.post(
        "/v1/outputs/group",
        content=content,
        headers={"Content-Type": media, "Content-Encoding": coding, **headers},
    )
    return answer.status_code, answer.json()


def lines(count: int, first: int = 0) -> bytes:
    return b"".join(json.dumps(output(n)).encode() + b"\n" for n in range(first, first + count))


def locs(body: Any) -> list[list[str]]:
    return [detail["loc"] for detail in body["detail"]]


@pytest.mark.parametrize(
    ("method", "path", "value"),
    [
        ("POST", "/v1/cookies", [{"domain": "a.example", "name": "n", "value": "v"}]),
        ("POST", "/v1/local-storage", [{"domain": "a.example", "key": "k", "value": "v"}]),
        ("POST", "/v1/outputs/group", [output(2)]),
        ("POST", "/v1/reviews/group", {"job_id": "job", "status": "pending", "comment": ""}),
        ("PUT", "/v1/groups/group", {"key_fields": ["number"]}),
    ],
)
def test_every_json_body_can_be_compressed(
    client: Client, method: str, path: str, value: Any
) -> None:
    client.store("group", output(1))
    text = json.dumps(value).encode()
    for coding in ("gzip", "X-GZip", "zstd", "identity", ""):
        compress = COMPRESS.get(coding.lower().removeprefix("x-"), bytes)
        headers = {"Content-Type": JSON, "Content-Encoding": coding}
        answer = client.request(method, path, content=compress(text), headers=headers)
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "identity, gzip", "gzip;q=1"])
def test_another_coding_is_rejected(client: Client, coding: str) -> None:
    answer = client.post(
        "/v1/outputs/group",
        content=gzip.compress(b"[]"),
        headers={"Content-Type": JSON, "Content-Encoding": coding},
    )
    assert answer.status_code == 415
    assert answer.headers["accept-encoding"] == "gzip, zstd"
    assert locs(answer.json()) == [["header", "content-encoding"]]


def test_a_file_is_not_decompressed(client: Client) -> None:
    headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
    answer = client.post("/v1/files", content=gzip.compress(b"x"), headers=headers)
    assert answer.status_code == 415
    assert answer.headers["accept-encoding"] == "identity"
    assert "A file is stored as it is sent" in answer.text


@pytest.mark.thorough
@both_codings
def test_compressed_lines_are_stored(client: Client, coding: str) -> None:
    """Several members or frames, which any pieces cut, are one body."""
    compress = COMPRESS[coding]
    body = compress(lines(1500)) + compress(b"") + compress(lines(1000, first=1500)[:-1])
    if coding == "zstd":
        body = SKIPPABLE_FRAME + body + SKIPPABLE_FRAME
    pieces = (body[n : n + 1000] for n in range(0, len(body), 1000))
    status, stored = post(client, pieces, coding)
    assert (status, stored["created"], stored["lines"]) == (200, 2500, 2500)
    assert {item["data"]["number"] for item in client.items("group", limit=1000)} == {*range(2500)}


@both_codings
def test_a_compressed_repetition_gets_the_first_response(client: Client, coding: str) -> None:
    text, key = json.dumps([output(1), output(2)]).encode(), {"Idempotency-Key": "k"}
    first = post(client, COMPRESS[coding](text), coding, JSON, **key)
    assert first[1]["created"] == 2
    assert post(client, text, "identity", JSON, **key) == first
    other = json.dumps([output(3)]).encode()
    assert post(client, COMPRESS[coding](other), coding, JSON, **key)[0] == 409


def malformed(coding: str, text: bytes) -> dict[str, bytes]:
    whole = COMPRESS[coding](text)
    return {
        "truncated": whole[:-1],
        "only a beginning": whole[:3],
        "followed by garbage": whole + b"garbage",
        "followed by a beginning": whole + whole[:5],
        "not compressed": text,
        "many empty parts": COMPRESS[coding](b"") * 1000 + whole,
    }


@both_codings
@pytest.mark.parametrize("how", malformed("gzip", b"[]"))
def test_malformed_data_is_rejected(client: Client, coding: str, how: str) -> None:
    client.store("group", output(0))
    text = json.dumps([output(1, data={"text": "x" * 100 + "y" * 100})]).encode()
    status, body = post(client, malformed(coding, text)[how], coding, JSON)
    assert (status, locs(body)) == (422, [["body"]])
    assert coding in body["detail"][0]["msg"]
    assert len(client.items("group")) == 1


@pytest.mark.parametrize(
    ("coding", "beginning"),
    [
        ("zstd", b"\x50\x2a\x4d\x18" + (2 * MIB).to_bytes(4, "little") + bytes(2 * MIB)),
        ("gzip", b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * (2 * MIB) + b"\0"),  # a file name
    ],
)
def test_a_body_has_few_bytes_without_content(
    client: Client, coding: str, beginning: bytes
) -> None:
    """Otherwise a body without content could have any length."""
    rest = COMPRESS[coding](lines(1))
    status, body = post(client, beginning + rest[10 * (coding == "gzip") :], coding)
    assert (status, locs(body)[0]) == (422, ["body"])
    assert "without content" in body["detail"][0]["msg"]


def test_an_empty_body_is_empty_in_any_coding(client: Client) -> None:
    status, body = post(client, b"", "gzip", JSON)
    assert (status, body["detail"][0]["msg"]) == (422, "The body is empty")


@both_codings
def test_truncated_lines_say_how_many_are_stored(client: Client, coding: str) -> None:
    compress = COMPRESS[coding]
    body = compress(lines(1000)) + compress(lines(200, first=1000))[:-1]
    status, answer = post(client, body, coding)
    assert (status, locs(answer)) == (422, [["body"], ["body", "1000"]])
    assert "truncated" in answer["detail"][0]["msg"]
    assert "before line 1000 are stored" in answer["detail"][1]["msg"]
    assert len(client.items("group", limit=1000)) == 1000


@pytest.mark.thorough
def test_the_window_of_zstd_is_limited(client: Client) -> None:
    text = json.dumps([output(1, data={"text": NOISE + "x" * (9 * MIB)})]).encode()
    assert post(client, zstd_with_window(text, 23), "zstd", JSON)[0] == 200
    status, body = post(client, zstd_with_window(text, 24), "zstd", JSON)
    assert (status, locs(body)) == (422, [["body"]])
    assert "8 MiB" in body["detail"][0]["msg"]


@pytest.mark.thorough
@both_codings
def test_the_limit_applies_to_the_decompressed_size(client: Client, coding: str) -> None:
    client.store("group", output(1))
    limit = 32 * MIB
    text = json.dumps([output(1, data={"text": NOISE})]).encode()
    status, body = post(client, COMPRESS[coding](text.ljust(limit + 1)), coding, JSON)
    assert (status, locs(body)) == (413, [["body"]])
    assert f"at most {limit} bytes; send more as NDJSON" in body["detail"][0]["msg"]
    assert post(client, COMPRESS[coding](text.ljust(limit)), coding, JSON)[0] == 200


@both_codings
def test_blank_lines_are_stored_in_no_batch(
    client: Client, coding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch for each thousand of them takes seconds before the body is rejected."""
    client.store("group", output(1))
    batches = note_calls(monkeypatch, FairThread, "run")
    status, body = post(client, COMPRESS[coding](b"\n" * (4 * MIB)), coding)
    assert (status, locs(body)[0]) == (413, ["body"])
    assert not batches


def test_lines_keep_their_positions_beside_blank_lines(client: Client) -> None:
    valid = json.dumps(output(1)).encode()
    text = b"\n\n" + valid + b"\r\n \t\r\n" + valid + b"\n" * 3000
    status, body = post(client, text, "")
    assert (status, body["lines"], body["created"]) == (200, 3004, 1)
    status, body = post(client, b"\n" * 2500 + valid + b"\n\n{}\n" + valid, "")
    assert (status, locs(body)) == (
        422,
        [["body", "2502", name] for name in REQUIRED] + [["body", "0"]],
    )


def test_a_long_body_may_not_be_compressed_too_well(client: Client) -> None:
    """Blank lines need no memory, but time."""
    client.store("group", output(1))
    status, body = post(client, COMPRESS["gzip"](b" " * (4 * MIB)), "gzip")
    assert (status, locs(body)[0]) == (413, ["body"])
    assert "500 times" in body["detail"][0]["msg"]
