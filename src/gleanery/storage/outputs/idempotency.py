"""Idempotency keys: a repeated request gets the stored response of the first one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from gleanery.errors import Conflict
from gleanery.models.batches import Batch
from gleanery.models.requests import Output
from gleanery.models.responses import IngestResult
from gleanery.storage.database import Database, Engine, Row, Transaction
from gleanery.values import json_text
from gleanery.values.hashing import hash_parts

_SELECT = """
SELECT request_hash, response FROM idempotency_keys
WHERE organization_id = $1 AND key_hash = $2
"""
_INSERT = """
INSERT INTO idempotency_keys (organization_id, key_hash, request_hash, response, created_at)
VALUES ($1, $2, $3, $4, $5)
"""
_DELETE_EXPIRED = """
DELETE FROM idempotency_keys WHERE (organization_id, key_hash) IN (
    SELECT organization_id, key_hash FROM idempotency_keys
    WHERE created_at < $1 ORDER BY created_at LIMIT $2)
RETURNING organization_id
"""
_ANY_EXPIRED = "SELECT 1 FROM idempotency_keys WHERE created_at < $1 LIMIT 1"
_DELETED_PER_TRANSACTION = 1000


class IdempotentRequest(NamedTuple):
    """A request with an idempotency key."""

    key_hash: bytes
    request_hash: bytes

    @classmethod
    def from_batch(cls, group: str, idempotency_key: str, batch: Batch) -> IdempotentRequest:
        """Hashes the key and the batch, which is parsed completely.

        The batches of an NDJSON body have the same key, so the position is a part of the hash.
        The group's rules are not: they may change between the request and its repetition.
        """
        outputs = batch.parse(range(len(batch.outputs)))
        key_hash = hash_parts(group, idempotency_key, batch.positions[0])
        return cls(key_hash, hash_parts(*map(_canonical, outputs)))

    async def read_response(self, database: Database) -> IngestResult | None:
        """Returns the stored response. Raises Conflict if the key belongs to another request."""
        return self._response(await database.read(_SELECT, database.organization_id, self.key_hash))

    async def fetch_response(self, transaction: Transaction) -> IngestResult | None:
        """Does the same as ``read_response``, inside a transaction."""
        organization_id = transaction.organization_id
        return self._response(await transaction.fetch(_SELECT, organization_id, self.key_hash))

    def _response(self, rows: Sequence[Row]) -> IngestResult | None:
        if not rows:
            return None
        request_hash, text = rows[0]
        if request_hash != self.request_hash:
            raise Conflict
        response: IngestResult = json.loads(text)
        return response

    async def save_response(
        self, transaction: Transaction, response: IngestResult, now: int
    ) -> None:
        """Stores the response in the transaction that stores the batch."""
        text = json.dumps(response)
        await transaction.fetch(_INSERT, transaction.organization_id, *self, text, now)


def _canonical(output: Output) -> bytes:
    members = {name: value for name, value in output._asdict().items() if value is not None}
    if output.files is not None:
        members["files"] = [file.model_dump(exclude_none=True) for file in output.files]
    return json_text.canonical(members)


async def delete_expired(engine: Engine, before: int) -> None:
    """Deletes the keys that were stored before this time."""
    database = engine.for_all_tenants()

    async def delete_some(transaction: Transaction) -> int:
        return len(await transaction.fetch(_DELETE_EXPIRED, before, _DELETED_PER_TRANSACTION))

    if await database.read(_ANY_EXPIRED, before):
        while await database.write(delete_some) == _DELETED_PER_TRANSACTION:
            pass
