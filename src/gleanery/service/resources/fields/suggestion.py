"""A JSON Schema that every stored value meets, as a start for the schema of a group."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gleanery.service.resources.fields.shapes import Names
from gleanery.service.resources.fields.summary import Summary

Schema = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_EMPTY = "empty_"


def suggest_schema(summary: Summary) -> Schema:
    """Return the schema. It requires what all outputs have, and allows further members."""
    schema: Schema = {"$schema": _DIALECT, "type": "object"}
    if summary.has_unknown_fields or not summary.counted:
        return schema
    kinds = {field.names: {*field.kinds} for field in summary.fields()}
    members = defaultdict[Names, list[Names]](list)
    for names in kinds:
        members[names[:-1]].append(names)
    return schema | _members(summary, kinds, members, ())


def _members(
    summary: Summary, kinds: dict[Names, set[str]], members: dict[Names, list[Names]], outer: Names
) -> Schema:
    if not members[outer]:
        return {}
    schema: Schema = {"properties": {}}
    for names in members[outer]:
        schema["properties"][names[-1]] = {
            **_value(kinds[names]),
            **_members(summary, kinds, members, names),
        }
    required = [names[-1] for names in members[outer] if _is_required(summary, names)]
    return schema | ({"required": required} if required else {})


def _is_required(summary: Summary, names: Names) -> bool:
    """Return True if every object that could have the member has it."""
    if summary.counted < summary.outputs:  # nothing is known of some outputs
        return False
    outer = names[:-1]
    objects = summary.counted
    if outer:
        of_outer = summary.kinds[outer]
        objects = of_outer["object"] + of_outer["empty_object"]
    return summary.kinds[names].total() == objects


def _value(kinds: set[str]) -> Schema:
    types = {kind.removeprefix(_EMPTY) for kind in kinds}
    if "number" in types:
        types.discard("integer")
    schema: Schema = {"type": sorted(types) if len(types) > 1 else next(iter(types))}
    if "string" in types and f"{_EMPTY}string" not in kinds:
        schema["minLength"] = 1
    if "array" in types and f"{_EMPTY}array" not in kinds:
        schema["minItems"] = 1
    return schema
