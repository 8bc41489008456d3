"""Deployment of the service with its own folder, database and token, and the service it runs."""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import asyncpg

from bench import servers
from bench.load_generator import SERVER_CORE, measure_gets, measure_posts

_MAX_CURSORS = 2000
"""Different pages of a group that a measurement asks for, approximately."""


class Service(NamedTuple):
    """A running service."""

    url: str
    pid: int
    token: str

    def get(self, path: str) -> bytes:
        return self._request(path, None, {})

    def post(self, path: str, body: Any, content_type: str = "application/json") -> Any:
        return json.loads(self._request(path, body, {"Content-Type": content_type}))

    def put(self, path: str, body: Any) -> None:
        headers = {"Content-Type": "application/json"}
        self._request(path, json.dumps(body).encode(), headers, "PUT")

    def _request(
        self, path: str, body: Any, headers: dict[str, str], method: str | None = None
    ) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=3600) as response:
            return bytes(response.read())

    def store_outputs(self, group: str, outputs: Iterable[dict[str, Any]]) -> None:
        lines = (json.dumps(output).encode() + b"\n" for output in outputs)
        self.post(f"/v1/outputs/{group}", lines, "application/x-ndjson")

    def measure_reads(self, paths: list[str], connections: int = 16) -> float:
        """Return requests per second of one round of reads."""
        return measure_gets(self.url, paths, self.token, connections)

    def measure_posts(self, path: str, body: str, connections: int) -> float:
        """Return requests per second of one round of writes."""
        return measure_posts(self.url, path, body, self.token, connections)


class Deployment:
    """A data folder and, for PostgreSQL, the URL of a database. ``python`` runs the program."""

    def __init__(
        self, folder: Path, database: str | None = None, python: Path = servers.THIS_PYTHON
    ) -> None:
        self.folder, self.database, self._python = folder, database, python
        self._token = ""

    @contextmanager
    def serve(
        self,
        workers: int = 1,
        core: int | None = SERVER_CORE,
        module: str = "gleanery",
        options: Sequence[str] = (),
    ) -> Iterator[Service]:
        arguments = (self.folder, self.database, workers, core, module, options, self._python)
        with servers.gleanery(*arguments) as (url, pid):
            self._token = self._token or servers.create_token(
                self.folder, self.database, self._python
            )
            yield Service(url, pid, self._token)

    @contextmanager
    def serve_on_uvicorn(self) -> Iterator[Service]:
        """Run the service through the ASGI adapter."""
        with servers.gleanery_on_uvicorn(self.folder) as (url, pid):
            self._token = self._token or servers.create_token(self.folder, self.database)
            yield Service(url, pid, self._token)

    def flush(self) -> None:
        """Write all data to the disk, so that the write-back does not disturb a measurement."""
        if self.database:
            self.execute("VACUUM ANALYZE")
            self.execute("CHECKPOINT")
        os.sync()

    def table_bytes(self, table: str) -> int:
        """Return the space of a table with its indexes on the disk."""
        if self.database:
            sql = f"SELECT pg_total_relation_size('{table}')"
        else:
            names = f"SELECT name FROM sqlite_schema WHERE tbl_name = '{table}'"
            sql = f"SELECT sum(pgsize) FROM dbstat WHERE name IN ({names})"
        return int(self.execute(sql)[0][0])

    def item_bytes(self) -> int:
        """Return the length of the items of all outputs."""
        return int(self.execute("SELECT sum(octet_length(item)) FROM outputs")[0][0])

    def sequence_numbers(self, group: str, table: str = "outputs") -> list[int]:
        """Return the position of each output of the group in the change order."""
        in_group = f"group_id = (SELECT id FROM groups WHERE name = '{group}')"
        return [
            row[0] for row in self.execute(f"SELECT seq FROM {table} WHERE {in_group} ORDER BY seq")
        ]

    def page_paths(self, group: str, limit: int, part: slice = slice(None)) -> list[str]:
        """Return paths of full pages all over the group, or of a part of its cursors."""
        return [
            f"/v1/outputs/{group}?limit={limit}&cursor={cursor}"
            for cursor in self.cursors(group, limit)[part]
        ]

    def cursors(self, group: str, limit: int, table: str = "outputs") -> list[int]:
        """Return evenly spaced cursors, each followed by more than a page."""
        cursors = self.sequence_numbers(group, table)[: -limit - 1]
        return cursors[:: max(len(cursors) // _MAX_CURSORS, 1)]

    def execute(self, sql: str) -> list[Any]:
        if self.database is not None:
            return asyncio.run(_fetch(self.database, sql))
        connection = apsw.Connection(str(self.folder / "gleanery.sqlite"))
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


async def _fetch(database: str, sql: str) -> list[Any]:
    connection = await asyncpg.connect(database)
    try:
        return list(await connection.fetch(sql))
    finally:
        await connection.close()


def cursor_timestamp(cursor: int) -> str:
    """Return the time of a position in the change order, which counts microseconds."""
    seconds, fraction = divmod(cursor, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{fraction:06}Z"
