"""A Gleanery with a folder, a database and a token of its own: started, filled, asked."""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import asyncpg

from bench import servers
from bench.load_generator import SERVER_CORE, posts_per_second, requests_per_second

_PLACES = 2000
"""In a group, at which pages are asked for."""


class Service(NamedTuple):
    """A deployment while it serves."""

    url: str
    pid: int
    token: str

    def get(self, path: str) -> bytes:
        return self._answer(path, None, {})

    def post(self, path: str, body: Any, kind: str = "application/json") -> Any:
        return json.loads(self._answer(path, body, {"Content-Type": kind}))

    def _answer(self, path: str, body: Any, headers: dict[str, str]) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        request = urllib.request.Request(self.url + path, body, headers)
        with urllib.request.urlopen(request, timeout=3600) as answer:
            return bytes(answer.read())

    def fill(self, group: str, outputs: Iterable[dict[str, Any]]) -> None:
        lines = (json.dumps(output).encode() + b"\n" for output in outputs)
        self.post(f"/v1/outputs/{group}", lines, "application/x-ndjson")

    def reads(self, paths: list[str], connections: int = 16) -> float:
        return requests_per_second(self.url, paths, self.token, connections)

    def writes(self, path: str, body: str, connections: int) -> float:
        return posts_per_second(self.url, path, body, self.token, connections)


class Deployment:
    """A folder and, unless it is embedded, a database."""

    def __init__(self, folder: Path, database: str | None = None) -> None:
        self.folder, self.database = folder, database
        self._token = ""

    @contextmanager
    def serving(
        self, workers: int = 1, core: int | None = SERVER_CORE, module: str = "gleanery"
    ) -> Iterator[Service]:
        with servers.gleanery(self.folder, self.database, workers, core, module) as (url, pid):
            self._token = self._token or servers.token(self.folder, self.database)
            yield Service(url, pid, self._token)

    def settle(self) -> None:
        """As some time after a large load: or it is still written out while others are measured."""
        if self.database:
            self._execute("VACUUM ANALYZE")
            self._execute("CHECKPOINT")
        os.sync()

    def order(self, group: str) -> list[int]:
        """The place of each output in the change order."""
        of_group = f"group_id = (SELECT id FROM groups WHERE name = '{group}')"
        return [
            row[0]
            for row in self._execute(f"SELECT seq FROM outputs WHERE {of_group} ORDER BY seq")
        ]

    def pages(self, group: str, limit: int, part: slice = slice(None)) -> list[str]:
        """Paths of full pages at places all over the group, or over a part of its places."""
        return [
            f"/v1/outputs/{group}?limit={limit}&cursor={place}"
            for place in self.places(group, limit)[part]
        ]

    def places(self, group: str, limit: int) -> list[int]:
        """Some of the places after which there is more than a page."""
        before = self.order(group)[: -limit - 1]
        return before[:: max(len(before) // _PLACES, 1)]

    def _execute(self, sql: str) -> list[Any]:
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


def moment(place: int) -> str:
    """A place in the change order as the date-time that it is, to the microsecond."""
    seconds, fraction = divmod(place, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{fraction:06}Z"
