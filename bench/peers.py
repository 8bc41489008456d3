"""The peers: how each is filled with the same records, started, and asked for a page of them."""

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
from bench.load_generator import NotMeasured, requests_per_second
from bench.measurement import Measure

Record = dict[str, Any]
_PLACES = range(0, dataset.SMALL_SIZE - 1000, 37)


def records() -> Iterator[Record]:
    """What every peer holds: of an output, what Gleanery gives back of it as it was sent."""
    for output in dataset.outputs(dataset.SMALL_SIZE):
        yield {name: output[name] for name in ("job_id", "source_url", "data", "tags")}


@dataclass(frozen=True)
class Peer:
    name: str
    serving: Callable[[Path, str], AbstractContextManager[str]]
    """Its address, given a folder and a PostgreSQL database, both empty."""
    page: Callable[[int, int], str]
    """The path of a page: of how many records, after how many."""
    found: Callable[[Any], list[Record]]
    """The records in an answer."""
    token: str | None = None

    def measure(self, url: str, limit: int) -> Measure:
        """Refuses one that gives other records than it should."""
        place = _PLACES[len(_PLACES) // 2]
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(url + self.page(limit, place), headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            must_be_the_records(self.found(json.load(answer)), place, limit)
        paths = [self.page(limit, place) for place in _PLACES]
        return partial(requests_per_second, url, paths, self.token)


def must_be_the_records(found: list[Record], place: int, limit: int) -> None:
    kept = [{name: one[name] for name in ("job_id", "source_url", "data", "tags")} for one in found]
    if kept != list(islice(records(), place, place + limit)):
        raise NotMeasured(f"a page of {limit} holds other records than the ones stored")


# --- a table in SQLite, for two of them ---


def _table(folder: Path) -> Path:
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
                (one["job_id"], one["source_url"], json.dumps(one["data"]), json.dumps(one["tags"]))
                for one in records()
            ),
        )
    connection.close()
    return path


def _fastapi_baseline(folder: Path, _: str) -> AbstractContextManager[str]:
    table = str(_table(folder))
    return servers.uvicorn(
        "bench.fastapi_baseline:app", servers.peer("python"), BENCH_DATABASE=table
    )


def _datasette(folder: Path, _: str) -> AbstractContextManager[str]:
    return servers.datasette(_table(folder))


def _rows(answer: Any) -> list[Record]:
    """Datasette gives JSON in a column as text."""
    parsed = ("data", "tags")
    return [row | {name: json.loads(row[name]) for name in parsed} for row in answer["rows"]]


# --- Kinto ---

_KINTO = """
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
_FIRST = 1_700_000_000_000
"""Kinto pages by the millisecond of the last change: record n has this one and n seconds."""
_INSERT = """
INSERT INTO objects (id, parent_id, resource_name, last_modified, data, deleted)
VALUES ($1, $2, $3, from_epoch($4), $5::jsonb, false)
"""
_ALLOW = """
INSERT INTO access_control_entries (object_id, permission, principal)
VALUES ('/buckets/b', 'read', 'system.Everyone')
"""


@contextmanager
def _kinto(folder: Path, database: str) -> Iterator[str]:
    port = servers.free_port()
    ini = folder / "kinto.ini"
    ini.write_text(_KINTO.format(database=database.replace("%", "%%"), port=port))
    migrate = [str(servers.peer("kinto")), "migrate", "--ini", str(ini)]
    made = subprocess.run(migrate, capture_output=True, text=True, check=False)
    if made.returncode:
        raise NotMeasured(f"kinto migrate: {made.stderr[-200:]}")
    asyncio.run(_fill_kinto(database))
    with servers.kinto(ini, port) as url:
        yield url


async def _fill_kinto(database: str) -> None:
    """Straight into its tables: through HTTP it would take minutes."""
    connection = await asyncpg.connect(database)
    await connection.execute(_ALLOW)
    await connection.execute(_INSERT, "b", "", "bucket", _FIRST, "{}")
    await connection.execute(_INSERT, "c", "/buckets/b", "collection", _FIRST, "{}")
    rows = [
        (f"record-{number}", _COLLECTION, "record", _FIRST + 1000 * number, json.dumps(record))
        for number, record in enumerate(records(), 1)
    ]
    async with connection.transaction():
        await connection.executemany(_INSERT, rows)
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


PEERS = (
    Peer(
        "FastAPI, ORM",
        _fastapi_baseline,
        lambda limit, place: f"/outputs?limit={limit}&cursor={place}",
        lambda answer: list(answer["items"]),
        token="baseline",
    ),
    Peer(
        "Datasette",
        _datasette,
        # It counts the table at each page unless it is told not to; the others don't.
        lambda limit, place: (
            f"/peers/outputs.json?_size={limit}&_next={place}&_shape=objects"
            "&_nocount=1&_nofacet=1&_nosuggest=1"
        ),
        _rows,
    ),
    Peer(
        "Kinto",
        _kinto,
        lambda limit, place: (
            f"/v1{_COLLECTION}/records?_sort=last_modified&_limit={limit}"
            f"&_since={_FIRST + 1000 * place}"
        ),
        lambda answer: list(answer["data"]),
    ),
)
