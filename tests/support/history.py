"""The stored history of an output, read from the database and restored."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

from gleanery.service.foundation.security import tokens
from gleanery.service.resources.access.organizations import find_grant
from gleanery.service.resources.history import entries
from gleanery.service.resources.history.entries import Version
from gleanery.service.storage.engines import open_engine
from tests.support.service import Client, Service

_CURRENT = "SELECT item, approved FROM outputs WHERE organization_id = $1 AND identity = $2"
_SEGMENTS = """
SELECT seq, first_replaced_seq, version_count, versions FROM output_history
WHERE organization_id = $1 AND identity = $2 ORDER BY seq DESC
"""


class StoredVersion(NamedTuple):
    """A version and its item."""

    version: Version
    item: dict[str, Any]


class Segment(NamedTuple):
    """A row of the table ``output_history``."""

    seq: int
    first_replaced_seq: int
    version_count: int
    versions: bytes


def read_rows(service: Service, client: Client, sql: str, *values: Any) -> list[Any]:
    """Runs a statement for the client's organization, whose id is the first value."""

    async def read() -> list[Any]:
        async with open_engine(service.settings) as engine:
            grant = await find_grant(engine, tokens.digest(client.token or ""))
            assert grant is not None
            database = engine.for_tenant(grant.organization_id)
            return [*await database.read(sql, grant.organization_id, *values)]

    return asyncio.run(read())


def stored_segments(service: Service, client: Client, output_id: str) -> list[Segment]:
    """The segments of an output, newest first."""
    rows = read_rows(service, client, _SEGMENTS, bytes.fromhex(output_id))
    return [Segment(*row) for row in rows]


def stored_history(service: Service, client: Client, output_id: str) -> list[StoredVersion]:
    """The earlier versions of an output, newest first."""
    text: bytes | None = None
    for item, approved in read_rows(service, client, _CURRENT, bytes.fromhex(output_id)):
        text = entries.split(item, bool(approved))[0]
    versions = []
    for segment in stored_segments(service, client, output_id):
        stored = [*entries.decode(segment.versions)]
        assert segment.version_count == len(stored)
        assert segment.first_replaced_seq == stored[-1].version.replaced_seq
        assert segment.seq <= stored[-1].version.seq
        for entry in stored:
            text = entry.restore(None if entry.version.is_deleted else text)
            versions.append(StoredVersion(entry.version, json.loads(entry.render(text))))
    return versions
