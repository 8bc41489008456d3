"""Stand-in for a service: sends prepared pages of outputs, to Gleanery's client and to Apify's.

It accepts batches of both, and discards them.

Its cost per page is small, so that the client is what a measurement measures. A group is named by
its number of outputs: the group ``1000000`` has a million. Every output has an id of its own. In
``1000000-mixed`` the ids come in no order, as in a group whose outputs were updated often.
"""

from __future__ import annotations

import json
import random
import re
import socket
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

PAGE_SIZE = 1000
_IDS = re.compile(rb'"id":(\d+),"output_id":"([0-9a-f]{32})"')
_FIRST_ID = 1_000_000_000
_MIXED = "-mixed"
_STEP = 7_368_787
"""A prime: a multiple of it, modulo a smaller number, takes each value once."""
_ID_BYTES = 16
_RECEIVE_BYTES = 65536


class _Template(NamedTuple):
    """The items of a page as a JSON array, and where the ids are in it."""

    content: bytes
    positions: list[int]


def prepare_page(page: bytes) -> bytes:
    """Return the items of a page of the service as a JSON array. Each id has the same length."""
    items = page[page.index(b'"items":') + len(b'"items":') : page.rindex(b"}")]
    return _IDS.sub(rb'"id":%d,"output_id":"\2"' % _FIRST_ID, items)


def group_size(group: str) -> int:
    return int(group.removesuffix(_MIXED))


def main(port: str, folder: str) -> None:
    files = sorted(Path(folder, "pages").iterdir())
    service = Service(
        [_template(file.read_bytes()) for file in files],
        json.loads(Path(folder, "group.json").read_bytes()),
    )
    with socket.create_server(("127.0.0.1", int(port))) as listener:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_serve, args=(connection, service), daemon=True).start()


def _template(content: bytes) -> _Template:
    positions = [match.start(1) for match in _IDS.finditer(content)]
    assert len(positions) == PAGE_SIZE
    return _Template(content, positions)


def _serve(connection: socket.socket, service: Service) -> None:
    """Answer the requests of a connection, one after the other. It discards their bodies."""
    with connection, connection.makefile("rb", _RECEIVE_BYTES) as received:
        while line := received.readline():
            method, target, _ = line.decode().split(" ", 2)
            size = 0
            while (header := received.readline().lower()) != b"\r\n":
                if header.startswith(b"content-length:"):
                    size = int(header.partition(b":")[2])
            received.read(size)
            for part in service.respond(method, target):
                connection.sendall(part)


class Service(NamedTuple):
    """The content of the stand-in, and its responses."""

    templates: list[_Template]
    group: dict[str, Any]
    """A group as a service describes it."""

    def respond(self, method: str, target: str) -> tuple[bytes, ...]:
        """Return the parts of a response."""
        if method == "POST":  # a batch of outputs
            return _json({"created": 0, "updated": 0, "unchanged": 0, "lines": 0})
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        match path.split("/"):
            case ["", "v1", "outputs", group]:
                return self._outputs(group, int(query.get("cursor", ["0"])[0]))
            case ["", "v2", "datasets", group, "items"]:
                return self._dataset_items(group, int(query.get("offset", ["0"])[0]))
            case ["", "v1", "groups", group]:
                return _json(self.group | {"group_id": group, "outputs": group_size(group)})
            case ["", "v1", "changes", group]:
                end = {"next_url": None, "next_cursor": None}
                return _json({"metadata": end, "cursor": group_size(group), "changes": []})
            case ["", "v1", "exports", group]:  # only its head is asked for
                return (_head(0, f"gleanery-cursor: {group_size(group)}\r\n"),)
            case _:
                return (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",)

    def _outputs(self, group: str, start: int) -> tuple[bytes, ...]:
        items = self._items(group, start)
        cursor = start + PAGE_SIZE if start + PAGE_SIZE < group_size(group) else None
        metadata = json.dumps({"metadata": {"next_url": None, "next_cursor": cursor}})
        before = metadata[:-1].encode() + b',"items":'
        return _head(len(before) + len(items) + 1), before, items, b"}"

    def _dataset_items(self, group: str, start: int) -> tuple[bytes, ...]:
        items, count = self._items(group, start), group_size(group)
        values = {"total": count, "offset": start, "limit": PAGE_SIZE, "desc": "false"}
        values["count"] = PAGE_SIZE if start < count else 0
        headers = [f"x-apify-pagination-{name}: {value}\r\n" for name, value in values.items()]
        return _head(len(items), "".join(headers)), items

    def _items(self, group: str, start: int) -> bytes:
        """Return the page at this position, with ids that only this page has."""
        count = group_size(group)
        if start >= count:
            return b"[]"
        template = self.templates[start // PAGE_SIZE % len(self.templates)]
        page = bytearray(template.content)
        step = _STEP if group.endswith(_MIXED) else 1
        output_ids = random.Random(start).randbytes(PAGE_SIZE * _ID_BYTES).hex().encode()
        for number, position in enumerate(template.positions):
            output_id = output_ids[2 * _ID_BYTES * number : 2 * _ID_BYTES * (number + 1)]
            id_ = _FIRST_ID + (start + number) * step % count
            new = b'%d,"output_id":"%s"' % (id_, output_id)
            page[position : position + len(new)] = new
        return bytes(page)


def _json(value: dict[str, Any]) -> tuple[bytes, ...]:
    body = json.dumps(value).encode()
    return _head(len(body)), body


def _head(size: int, headers: str = "") -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}"
    return f"{head}content-length: {size}\r\n\r\n".encode()


if __name__ == "__main__":
    main(*sys.argv[1:])
