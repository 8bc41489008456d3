"""What a group demands of an output: the members that make its key, the schema of its data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gleanery.errors import ErrorDetail, InvalidRequest
from gleanery.json_schema.validator import (
    InvalidSchema,
    SchemaTooCostly,
    SchemaValidator,
    SchemaViolation,
)
from gleanery.models.batches import Batch, Head
from gleanery.models.requests import Output
from gleanery.storage.database import Database
from gleanery.values import json_text

_RULES = """
SELECT key_fields, schema FROM groups WHERE organization_id = $1 AND name = $2 AND NOT deleted
"""


_NO_SCHEMA = "expected a JSON Schema (2020-12) of at most 64 KiB, without references to elsewhere"
_TOO_COSTLY = (
    "holding this data against the group's schema takes too much time or memory: make the schema "
    "simpler, above all where it refers to itself, or send fewer or less deeply nested outputs"
)
_TOO_COSTLY_ALONE = "this schema takes too much time or memory: make it simpler"
_OUTDATED = "the group's schema is not one that this version can read: set it anew"
_LONGEST_SCHEMA = 64 * 1024
_AT_ONCE = 1000  # outputs held against the schema before another group has its turn


class Rules(NamedTuple):
    """As they stand in the database; a new group has none."""

    key_fields: str | None = None
    schema: str | None = None

    def key_hash(self, output: Head | Output) -> bytes:
        """The key is ``key``, else the group's key fields if all are there, else ``source_url``."""
        if output.key is not None:
            return json_text.canonical_hash(output.key)
        if self.key_fields is not None:
            assert isinstance(output, Output)
            names = _names(self.key_fields)
            if all(name in output.data for name in names):
                return json_text.canonical_hash([output.data[name] for name in names])
        return json_text.canonical_hash(output.source_url)

    @property
    def look_into_data(self) -> bool:
        """Whether an output's head tells too little."""
        return self != Rules()

    async def check(self, schemas: SchemaValidator, batch: Batch) -> None:
        """Raises InvalidRequest with what in the batch breaks the schema. Values are not repeated."""
        if self.schema is None:
            return
        details: list[ErrorDetail] = []
        for start in range(0, len(batch.heads), _AT_ONCE):
            some = range(start, min(start + _AT_ONCE, len(batch.heads)))
            values = [output.data for output in batch.read(some)]
            for violation in await self._broken(schemas, values):
                place = str(batch.places[start + violation.place])
                where = "/".join(violation.schema_path)
                details.append(
                    ErrorDetail(
                        ("body", place, "data", *violation.instance_path),
                        f"does not meet the group's schema at {where}",
                        "schema",
                    )
                )
        if details:
            raise InvalidRequest(*details)

    async def _broken(
        self, schemas: SchemaValidator, values: Sequence[Any]
    ) -> list[SchemaViolation]:
        assert self.schema is not None
        try:
            return await schemas.violations(self.schema, values)
        except SchemaTooCostly:
            raise InvalidRequest(ErrorDetail(("body",), _TOO_COSTLY, "schema")) from None
        except InvalidSchema:
            raise InvalidRequest(ErrorDetail(("body",), _OUTDATED, "schema")) from None


async def rules_of(database: Database, organization_id: int, group: str) -> Rules:
    rows = await database.read(_RULES, organization_id, group)
    return Rules(*rows[0]) if rows else Rules()


async def check_schema(schemas: SchemaValidator, schema: str | None) -> None:
    """Raises InvalidRequest if this is not a JSON Schema that stands on its own."""
    if schema is None:
        return
    try:
        if len(schema) > _LONGEST_SCHEMA:
            raise InvalidSchema
        await schemas.violations(schema, [])
    except InvalidSchema:
        raise InvalidRequest(ErrorDetail(("body", "schema"), _NO_SCHEMA, "schema")) from None
    except SchemaTooCostly:
        raise InvalidRequest(ErrorDetail(("body", "schema"), _TOO_COSTLY_ALONE, "schema")) from None


@lru_cache(maxsize=256)
def _names(key_fields: str) -> tuple[str, ...]:
    return tuple(json.loads(key_fields))
