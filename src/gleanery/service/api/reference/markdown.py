"""The reference as Markdown, for docs/reference.md."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from gleanery.service.api.openapi import Document
from gleanery.service.api.reference.schemas import Row, description, members
from gleanery.service.api.reference.sections import Content, Group, Section, groups

_WIDTH = 100
_INTRODUCTION = """\
# Reference

`make reference` generates this page from the operation table. A running service shows the same at
`/docs`, with examples and a form to send requests, and as an OpenAPI document at `/openapi.json`.

Every `/v1` route except those of signed links requires `Authorization: Bearer <token>`. Every route
with GET also supports HEAD. Dates are `YYYY-MM-DDTHH:MM:SSZ`. The body of every error is an
`ErrorBody`. `/` redirects to `/docs`.

Responses are compressed with zstd or gzip if `Accept-Encoding` allows it. Every body except a file
can be compressed, too, with `Content-Encoding: gzip` or `zstd`.
"""


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
