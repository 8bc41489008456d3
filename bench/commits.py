"""Measurement of group commit: many clients that post one cookie per request."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from functools import partial
from uuid import uuid4

import apsw

from bench.deployments import Service
from bench.environment import Environment
from bench.ingest import create_sqlite_database
from bench.load_generator import SECONDS
from bench.measurement import OF_BASELINE, Comparison, MeasureRate
from bench.results import at_least

_GROUP_COMMIT, _NO_GROUP_COMMIT = "group commit", "one commit per request"
_DRIVER = "driver, one commit per row"
_CONNECTIONS = 16
_INSERT = """
INSERT INTO cookies
    (organization_id, identity, encrypted_value, updated_at, domain, host, name, path, secure,
     http_only)
VALUES (1, ?, ?, ?, 'a.com', 'a.com', ?, '', 0, 0)
"""
_VALUE = "v" * 100
_ENCRYPTION_OVERHEAD = 32
"""Bytes that encryption adds to a value."""


def measure(environment: Environment) -> None:
    connection = create_sqlite_database(environment, "commits-driver")
    second = environment.new_deployment("no-group-commit")
    with ExitStack() as stack:
        candidates: dict[str, MeasureRate] = {_DRIVER: partial(_insert_cookies, connection)}
        for suffix, first in environment.versions("commits").items():
            group_commit = stack.enter_context(first.serve())
            candidates[_GROUP_COMMIT + suffix] = partial(_post_cookies, group_commit)
        no_group_commit = stack.enter_context(second.serve(module="bench.no_group_commit"))
        candidates[_NO_GROUP_COMMIT] = partial(_post_cookies, no_group_commit)
        comparison = Comparison(candidates).run()
    connection.close()
    label = f"{_CONNECTIONS} connections that post one cookie per request, SQLite: ratio to"
    report = environment.report
    report.add_ratio(
        f"{label} {_NO_GROUP_COMMIT}",
        at_least(4),
        comparison,
        _GROUP_COMMIT,
        _NO_GROUP_COMMIT,
        baseline=_GROUP_COMMIT + OF_BASELINE,
    )
    report.add_ratio(f"{label} the {_DRIVER}", None, comparison, _GROUP_COMMIT, _DRIVER)


def _post_cookies(service: Service) -> float:
    """Return requests per second. Every cookie is new, in every round."""
    cookie = {"domain": "a.com", "name": f"{uuid4().hex}-%d", "value": _VALUE}
    return service.measure_posts("/v1/cookies", json.dumps([cookie]), _CONNECTIONS)


def _insert_cookies(connection: apsw.Connection) -> float:
    """Return rows per second. Every statement is a transaction and waits for the disk."""
    start, count = time.perf_counter(), 0
    prefix = uuid4().hex
    while time.perf_counter() - start < SECONDS:
        encrypted = os.urandom(len(_VALUE) + _ENCRYPTION_OVERHEAD)
        row = (os.urandom(32), encrypted, time.time_ns() // 1000, f"{prefix}-{count}")
        connection.execute(_INSERT, row)
        count += 1
    return count / (time.perf_counter() - start)
