"""The content of the reference, for both formats, and the reference as Markdown.

The content is read from the OpenAPI document: groups of operations, and JSON Schemas in words.
``docs/reference.md`` is the Markdown.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from textwrap import fill
from typing import Any, NamedTuple

from gleanery.service.api.openapi import Document
from gleanery.service.foundation.field_types import MAX_INT64

_WIDTH = 100
_INTRODUCTION = """\
# Reference

`make docs` generates this page from the operation table. A running service shows the same at
`/docs`, with examples and a form to send requests, and as an OpenAPI document at `/openapi.json`.

Every `/v1` route except those of signed links requires `Authorization: Bearer <token>`. Every route
with GET also supports HEAD. Dates are `YYYY-MM-DDTHH:MM:SSZ`. The body of every error is an
`ErrorBody`. `/` redirects to `/docs`.

Responses are compressed with zstd or gzip if `Accept-Encoding` allows it. Every body except a file
can be compressed, too, with `Content-Encoding: gzip` or `zstd`.
"""


# --- groups of operations -----------------------------------------------------------------------


class Parameter(NamedTuple):
    """Parameter of an operation: its row in the reference, and what a form needs."""

    row: Row
    location: str
    is_required: bool
    choices: tuple[str, ...]
    example: str | None

    @property
    def name(self) -> str:
        return self.row.name


class Content(NamedTuple):
    """Body of a request or a response in one media type."""

    media_type: str
    type: str
    limits: str
    """The limits of a list; empty for other types."""
    example: Any

    @property
    def title(self) -> str:
        """Return the name of the type, or the media type of other texts and bytes."""
        return self.type if self.media_type == "application/json" else self.media_type


class Status(NamedTuple):
    """Status code, and its meaning in an operation."""

    code: str
    meaning: str


class Section(NamedTuple):
    """One operation."""

    id: str
    tag: str
    method: str
    path: str
    title: str
    description: str
    needs_token: bool
    parameters: list[Parameter]
    bodies: list[Content]
    responses: list[Content]
    statuses: list[Status]

    @property
    def success(self) -> str:
        """Return the status of success, which the document lists first."""
        return self.statuses[0][0]


class Group(NamedTuple):
    """Operations with the same tag."""

    tag: str
    description: str
    sections: list[Section]

    @property
    def title(self) -> str:
        return self.tag.replace("-", " ").capitalize()


def groups(document: Document) -> list[Group]:
    """Return the operations by tag, first those whose tags the document declares, in its order."""
    found = list(_sections(document))
    declared = {tag["name"]: tag["description"] for tag in document["tags"]}
    return [
        Group(tag, declared.get(tag, ""), [section for section in found if section.tag == tag])
        for tag in dict.fromkeys([*declared, *(section.tag for section in found)])
    ]


def common_statuses(found: list[Group]) -> list[Status]:
    """Return the status codes that most operations have, with their meaning."""
    sections = [section for group in found for section in group.sections]
    counts = Counter(status for section in sections for status in section.statuses[1:])
    return sorted(status for status, count in counts.items() if count > len(sections) / 2)


def _sections(document: Document) -> Iterator[Section]:
    shared = document["components"]["responses"]
    for path, methods in document["paths"].items():
        for method, row in methods.items():
            success, *_ = row["responses"].values()
            yield Section(
                id=row["operationId"],
                tag=row["tags"][0],
                method=method.upper(),
                path=path,
                title=row["summary"],
                description=row["description"],
                needs_token=bool(row["security"]),
                parameters=[_parameter(found) for found in row.get("parameters", ())],
                bodies=_contents(row.get("requestBody", {})),
                responses=_contents(success),
                statuses=[
                    Status(status, _resolved(response, shared)["description"])
                    for status, response in row["responses"].items()
                ],
            )


def _resolved(response: Document, shared: Document) -> Document:
    """Return a response, or the shared response that it refers to."""
    if "$ref" not in response:
        return response
    found: Document = shared[response["$ref"].rpartition("/")[2]]
    return found


def _parameter(found: Document) -> Parameter:
    schema, example = found["schema"], found.get("example")
    row = Row(found["name"], type_name(schema), _notes(found), found.get("description", ""))
    return Parameter(
        row,
        location=found["in"],
        is_required=bool(found.get("required")),
        choices=tuple(map(str, schema.get("enum", ()))),
        example=None if example is None else str(example),
    )


def _notes(found: Document) -> str:
    schema = found["schema"]
    has_default = schema.get("default", "") not in ("", MAX_INT64)
    return notes(
        found["in"],
        "" if found.get("required") else "optional",
        f"default {schema['default']}" if has_default else "",
        limits(schema),
    )


def _contents(holder: Document) -> list[Content]:
    return [
        Content(media_type, type_name(schema), limits(schema), content.get("example"))
        for media_type, content in holder.get("content", {}).items()
        for schema in (content.get("schema", {}),)
    ]


# --- JSON Schemas in words ----------------------------------------------------------------------


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


# --- the reference as Markdown ------------------------------------------------------------------


def markdown(document: Document) -> str:
    """Return the content of docs/reference.md."""
    lines = [_INTRODUCTION, fill(_rules_of_json(document), _WIDTH), ""]
    for group in groups(document):
        lines += _group(group)
    lines += ["## Types", ""]
    for name, schema in document["components"]["schemas"].items():
        lines += [f"### {name}", "", description(schema), ""]
        lines += _rows("member", members(schema))
    return "\n".join(lines).rstrip() + "\n"


def _rules_of_json(document: Document) -> str:
    _, _, rules = document["info"]["description"].partition("\n\n")
    return str(rules)


def _group(group: Group) -> Iterator[str]:
    yield from (f"## {group.title}", "")
    if group.description:
        yield from (group.description, "")
    for section in group.sections:
        yield from _section(section)


def _section(s: Section) -> Iterator[str]:
    yield from (f"### {s.method} {s.path}", "", f"**{s.title}.** {s.description}", "")
    yield from _rows("parameter", [parameter.row for parameter in s.parameters])
    if s.bodies:
        yield from (f"Body: {_titles(s.bodies)}.", "")
    statuses = ", ".join(code for code, _ in s.statuses)
    yield from (f"Response: {_titles(s.responses)}. Statuses: {statuses}.", "")


def _titles(contents: list[Content]) -> str:
    return " or ".join(
        f"`{content.title}` ({content.limits})" if content.limits else f"`{content.title}`"
        for content in contents
    )


def _line(row: Row) -> str:
    meaning = row.description.replace("\n", "<br>")  # a row of a table is one line
    return f"| `{row.name}` | {row.type} | {row.note} | {meaning} |"


def _rows(what: str, rows: list[Row]) -> list[str]:
    if not rows:
        return []
    table = [f"| {what} | type | | meaning |", "|---|---|---|---|"]
    table += map(_line, rows)
    return [*table, ""]
