"""JSON Schemas in words: the name of a type, and the members of an object."""

from __future__ import annotations

import json
from typing import NamedTuple

from gleanery.api.openapi import Document


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
        Row(name, type_name(member), "" if name in required else "optional", description(member))
        for name, member in schema.get("properties", {}).items()
    ]


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
