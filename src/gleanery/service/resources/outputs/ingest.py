"""Storing a batch of outputs, completely or not at all: prepare, lock, write.

::

    handlers               one batch per JSON array, or per 1,000 lines of NDJSON
      └─ ingest            this module: reads the group's rules, validates data against its schema
          ├─ idempotency   returns the stored response of a repeated request
          ├─ batches       parses, hashes and renders the outputs; a long batch in a thread
          ├─ large_batches has a large batch prepared in another process
          └─ apply         locks the group, compares with the stored rows, decides
              └─ rows      writes the tables

The transaction is tried again in two cases. If the group's rules have changed, the batch is
prepared again. If outputs that were not parsed have changed, only those are parsed.

See ``docs/explanation/storing-outputs.md``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from gleanery.service.foundation.errors import (
    ErrorDetail,
    InvalidRequest,
    ReferenceNotFound,
    ValidationSuspended,
)
from gleanery.service.foundation.json_schema import (
    InvalidSchema,
    SchemaSuspended,
    SchemaTooCostly,
    SchemaValidator,
    SchemaViolation,
)
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import json_text
from gleanery.service.resources.fields.batch_runs import BatchRuns, find_run
from gleanery.service.resources.outputs.apply import (
    RulesChanged,
    UnparsedChanged,
    apply_batch,
    summarize,
)
from gleanery.service.resources.outputs.batches import (
    Batch,
    LargeBatch,
    PreparedBatch,
    SkippedElements,
    idempotent_request,
    prepare,
)
from gleanery.service.resources.outputs.elements import (
    IdentityHasher,
    Rules,
    has_same_bytes,
)
from gleanery.service.resources.outputs.large_batches import (
    LargeBatches,
    PreparationRequest,
    PreparationResponse,
)
from gleanery.service.resources.outputs.models import IngestResult
from gleanery.service.storage.database import Database, Transaction
from gleanery.service.storage.group_lock import Clock, lock
from gleanery.service.storage.idempotency import IdempotentRequest

_HASHES = """
SELECT sent_hash, content_hash FROM outputs WHERE organization_id = $1 AND identity = $2
"""
_RULES = """
SELECT key_fields, schema, identity_format FROM groups WHERE organization_id = $1 AND name = $2
"""
_LARGE_WRITE = 2000  # outputs; the event loop writes their rows for a noticeable time
_SMALL_BATCH = 16  # for fewer outputs, parsing is faster than a look-up
_INVALID_SCHEMA = (
    "expected a JSON Schema (2020-12) of at most 64 KiB, without references to other documents"
)
_INVALID_PART = "this value is not valid here: see JSON Schema 2020-12"
_WRONG_REFERENCE = "this reference leads nowhere: refer to a part of this schema, such as #/$defs/a"
_VALIDATION_TOO_COSTLY = (
    "validating this data against the group's schema takes too much time or memory: make the "
    "schema simpler, above all where it refers to itself, or send fewer or less nested outputs"
)
_SCHEMA_TOO_COSTLY = "this schema takes too much time or memory: make it simpler"
_UNREADABLE_SCHEMA = "this version cannot read the group's schema: set the schema again"
_MAX_SCHEMA_LENGTH = 64 * 1024
_VALIDATED_CHUNK = 1000  # outputs per validation request, so that other groups do not wait long


async def store_batch(
    database: Database,
    schema_validator: SchemaValidator,
    computations: FairThread,
    group: str,
    batch: Batch,
    clock: Clock,
    idempotency_key: str | None = None,
    lists_results: bool = True,
    run_id: str | None = None,
) -> IngestResult:
    """Store the batch; an output gets a new sequence number only if it is new or changed.

    A repeated request with the same idempotency key gets the response of the first one, but
    without results unless ``lists_results``.
    """
    if not batch.outputs and run_id is None:
        return summarize([], batch)
    request = None
    organization_id = database.organization_id
    if idempotency_key is not None:
        batch = await computations.run_if_long(batch.is_long, organization_id, batch.parse_all)
        request = await computations.run_if_long(
            batch.is_long,
            organization_id,
            idempotent_request,
            group,
            idempotency_key,
            batch,
            run_id,
        )
        if not lists_results:
            request = request._replace(omitted="results")
        stored: IngestResult | None = await request.read_response(database)
        if stored is not None:
            return stored
    prepared = await _prepare(database, schema_validator, computations, group, batch)
    apply = partial(apply_batch, group=group, request=request, clock=clock, run_id=run_id)
    while prepared.outputs or run_id is not None:
        work = partial(apply, batch=prepared)
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
    run_id: str | None = None,
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
                run_id,
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
        if not prepared.outputs and run_id is None:
            return summarize([], prepared)
        work = partial(
            apply_batch, group=group, batch=prepared, request=request, clock=clock, run_id=run_id
        )
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


async def record_rejected(
    database: Database, group: str, run_id: str, error: InvalidRequest, clock: Clock
) -> None:
    """Count the elements of a refused batch that the error names, in the run of the batch."""
    positions = {detail.loc[1] for detail in error.details if len(detail.loc) > 1}

    async def work(transaction: Transaction) -> None:
        locked = await lock(transaction, group, clock)
        runs = BatchRuns(locked, await find_run(locked, run_id))
        await runs.reject(len(positions))
        await runs.save()

    await database.write(work, queue_key=group)


# --- the rules of the group ---------------------------------------------------------------------

Validation = Callable[[Sequence[Any]], Awaitable[list[SchemaViolation]]]
"""Returns the violations of an organization's schema by these values."""


