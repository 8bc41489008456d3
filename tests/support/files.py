"""Files to upload, hostile file names, and the memory that a transfer takes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import string
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlencode

from gleanery.common.settings import Settings
from tests.support.outputs import output
from tests.support.process import peak_memory_bytes, served
from tests.support.s3 import PLACE, Bucket
from tests.support.service import Client, Service

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 40


def with_blob_store(settings: Settings, blob_store: str, **more: Any) -> Settings:
    return replace(settings, blobs=PLACE if blob_store == "s3" else None, **more)


def upload(client: Client, content: bytes = PDF, **query: str) -> dict[str, Any]:
    answer = client.post("/v1/files", params=query, content=content)
    assert answer.status_code == 200, answer.text
    stored: dict[str, Any] = answer.json()
    return stored


def store_file(client: Client, number: int, content: bytes | None = None) -> str:
    """Stores the file of this number, and returns its id."""
    about = {"source_url": f"https://a/{number}", "etag": "1", "filename": f"{number}.txt"}
    return str(upload(client, content or b"%d" % number * 1000, **about)["id"])


def with_file(client: Client, number: int) -> dict[str, Any]:
    """Output with one stored file."""
    return output(number, files=[{"field": "f", "id": store_file(client, number)}])


def memory_growth(
    settings: Settings, blob_store: str, bucket: Bucket | None, mebibytes: int
) -> int:
    """Bytes by which a service grows while it stores a file and serves it again."""
    size, piece = mebibytes * 2**20, os.urandom(2**20)
    variables = bucket.variables if bucket else {}
    options = ["--blobs", PLACE] if blob_store == "s3" else []
    with served(settings, *options, **variables) as service:
        client = Client(service.url, service.token)
        upload(client, b"first")
        pid = service.running.process.pid
        before = peak_memory_bytes(pid)
        answer = client.post("/v1/files", content=(piece for _ in range(mebibytes)), timeout=120)
        assert answer.json()["size"] == size
        up = peak_memory_bytes(pid) - before
        digest, read = hashlib.sha256(), 0
        with client.stream("GET", f"/v1/files/{answer.json()['id']}", timeout=120) as got:
            for chunk in got.iter_bytes():
                digest.update(chunk)
                read += len(chunk)
        both = peak_memory_bytes(pid) - before
    print(f"{blob_store}: memory grew by {up / 2**20:.0f} MiB going in, {both / 2**20:.0f} in all")
    assert (read, digest.hexdigest()) == (size, answer.json()["file_checksum"])
    return both


def hostile_names(count: int) -> Iterator[str]:
    """Names that would leave a folder if they became paths."""
    choice = random.Random(4)
    dots = ["..", ".", "../", "..\\", "/", "//", "\\", "%2e%2e%2f", "..%00", "~", "C:", "aux"]
    letters = [*string.printable, "é", "世", "\u202e", "\u0000", "\ud7ff", "🜁", "\x7f", "#1"]
    for number in range(count):
        match number % 4:
            case 0:
                yield "".join(choice.choices(dots, k=choice.randrange(1, 12))) + "etc/passwd"
            case 1:
                yield "".join(choice.choices(letters, k=choice.randrange(1, 40)))
            case 2:
                yield choice.choice(["a", "../", "世"]) * choice.randrange(50, 900)
            case _:
                yield f"/{_random_name(choice)}/../{_random_name(choice)}"


def _random_name(choice: random.Random) -> str:
    return "".join(choice.choices(string.ascii_letters, k=8))


def _request_with_name(number: int, name: str) -> tuple[str, str, bytes]:
    """Request that uses the name as a file name, source URL, id or key."""
    path = quote(name, safe="")
    match number % 10:
        case 0:
            query = urlencode({"source_url": name, "etag": name, "filename": name[:255]})
            return "POST", f"/v1/files?{query}", name.encode()
        case 1 | 2 | 3:
            return "GET", f"/v1/files/{path}", b""
        case 4 | 5:
            query = urlencode({"organization": "1", "expires": "9999999999", "signature": name})
            return "GET", f"/v1/blobs/{path}?{query}", b""
        case 6:
            return "GET", f"/v1/files?{urlencode({'source_url': name, 'etag': name})}", b""
        case 7:
            file = {"field": name, "id": name}
        case _:
            file = {"field": name, "file_url": name, "source_url": name}
    return "POST", "/v1/outputs/group", json.dumps([output(1, files=[file])]).encode()


def assert_harmless(names: Iterator[str], settings: Settings) -> None:
    """Sends each name with the fastest client, the standard library's, and checks all paths."""
    service = Service(settings)
    connection = HTTPConnection("127.0.0.1", service.settings.port)
    headers = {
        "Authorization": f"Bearer {service.token('hostile')}",
        "Content-Type": "application/json",
    }
    statuses = []
    for number, name in enumerate(names):
        connection.request(*_request_with_name(number, name), headers)
        with connection.getresponse() as answer:
            answer.read()
        statuses.append(answer.status)
    connection.close()
    service.stop()
    assert set(statuses) <= {200, 403, 404, 422}, set(statuses)
    assert statuses.count(200) > len(statuses) // 5
    folder = settings.data.parent
    found = [p.relative_to(folder) for p in folder.rglob("*") if p.is_file()]
    ours = re.compile(
        r"data/(blobs/[0-9]+/([0-9a-f]{2})/\2[0-9a-f]{30}|gleanery\.sqlite|secret\.key)"
    )
    assert [str(p) for p in found if not ours.fullmatch(str(p))] == []
    assert len(found) > len(statuses) // 20
