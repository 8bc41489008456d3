"""Storing a batch of outputs, completely or not at all: prepare, lock, write.

::

    api.handlers.outputs   one batch per JSON array, or per 1,000 lines of NDJSON
      └─ ingest            this module
          ├─ idempotency   returns the stored response of a repeated request
          ├─ rules         reads the group's rules, validates data against its schema
          ├─ preparation   parses, hashes and renders the outputs; a long batch in a thread
          ├─ large_batches has a large batch prepared in another process
          └─ apply         locks the group, compares with the stored rows, decides
              └─ rows      writes the table outputs

The transaction is tried again in two cases. If the group's rules have changed, the batch is
prepared again. If outputs that were not parsed have changed, only those are parsed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from gleanery.service.foundation.errors import ReferenceNotFound
from gleanery.service.foundation.json_schema import SchemaValidator
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import json_text
from gleanery.service.resources.outputs.apply import (
    RulesChanged,
    UnparsedChanged,
    apply_batch,
    summarize,
)
from gleanery.service.resources.outputs.batches import Batch, LargeBatch, SkippedElements
from gleanery.service.resources.outputs.hashes import IdentityHasher, has_same_bytes
from gleanery.service.resources.outputs.large_batches import (
    LargeBatches,
    PreparationRequest,
    PreparationResponse,
)
from gleanery.service.resources.outputs.models import IngestResult
from gleanery.service.resources.outputs.preparation import (
    PreparedBatch,
    idempotent_request,
    prepare,
)
from gleanery.service.resources.outputs.rules import check_batch, find_violations, read_rules
from gleanery.service.storage.database import Database, Transaction
from gleanery.service.storage.group_lock import Clock
from gleanery.service.storage.idempotency import IdempotentRequest

_HASHES = """
SELECT sent_hash, content_hash FROM outputs WHERE organization_id = $1 AND identity = $2
"""
_LARGE_WRITE = 2000  # outputs; the event loop writes their rows for a noticeable time
_SMALL_BATCH = 16  # for fewer outputs, parsing is faster than a look-up


async def store_batch(
    database: Database,
    schema_validator: SchemaValidator,
    computations: FairThread,
    group: str,
    batch: Batch,
    clock: Clock,
    idempotency_key: str | None = None,
    lists_results: bool = True,
) -> IngestResult:
    """Store the batch; an output gets a new sequence number only if it is new or changed.

    A repeated request with the same idempotency key gets the response of the first one, but
    without results unless ``lists_results``.
    """
    if not batch.outputs:
        return summarize([], batch)
    request = None
    organization_id = database.organization_id
    if idempotency_key is not None:
        batch = await computations.run_if_long(batch.is_long, organization_id, batch.parse_all)
        request = await computations.run_if_long(
            batch.is_long, organization_id, idempotent_request, group, idempotency_key, batch
        )
        if not lists_results:
            request = request._replace(omitted="results")
        stored: IngestResult | None = await request.read_response(database)
        if stored is not None:
            return stored
    prepared = await _prepare(database, schema_validator, computations, group, batch)
    while prepared.outputs:
        work = partial(apply_batch, group=group, batch=prepared, request=request, clock=clock)
        try:
            return await _write(database, computations, prepared, work, group)
        except RulesChanged:
            prepared = await _prepare(database, schema_validator, computations, group, batch)
        except UnparsedChanged as changed:
            await computations.run(organization_id, prepared.parse, changed.indexes)
        except ReferenceNotFound as error:
            if batch.skipped is None:
                raise
            batch = batch.skip(error.positions, error.references)
            prepared = await _prepare(database, schema_validator, computations, group, batch)
    return summarize([], prepared)


async def store_large_batch(
    database: Database,
    schema_validator: SchemaValidator,
    large_batches: LargeBatches,
    computations: FairThread,
    group: str,
    batch: LargeBatch,
    clock: Clock,
    idempotency_key: str | None = None,
    lists_results: bool = True,
) -> IngestResult:
    """Store a large batch, which is prepared in another process; else like ``store_batch``."""
    missing = SkippedElements()  # outputs that reference unknown files
    while True:
        rules = await read_rules(database, group)
        response = await large_batches.prepare(
            PreparationRequest(
                batch,
                database.organization_id,
                group,
                rules.key_fields,
                rules.identity_format,
                idempotency_key,
            )
        )
        request = None
        if response.request_hashes is not None:
            omitted = None if lists_results else "results"
            request = IdempotentRequest(*response.request_hashes, omitted)
            stored: IngestResult | None = await request.read_response(database)
            if stored is not None:
                return stored
        if response.skipped is not None:
            response = response.skip(missing.positions, missing.details)
        if rules.schema is not None:
            response = await _skip_violations(
                schema_validator, database.organization_id, rules.schema, response
            )
        prepared = response.to_batch(rules)
        if not prepared.outputs:
            return summarize([], prepared)
        work = partial(apply_batch, group=group, batch=prepared, request=request, clock=clock)
        try:
            return await _write(database, computations, prepared, work, group)
        except RulesChanged:
            continue  # it is prepared again
        except ReferenceNotFound as error:
            if response.skipped is None:
                raise
            missing = missing.add(error.positions, error.references)


async def _skip_violations(
    schema_validator: SchemaValidator,
    organization_id: int,
    schema: str,
    response: PreparationResponse,
) -> PreparationResponse:
    """Remove the outputs that violate the schema, or raise InvalidRequest."""
    values = [json_text.as_fragment(large.data_json) for large in response.outputs]
    positions = [large.output.position for large in response.outputs]
    validation = partial(schema_validator.violations, organization_id, schema)
    violations = await find_violations(validation, values, positions)
    if not violations.details:
        return response
    violations.raise_unless(response.skipped is not None)
    return response.skip(*violations)


async def _write(
    database: Database,
    computations: FairThread,
    batch: PreparedBatch,
    work: Callable[[Transaction], Awaitable[IngestResult]],
    group: str,
) -> IngestResult:
    """Write a batch. Each organization writes one large batch at a time."""
    if len(batch.outputs) < _LARGE_WRITE:
        return await database.write(work, queue_key=group)
    async with computations.large_write(database.organization_id):
        return await database.write(work, queue_key=group)


async def _prepare(
    database: Database,
    schema_validator: SchemaValidator,
    computations: FairThread,
    group: str,
    batch: Batch,
) -> PreparedBatch:
    """Prepare the batch under the group's current rules.

    Parsing, hashing and rendering a long batch take time: in a thread they do not delay other
    requests.
    """
    rules, batch = await check_batch(database, schema_validator, computations, group, batch)
    identities = IdentityHasher(
        database.organization_id, group, rules.key_fields, rules.identity_format
    )
    parse_all = len(batch.outputs) < _SMALL_BATCH or not await _is_first_unchanged(
        database, batch, identities
    )
    return await computations.run_if_long(
        batch.is_long, database.organization_id, prepare, batch, rules, identities, parse_all
    )


async def _is_first_unchanged(database: Database, batch: Batch, identities: IdentityHasher) -> bool:
    """Return True if the first output is stored with the same bytes, as most others then are."""
    first = batch.outputs[0]
    identity = identities.identity(first.job_id, identities.key_hash(first))
    stored = await database.read(_HASHES, database.organization_id, identity)
    return bool(stored) and has_same_bytes(batch.raw_hashes[0], *stored[0])