async def check_batch(
    database: Database,
    schema_validator: SchemaValidator,
    computations: FairThread,
    group: str,
    batch: Batch,
) -> tuple[Rules, Batch]:
    """Read the group's rules and validate the batch against its schema.

    The returned batch is parsed completely if the rules use the data of outputs.
    """
    rules = await read_rules(database, group)
    if rules.use_data:
        batch = await computations.run_if_long(
            batch.is_long, database.organization_id, batch.parse_all
        )
    if rules.schema is not None:
        values = [output.data for output in batch.parsed]
        validation = partial(schema_validator.violations, database.organization_id, rules.schema)
        violations = await find_violations(validation, values, batch.positions)
        if violations.details:
            violations.raise_unless(batch.skipped is not None)
            batch = batch.skip(*violations)
    return rules, batch


async def read_rules(database: Database, group: str) -> Rules:
    rows = await database.read(_RULES, database.organization_id, group)
    return Rules(*rows[0]) if rows else Rules()


class Violations(NamedTuple):
    """The outputs that violate the schema, and every violation, without the values."""

    positions: set[int]
    details: list[ErrorDetail]

    def raise_unless(self, is_skipping: bool) -> None:
        """Raise InvalidRequest with the violations, unless the outputs are skipped."""
        if not is_skipping:
            raise InvalidRequest(*self.details)


async def find_violations(
    validation: Validation, values: Sequence[Any], positions: Sequence[int]
) -> Violations:
    """Validate the values of the outputs at these positions."""
    found = Violations(set(), [])
    for start in range(0, len(values), _VALIDATED_CHUNK):
        for violation in await _violations(validation, values[start : start + _VALIDATED_CHUNK]):
            position = positions[start + violation.value_index]
            found.positions.add(position)
            found.details.append(_detail(position, violation))
    return found


async def _violations(validation: Validation, values: Sequence[Any]) -> list[SchemaViolation]:
    try:
        return await validation(values)
    except SchemaSuspended as suspended:
        raise ValidationSuspended(suspended.seconds) from None
    except SchemaTooCostly:
        raise InvalidRequest(_schema_error(("body",), _VALIDATION_TOO_COSTLY)) from None
    except InvalidSchema:
        raise InvalidRequest(_schema_error(("body",), _UNREADABLE_SCHEMA)) from None


def _detail(position: int, violation: SchemaViolation) -> ErrorDetail:
    loc = ("body", str(position), "data", *violation.instance_path)
    msg = f"violates the group's schema at {'/'.join(violation.schema_path)}"
    if violation.missing_member is not None:
        msg += f': "{violation.missing_member}" is missing'
    if violation.expected_types:
        msg += f": expected {' or '.join(violation.expected_types)}"
    return _schema_error(loc, msg)


def _schema_error(loc: tuple[str, ...], msg: str) -> ErrorDetail:
    return ErrorDetail(loc, msg, "schema")


def _invalid_schema_message(path: Sequence[str]) -> str:
    if not path:
        return _INVALID_SCHEMA
    return _WRONG_REFERENCE if path[-1] == "$ref" else _INVALID_PART


async def check_schema(
    schema_validator: SchemaValidator, organization_id: int, schema: str | None
) -> None:
    """Raise InvalidRequest if this is not a self-contained JSON Schema."""
    if schema is None:
        return
    try:
        if len(schema) > _MAX_SCHEMA_LENGTH:
            raise InvalidSchema
        await schema_validator.violations(organization_id, schema, [])
    except InvalidSchema as error:
        msg = _invalid_schema_message(error.path)
        raise InvalidRequest(_schema_error(("body", "schema", *error.path), msg)) from None
    except (SchemaTooCostly, SchemaSuspended):
        raise InvalidRequest(_schema_error(("body", "schema"), _SCHEMA_TOO_COSTLY)) from None
