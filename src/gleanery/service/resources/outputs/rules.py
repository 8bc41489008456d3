"""The rules of a group: how its outputs are identified, and the JSON Schema of their data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest, ValidationSuspended
from gleanery.service.foundation.json_schema import (
    InvalidSchema,
    SchemaSuspended,
    SchemaTooCostly,
    SchemaValidator,
    SchemaViolation,
)
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.resources.outputs.batches import Batch
from gleanery.service.storage.database import Database
from gleanery.service.storage.group_lock import IDENTITY_FORMAT

_SELECT = """
SELECT key_fields, schema, identity_format FROM groups WHERE organization_id = $1 AND name = $2
"""
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
_CHUNK = 1000  # outputs per validation request, so that other groups do not wait long


Validation = Callable[[Sequence[Any]], Awaitable[list[SchemaViolation]]]
"""Returns the violations of an organization's schema by these values."""


class Rules(NamedTuple):
    """The rules as they are stored, or those of a new group."""

    key_fields: str | None = None
    schema: str | None = None
    identity_format: int = IDENTITY_FORMAT

    @property
    def use_data(self) -> bool:
        return self.key_fields is not None or self.schema is not None


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
    rows = await database.read(_SELECT, database.organization_id, group)
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
    for start in range(0, len(values), _CHUNK):
        for violation in await _violations(validation, values[start : start + _CHUNK]):
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
