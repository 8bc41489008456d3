"""The content of the reference, for both formats: groups of operations, read from the document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from gleanery.service.api.openapi import Document
from gleanery.service.api.reference.schemas import Row, limits, notes, type_name
from gleanery.service.foundation.field_types import MAX_INT64


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
