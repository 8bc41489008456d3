"""Idempotency keys: a repeated request gets the stored response of the first one.

Only what the response needs is stored, and a long response is compressed. Its request has another
hash. So a program that cannot read it, beside this one during an upgrade, takes it for the response
to another request: the repetition gets 409 there, and is not carried out again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gleanery.service.foundation.errors import Conflict
from gleanery.service.foundation.values import json_text
from gleanery.service.foundation.values.compression import ZSTD
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.storage.database import Database, Engine, Row, Transaction

_SELECT = """
SELECT request_hash, response FROM idempotency_keys
WHERE organization_id = $1 AND key_hash = $2
"""
_INSERT = """
INSERT INTO idempotency_keys (organization_id, key_hash, request_hash, response, created_at)
VALUES ($1, $2, $3, $4, $5)
"""
_DELETE = "DELETE FROM idempotency_keys WHERE organization_id = $1 AND key_hash = $2"
_DELETE_EXPIRED = """
DELETE FROM idempotency_keys WHERE (organization_id, key_hash) IN (
    SELECT organization_id, key_hash FROM idempotency_keys
    WHERE created_at < $1 ORDER BY created_at LIMIT $2)
RETURNING organization_id
"""
_ANY_EXPIRED = "SELECT 1 FROM idempotency_keys WHERE created_at < $1 LIMIT 1"
_DELETED_PER_TRANSACTION = 1000
_MIN_COMPRESSED_BYTES = 1000
_ANY_LENGTH = -1


class IdempotentRequest(NamedTuple):
    """A request with an idempotency key."""

    key_hash: bytes
    """Hash of the operation, the group and the key."""
    request_hash: bytes
    """Hash of what was sent: the same key with another hash belongs to another request."""
    omitted: str | None = None
    """Member that the response to the client does not have."""

    async def read_response(self, database: Database) -> Any:
        """Return the stored response, or None.

        Raise Conflict if the key belongs to another request.
        """
        return self._response(await database.read(_SELECT, database.organization_id, self.key_hash))

    async def fetch_response(self, transaction: Transaction) -> Any:
        """Do the same as ``read_response``, inside a transaction."""
        organization_id = transaction.organization_id
        return self._response(await transaction.fetch(_SELECT, organization_id, self.key_hash))

    async def forget_response(self, transaction: Transaction) -> None:
        """Forget the stored response, because what it names is gone."""
        await transaction.fetch(_DELETE, transaction.organization_id, self.key_hash)

    @property
    def _hash_if_compressed(self) -> bytes:
        return hash_parts("compressed", self.request_hash)

    def _response(self, rows: Sequence[Row]) -> Any:
        if not rows:
            return None
        request_hash, text = rows[0]
        if request_hash == self.request_hash:
            return json.loads(text)
        if request_hash == self._hash_if_compressed:
            return json.loads(_decompress(text))
        raise Conflict

    async def save_response(
        self, transaction: Transaction, response: Mapping[str, Any], now: int
    ) -> None:
        """Store the response in the transaction of the request's own writes."""
        encoded = json_text.encode(
            {name: value for name, value in response.items() if name != self.omitted}
        )
        request_hash = self.request_hash
        if len(encoded) >= _MIN_COMPRESSED_BYTES:
            request_hash = self._hash_if_compressed
            encoded = base64.b64encode(ZSTD.compress(encoded))  # the column contains text
        row = (transaction.organization_id, self.key_hash, request_hash, encoded.decode(), now)
        await transaction.fetch(_INSERT, *row)


def _decompress(text: str) -> bytes:
    return ZSTD.new_part().decompress(base64.b64decode(text), _ANY_LENGTH)


async def delete_expired(engine: Engine, before: int) -> None:
    """Delete the keys that were stored before this time."""
    database = engine.for_all_tenants()

    async def delete_some(transaction: Transaction) -> int:
        return len(await transaction.fetch(_DELETE_EXPIRED, before, _DELETED_PER_TRANSACTION))

    if await database.read(_ANY_EXPIRED, before):
        while await database.write(delete_some) == _DELETED_PER_TRANSACTION:
            pass
