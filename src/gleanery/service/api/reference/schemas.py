"""JSON Schemas in words: the name of a type, and the members of an object."""

from __future__ import annotations

import json
from typing import NamedTuple

from gleanery.service.api.openapi import Document
from gleanery.service.foundation.field_types import MAX_INT64


class Row(NamedTuple):
    """Parameter or member of an object."""

    name: str
    type: str
    note: str
    description: str


def members(schema: Document) -> list[Row]:
    """Return the members of an object type."""
    required = schema.get("required", ())
    return [
        _member(name, member, is_required=name in required)
        for name, member in schema.get("properties", {}).items()
    ]


def _member(name: str, schema: Document, is_required: bool) -> Row:
    note = notes("" if is_required else "optional", limits(schema))
    return Row(name, type_name(schema), note, description(schema))


def notes(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def limits(schema: Document) -> str:
    """Describe the bounds of a number, of the length of a text, or of the length of a list.

    A value that may be null or have other types has the bounds of the type that has some.
    """
    for choice in schema.get("anyOf") or schema.get("oneOf") or (schema,):
        lowest, highest = choice.get("minimum"), choice.get("maximum", MAX_INT64)
        if highest < MAX_INT64:
            return f"{lowest or 0} to {highest}"
        for suffix, unit in (("Items", "element"), ("Length", "character")):
            if found := _range(choice.get(f"min{suffix}", 0), choice.get(f"max{suffix}", 0), unit):
                return found
    return ""


def _range(lowest: int, highest: int, unit: str) -> str:
    """Describe the bounds of a length; 0 is no bound."""
    if lowest and highest:
        return f"{lowest} to {highest} {unit}s"
    bound = f"at least {lowest}" if lowest else f"at most {highest}"
    return f"{bound} {unit}{'' if lowest + highest == 1 else 's'}" if lowest or highest else ""


def description(schema: Document) -> str:
    return str(schema.get("description", ""))


def type_name(schema: Document) -> str:
    """Describe a schema briefly: ``array of CookieIn``, ``string or null``."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if choices := schema.get("anyOf", schema.get("oneOf")):
        return " or ".join(dict.fromkeys(map(type_name, choices)))
    if "enum" in schema:
        return " or ".join(map(json.dumps, schema["enum"]))
    if schema.get("type") == "array":
        return f"array of {type_name(schema.get('items', {}))}"
    if schema.get("format") in ("date", "date-time"):
        return str(schema["format"])
    types = schema.get("type", "any value")
    return " or ".join([types] if isinstance(types, str) else types)
