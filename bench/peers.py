"""Fills the peers with the same records, each in the way that suits it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import data, servers
from bench.load import NoLoad

RECORDS = 10_000


def sqlite_file(path: Path) -> Path:
    """A table as SQLAlchemy and Datasette read it."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute(
            "CREATE TABLE outputs (id INTEGER PRIMARY KEY, job_id TEXT, source_url TEXT, "
            "data TEXT, tags TEXT)"
        )
        connection.executemany(
            "INSERT INTO outputs (job_id, source_url, data, tags) VALUES (?, ?, ?, ?)",
            (
                (one["job_id"], one["source_url"], json.dumps(one["data"]), json.dumps(one["tags"]))
                for one in data.outputs(RECORDS)
            ),
        )
    return path


_KINTO = """
[app:main]
use = egg:kinto
kinto.storage_backend = kinto.core.storage.postgresql
kinto.storage_url = {database}
kinto.permission_backend = kinto.core.permission.postgresql
kinto.permission_url = {database}
kinto.cache_backend = kinto.core.cache.memory
kinto.userid_hmac_secret = bench
kinto.bucket_read_principals = system.Everyone
kinto.paginate_by = 1000
kinto.storage_max_fetch_size = 10000
[server:main]
use = egg:waitress#main
host = 127.0.0.1
port = {port}
"""
_KINTO_FILL = """
import json, sys
from sqlalchemy import create_engine, text
sys.path.insert(0, {root!r})
from bench import data
rows = [
    dict(id=f"record-{{n}}", p="/buckets/b/collections/c", r="record", n=n,
         d=json.dumps(dict(one["data"], source_url=one["source_url"], tags=one["tags"])))
    for n, one in enumerate(data.outputs({records}))
]
rows += [dict(id="b", p="", r="bucket", n=1, d="{{}}")]
rows += [dict(id="c", p="/buckets/b", r="collection", n=1, d="{{}}")]
with create_engine({database!r}).begin() as connection:
    connection.execute(
        text("INSERT INTO objects (id, parent_id, resource_name, last_modified, data) VALUES "
             "(:id, :p, :r, to_timestamp(1700000000 + :n), CAST(:d AS jsonb))"), rows)
"""


@contextmanager
def kinto(folder: Path, database: str) -> Iterator[str]:
    port = servers.free_port()
    ini = folder / "kinto.ini"
    ini.write_text(_KINTO.format(database=database, port=port))
    root = str(Path(__file__).parent.parent)
    fill = _KINTO_FILL.format(root=root, records=RECORDS, database=database)
    for command in (
        [str(servers.PEERS / "kinto"), "migrate", "--ini", str(ini)],
        [str(servers.PEERS / "python"), "-c", fill],
    ):
        try:
            run = subprocess.run(
                command, capture_output=True, text=True, check=False, env=dict(os.environ)
            )
        except OSError as error:
            raise NoLoad(f"Kinto is not installed: {error.strerror}") from None
        if run.returncode:
            raise NoLoad(f"Kinto can't be filled: {run.stderr[-300:]}")
    with servers.kinto(ini, port) as url:
        yield url


def kinto_paths(limit: int) -> list[str]:
    """From random places, oldest first, by the time that stands for a record."""
    first = 1_700_000_000_000
    records = "/v1/buckets/b/collections/c/records"
    return [
        f"{records}?_sort=last_modified&_limit={limit}&_since={first + 1000 * n}"
        for n in range(0, RECORDS - 1000, 37)
    ]
