"""Memory of the service while it decompresses request bodies."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.test_compressed_bodies import JSON, LINES, MIB, both_codings, post
from tests.support.compression import COMPRESS
from tests.support.outputs import output
from tests.support.process import PROC, peak_memory_bytes, served
from tests.support.service import Client
from tests.support.settings import fresh_settings

pytestmark = [pytest.mark.thorough, PROC]


@pytest.mark.extended
@both_codings
@pytest.mark.parametrize(("media", "character"), [(JSON, b" "), (LINES, b"\n")])
def test_ten_gigabytes_in_a_small_body_need_no_memory(
    request: pytest.FixtureRequest, tmp_path: Path, coding: str, media: str, character: bytes
) -> None:
    content = COMPRESS[coding](character * (100 * MIB)) * 100
    assert len(content) < 20 * MIB
    with served(fresh_settings("sqlite", request, tmp_path)) as service:
        pid = service.running.process.pid
        with Client(service.url, service.token) as client:
            client.store("group", output(0))
            before = peak_memory_bytes(pid)
            status, _ = post(client, content, coding, media)
            assert status == 413
            grown = peak_memory_bytes(pid) - before
    assert grown < 80 * MIB


@pytest.mark.extended
@both_codings
def test_memory_does_not_grow_with_the_length_of_a_compressed_body(
    request: pytest.FixtureRequest, tmp_path: Path, coding: str
) -> None:
    """100 MB of lines; the service holds about a megabyte at a time, and the window of zstd."""
    texts = [random.Random(n).randbytes(5000).hex() * 10 for n in range(20)]
    lines = [json.dumps(output(n, data={"text": text})) + "\n" for n, text in enumerate(texts)]
    part = COMPRESS[coding]("".join(lines).encode())

    def body() -> Iterator[bytes]:
        for _ in range(50):
            yield part

    with served(fresh_settings("sqlite", request, tmp_path)) as service:
        pid = service.running.process.pid
        with Client(service.url, service.token) as client:
            client.store("group", output(0))
            before = peak_memory_bytes(pid)
            status, stored = post(client, body(), coding)
            assert (status, stored.get("lines")) == (200, 1000), stored
            grown = peak_memory_bytes(pid) - before
    assert grown < 60 * MIB
