"""Comparable services (peers): fills each with the same records and asks for the same pages."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import asyncpg

from bench import dataset, servers
from bench.load_generator import NotMeasured, measure_gets
from bench.measurement import MeasureRate

Record = dict[str, Any]
_OFFSETS = range(0, dataset.SMALL_SIZE - 1000, 37)
_FIELDS = ("job_id", "source_url", "data", "tags")
"""Fields of an output that Gleanery returns unchanged. The peers store only these."""


def records() -> Iterator[Record]:
    """Generate the records that every peer holds."""
    for output in dataset.outputs(dataset.SMALL_SIZE):
        yield {name: output[name] for name in _FIELDS}


@dataclass(frozen=True)
class Peer:
    name: str
    serve: Callable[[Path, str], AbstractContextManager[str]]
    """Runs the peer with a folder and an empty PostgreSQL database; yields its URL."""
    page_path: Callable[[int, int], str]
    """Returns the path of a page, given the number of records and the offset."""
    parse_page: Callable[[Any], list[Record]]
    """Returns the records of a response."""
    token: str | None = None

    def prepare(self, url: str, limit: int) -> MeasureRate:
        """Check a page of the peer and return its measurement."""
        offset = _OFFSETS[len(_OFFSETS) // 2]
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(url + self.page_path(limit, offset), headers=headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            check_records(self.parse_page(json.load(response)), offset, limit)
        paths = [self.page_path(limit, offset) for offset in _OFFSETS]
        return partial(measure_gets, url, paths, self.token)


def check_records(page: list[Record], offset: int, limit: int) -> None:
    """Raise NotMeasured unless the page holds exactly the records at this offset."""
    actual = [{name: record[name] for name in _FIELDS} for record in page]
    if actual != list(islice(records(), offset, offset + limit)):
        raise NotMeasured(f"a page of {limit} does not hold the stored records")


# --- SQLite table, for the FastAPI baseline and Datasette ---


def _create_table(folder: Path) -> Path:
    path = folder / "peers.sqlite"
    if path.exists():
        return path
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute(
            "CREATE TABLE outputs (id INTEGER PRIMARY KEY, job_id TEXT, source_url TEXT, "
            "data TEXT, tags TEXT)"
        )
        connection.executemany(
            "INSERT INTO outputs (job_id, source_url, data, tags) VALUES (?, ?, ?, ?)",
            (
                (row["job_id"], row["source_url"], json.dumps(row["data"]), json.dumps(row["tags"]))
                for row in records()
            ),
        )
    connection.close()
    return path


def _fastapi_baseline(folder: Path, _: str) -> AbstractContextManager[str]:
    python, database = servers.peer_program("python"), str(_create_table(folder))
    return servers.uvicorn("bench.fastapi_baseline:app", python, BENCH_DATABASE=database)


def _datasette(folder: Path, _: str) -> AbstractContextManager[str]:
    return servers.datasette(_create_table(folder))


def _parse_datasette_page(page: Any) -> list[Record]:
    """Return the records. Datasette returns a JSON column as text."""
    columns = ("data", "tags")
    return [row | {name: json.loads(row[name]) for name in columns} for row in page["rows"]]


# --- Kinto ---

_KINTO_SETTINGS = """
[app:main]
use = egg:kinto
kinto.storage_backend = kinto.core.storage.postgresql
kinto.storage_url = {database}
kinto.permission_backend = kinto.core.permission.postgresql
kinto.permission_url = {database}
kinto.cache_backend = kinto.core.cache.memory
kinto.userid_hmac_secret = bench
kinto.paginate_by = 1000
kinto.storage_max_fetch_size = 10000
[server:main]
use = egg:waitress#main
host = 127.0.0.1
port = {port}
"""
_COLLECTION = "/buckets/b/collections/c"
_FIRST_CHANGE = 1_700_000_000_000
"""Kinto pages by the last change, in milliseconds. Record n changed n seconds after this time."""
_INSERT_OBJECT = """
INSERT INTO objects (id, parent_id, resource_name, last_modified, data, deleted)
VALUES ($1, $2, $3, from_epoch($4), $5::jsonb, false)
"""
_ALLOW_READS = """
INSERT INTO access_control_entries (object_id, permission, principal)
VALUES ('/buckets/b', 'read', 'system.Everyone')
"""


@contextmanager
def _kinto(folder: Path, database: str) -> Iterator[str]:
    port = servers.free_port()
    ini = folder / "kinto.ini"
    ini.write_text(_KINTO_SETTINGS.format(database=database.replace("%", "%%"), port=port))
    migrate = [str(servers.peer_program("kinto")), "migrate", "--ini", str(ini)]
    run = subprocess.run(migrate, capture_output=True, text=True, check=False)
    if run.returncode:
        raise NotMeasured(f"kinto migrate: {run.stderr[-200:]}")
    asyncio.run(_fill_kinto(database))
    with servers.kinto(ini, port) as url:
        yield url


async def _fill_kinto(database: str) -> None:
    """Insert the records directly into the tables: over HTTP it would take minutes."""
    connection = await asyncpg.connect(database)
    await connection.execute(_ALLOW_READS)
    await connection.execute(_INSERT_OBJECT, "b", "", "bucket", _FIRST_CHANGE, "{}")
    await connection.execute(_INSERT_OBJECT, "c", "/buckets/b", "collection", _FIRST_CHANGE, "{}")
    rows = [
        (
            f"record-{number}",
            _COLLECTION,
            "record",
            _FIRST_CHANGE + 1000 * number,
            json.dumps(record),
        )
        for number, record in enumerate(records(), 1)
    ]
    async with connection.transaction():
        await connection.executemany(_INSERT_OBJECT, rows)
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


PEERS = (
    Peer(
        "FastAPI + SQLAlchemy",
        _fastapi_baseline,
        lambda limit, offset: f"/outputs?limit={limit}&cursor={offset}",
        lambda page: list(page["items"]),
        token="baseline",
    ),
    Peer(
        "Datasette",
        _datasette,
        # By default it counts the rows of the table for each page. The other peers do not.
        lambda limit, offset: (
            f"/peers/outputs.json?_size={limit}&_next={offset}&_shape=objects"
            "&_nocount=1&_nofacet=1&_nosuggest=1"
        ),
        _parse_datasette_page,
    ),
    Peer(
        "Kinto",
        _kinto,
        lambda limit, offset: (
            f"/v1{_COLLECTION}/records?_sort=last_modified&_limit={limit}"
            f"&_since={_FIRST_CHANGE + 1000 * offset}"
        ),
        lambda page: list(page["data"]),
    ),
)
