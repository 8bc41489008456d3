"""Many clients that post one cookie each, beside the same with one commit for each cookie."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from uuid import uuid4

import apsw

from bench.deployments import Service
from bench.environment import Environment
from bench.ingest import new_sqlite
from bench.load_generator import SECONDS
from bench.measurement import Turns
from bench.results import at_least

_TOGETHER, _APART, _DRIVER = "commits shared", "one commit each", "the driver, one by one"
_CLIENTS = 16
_INSERT = """
INSERT INTO cookies
    (organization_id, identity, sealed, updated, domain, host, name, path, secure, http_only)
VALUES (1, ?, ?, ?, 'a.com', 'a.com', ?, '', 0, 0)
"""
_VALUE = "v" * 100
_SEAL_BYTES = 32
"""What sealing adds to a value."""


def measure(environment: Environment) -> None:
    connection = new_sqlite(environment, "commits-driver")
    one, other = environment.empty("commits"), environment.empty("no-group-commit")
    with one.serving() as together, other.serving(module="bench.no_group_commit") as apart:
        turns = Turns(
            {
                _TOGETHER: partial(_posted, together),
                _APART: partial(_posted, apart),
                _DRIVER: partial(_one_by_one, connection),
            }
        ).run()
    connection.close()
    work = f"{_CLIENTS} connections posting a cookie each, SQLite, of"
    environment.notes.ratio(f"{work} one commit a request", at_least(4), turns, _TOGETHER, _APART)
    environment.notes.ratio(f"{work} the driver's single commits", None, turns, _TOGETHER, _DRIVER)


def _posted(service: Service) -> float:
    """No cookie twice, in no round."""
    cookie = {"domain": "a.com", "name": f"{uuid4().hex}-%d", "value": _VALUE}
    return service.writes("/v1/cookies", json.dumps([cookie]), _CLIENTS)


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
