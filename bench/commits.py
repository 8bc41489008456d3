"""Many clients that post one cookie each, beside one commit for each cookie by the bare driver."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from uuid import uuid4

import apsw

from bench.ground import Ground
from bench.ingest import new_sqlite
from bench.load import SECONDS
from bench.measuring import Turns
from bench.nodes import Service
from bench.results import at_least

_TOGETHER, _ALONE, _DRIVER = "16 connections", "1 connection", "the driver, one by one"
_INSERT = """
INSERT INTO cookies
    (organization_id, identity, sealed, updated, domain, host, name, path, secure, http_only)
VALUES (1, ?, ?, ?, 'a.com', 'a.com', ?, '', 0, 0)
"""
_VALUE = "v" * 100
_SEAL_BYTES = 32
"""What sealing adds to a value."""


def measure(ground: Ground) -> None:
    connection = new_sqlite(ground, "commits-driver")
    with ground.empty("commits").serving() as service:
        turns = Turns(
            {
                _TOGETHER: partial(_posted, service, 16),
                _ALONE: partial(_posted, service, 1),
                _DRIVER: partial(_one_by_one, connection),
            }
        ).run()
    connection.close()
    more = "" if _ALONE in turns.gaps else f"; {turns.words(_ALONE)}"
    work = "16 connections posting a cookie each, SQLite, of one commit a request"
    ground.notes.ratio(work, at_least(4), turns, _TOGETHER, _DRIVER, more)


def _posted(service: Service, connections: int) -> float:
    """No cookie twice, in no round."""
    cookie = {"domain": "a.com", "name": f"{uuid4().hex}-%d", "value": _VALUE}
    return service.writes("/v1/cookies", json.dumps([cookie]), connections)


def _one_by_one(connection: apsw.Connection) -> float:
    """Every statement is a transaction, and waits for the disk."""
    began, count = time.perf_counter(), 0
    prefix = uuid4().hex
    while time.perf_counter() - began < SECONDS:
        sealed = os.urandom(len(_VALUE) + _SEAL_BYTES)
        row = (os.urandom(32), sealed, time.time_ns() // 1000, f"{prefix}-{count}")
        connection.execute(_INSERT, row)
        count += 1
    return count / (time.perf_counter() - began)
