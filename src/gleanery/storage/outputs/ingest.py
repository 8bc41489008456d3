"""Storing a batch of outputs, completely or not at all: prepare, lock, write.

::

    api.handlers.outputs   one batch per JSON array, or per 1,000 lines of NDJSON
      └─ ingest            this module
          ├─ idempotency   returns the stored response of a repeated request
          ├─ prepare       before the lock, in a thread
          │   ├─ rules         reads the group's rules, validates data against its schema
          │   └─ preparation   parses, hashes and renders the outputs
          └─ lock, write   in one transaction
              └─ apply         locks the group, compares with the stored rows, decides
                  └─ rows      reads and writes the table outputs

The transaction is tried again in two cases. If the group's rules have changed, the batch is
prepared again. If outputs that were not parsed have changed, only those are parsed.
"""

from __future__ import annotations

import asyncio
from functools import partial

from gleanery.json_schema.validator import SchemaValidator
from gleanery.models.batches import Batch
from gleanery.models.responses import IngestAnswer
from gleanery.storage.database import Database
from gleanery.storage.group_lock import Clock
from gleanery.storage.outputs import rows
from gleanery.storage.outputs.apply import RulesChanged, UnparsedChanged, apply_batch
from gleanery.storage.outputs.idempotency import IdempotentRequest
from gleanery.storage.outputs.preparation import BatchPreparer
from gleanery.storage.outputs.rules import read_rules

_SMALL_BATCH = 16  # outputs; to parse them takes less time than to look up the first one


async def store_batch(
    database: Database,
    schemas: SchemaValidator,
    group: str,
    batch: Batch,
    clock: Clock,
    idempotency_key: str | None = None,
) -> IngestAnswer:
    """Stores the batch; an output gets a new sequence number only if it is new or changed.

    A repeated request with the same idempotency key gets the response of the first one.
    """
    if not batch.outputs:
        return IngestAnswer(created=0, updated=0, unchanged=0, results=[])
    request = None
    if idempotency_key is not None:
        batch = await asyncio.to_thread(batch.parse_all)
        request = await asyncio.to_thread(IdempotentRequest.of, group, idempotency_key, batch)
        if (response := await request.read_response(database)) is not None:
            return response
    prepared = await _prepare(database, schemas, group, batch)
    while True:
        work = partial(apply_batch, group=group, batch=prepared, request=request, clock=clock)
        try:
            return await database.write(work, queue_key=group)
        except RulesChanged:
            prepared = await _prepare(database, schemas, group, batch)
        except UnparsedChanged as changed:
            await asyncio.to_thread(prepared.parse, changed.indexes)


async def _prepare(
    database: Database, schemas: SchemaValidator, group: str, batch: Batch
) -> BatchPreparer:
    """Prepares the batch under the group's current rules.

    Parsing, hashing and rendering take time: in a thread they do not delay other requests.
    """
    rules = await read_rules(database, group)
    if rules.need_data:
        batch = await asyncio.to_thread(batch.parse_all)
        await rules.validate(schemas, batch)
    prepared = BatchPreparer(database.organization_id, group, batch, rules)
    parse_all = len(batch.outputs) < _SMALL_BATCH or await _first_has_changed(database, prepared)
    await asyncio.to_thread(prepared.prepare, parse_all)
    return prepared


async def _first_has_changed(database: Database, prepared: BatchPreparer) -> bool:
    """Tells if the first output is new or has other bytes; then most of the others are too."""
    first = prepared.identify_first()
    return not await rows.is_stored(database, first.identity, first.raw_hash)
