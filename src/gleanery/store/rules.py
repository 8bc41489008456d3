"""What a group demands of an output: the members that make its key, the schema of its data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import jsonschema_rs

from gleanery import jsontext
from gleanery.errors import Fault, Invalid
from gleanery.records import OutputIn
from gleanery.store.database import Database

_RULES = """
SELECT key_fields, schema FROM groups WHERE organization_id = $1 AND name = $2 AND NOT deleted
"""


_FAULTS_TOLD = 10  # of one output; its author mends the first before the hundredth
_LONGEST_SCHEMA = 64 * 1024


class Rules(NamedTuple):
    """As they stand in the database; a new group has none."""

    key_fields: str | None = None
    schema: str | None = None

    def key_hash(self, output: OutputIn) -> str:
        """The key is ``key``, else the group's key fields if all are there, else ``source_url``."""
        if output.key is not None:
            return jsontext.canonical_hash(output.key)
        names = () if self.key_fields is None else _names(self.key_fields)
        if names and all(name in output.data for name in names):
            return jsontext.canonical_hash([output.data[name] for name in names])
        return jsontext.canonical_hash(output.source_url)

    def faults(self, place: str, output: OutputIn) -> Iterator[Fault]:
        """How the output breaks the rules. Values are not repeated."""
        loc = ("body", place, "data")
        if self.schema is not None:
            validator = _validator(self.schema)
            if validator.is_valid(output.data):
                return
            for error in islice(validator.iter_errors(output.data), _FAULTS_TOLD):
                where = "/".join(str(step) for step in error.schema_path)
                yield Fault(
                    (*loc, *(str(step) for step in error.instance_path)),
                    f"does not meet the group's schema at {where}",
                    "schema",
                )


async def rules_of(database: Database, organization_id: int, group: str) -> Rules:
    rows = await database.read(_RULES, organization_id, group)
    return Rules(*rows[0]) if rows else Rules()


def check_schema(schema: str | None) -> None:
    """Raises Invalid if this is not a JSON Schema that stands on its own."""
    if schema is not None:
        try:
            if len(schema) > _LONGEST_SCHEMA:
                raise ValueError("too long")
            _validator(schema)
        except Exception:
            raise Invalid(
                Fault(
                    ("body", "schema"),
                    "expected a JSON Schema (2020-12) of at most 64 KiB, without references to "
                    "elsewhere",
                    "schema",
                )
            ) from None


@lru_cache(maxsize=256)
def _names(key_fields: str) -> tuple[str, ...]:
    return tuple(json.loads(key_fields))


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    return jsonschema_rs.Draft202012Validator(json.loads(schema), retriever=_refuse)


def _refuse(address: str) -> Any:
    """The service never fetches an address that it was given."""
    raise ValueError("references to elsewhere are not followed")
