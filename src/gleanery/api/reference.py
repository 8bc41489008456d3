"""The reference: the OpenAPI document as an HTML page and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from gleanery.api import openapi
from gleanery.api.openapi import Document
from gleanery.api.operations import OPERATIONS
from gleanery.settings import Settings

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --key: #0a6; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { margin-bottom: 0 }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem }
code { font: 0.9em ui-monospace, monospace; background: var(--soft); padding: 0.1em 0.3em;
       border-radius: 4px }
table { border-collapse: collapse; width: 100%; margin: 0.6rem 0 1.2rem }
td { vertical-align: top; padding: 0.3rem 0.7rem 0.3rem 0; border-bottom: 1px solid var(--line) }
nav { columns: 2; margin: 1rem 0 }
nav a { display: block; text-decoration: none }
.method { color: var(--key); font-weight: 700 } .soft { opacity: 0.75 }
"""


class Row(NamedTuple):
    """Parameter or member of an object."""

    name: str
    type: str
    note: str
    description: str


class Section(NamedTuple):
    """One operation, for both formats."""

    id: str
    method: str
    path: str
    title: str
    description: str
    parameters: list[Row]
    body: str
    response: str
    statuses: list[tuple[str, str]]


def sections(document: Document) -> Iterator[Section]:
    for path, methods in document["paths"].items():
        for method, row in methods.items():
            yield Section(
                id=row["operationId"],
                method=method.upper(),
                path=path,
                title=row["summary"],
                description=row["description"],
                parameters=[_parameter(found) for found in row.get("parameters", ())],
                body=_content(row.get("requestBody", {})),
                response=_content(next(iter(row["responses"].values()))),
                statuses=[
                    (status, response["description"])
                    for status, response in row["responses"].items()
                ],
            )


def members(schema: Document) -> list[Row]:
    """Return the members of an object type."""
    required = schema.get("required", ())
    return [
        Row(name, type_name(member), "" if name in required else "optional", _description(member))
        for name, member in schema.get("properties", {}).items()
    ]


def _parameter(found: Document) -> Row:
    schema = found["schema"]
    notes = [found["in"], "" if found.get("required") else "optional"]
    if "default" in schema:
        notes.append(f"default {schema['default']}")
    if "maximum" in schema:
        notes.append(f"{schema.get('minimum', 0)} to {schema['maximum']}")
    return Row(
        found["name"],
        type_name(schema),
        ", ".join(filter(None, notes)),
        found.get("description", ""),
    )


def _description(schema: Document) -> str:
    return str(schema.get("description", ""))


def _content(holder: Document) -> str:
    for media, content in holder.get("content", {}).items():
        name = type_name(content["schema"])
        return name if media == "application/json" else media
    return ""


def type_name(schema: Document) -> str:
    """Describe a schema briefly: ``array of CookieIn``, ``string or null``."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema and "type" not in schema:
        return " or ".join(dict.fromkeys(type_name(choice) for choice in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f'"{value}"' for value in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {type_name(schema.get('items', {}))}"
    if schema.get("format") in ("date", "date-time"):
        return str(schema["format"])
    return str(schema.get("type", "any value"))


# --- HTML ---------------------------------------------------------------------------------------


def html_page(document: Document) -> bytes:
    """Return the reference as one HTML page without scripts and external resources."""
    found = list(sections(document))
    links = "".join(f'<a href="#{s.id}">{_html_route(s)}</a>' for s in found)
    title = f"{document['info']['title']} {document['info']['version']}"
    types = document["components"]["schemas"].items()
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body><h1>{escape(title)}</h1>
<p>{escape(document["info"]["description"])} The OpenAPI document is
<a href="openapi.json">openapi.json</a>. Paths are below
<code>{escape(document["servers"][0]["url"])}</code>.</p>
<p>Every <code>/v1</code> route except those of signed links requires
<code>Authorization: Bearer &lt;token&gt;</code>. Every route with GET also supports HEAD.
Dates are <code>YYYY-MM-DDTHH:MM:SSZ</code>.</p>
<nav>{links}</nav>
{"".join(map(_html_section, found))}
<h2>Types</h2>
{"".join(_html_type(name, schema) for name, schema in types)}
</body></html>
"""
    return page.encode()


def _html_section(s: Section) -> str:
    statuses = "".join(
        f"<tr><td><code>{code}</code></td><td>{escape(description)}</td></tr>"
        for code, description in s.statuses
    )
    return f"""<h2 id="{s.id}">{_html_route(s)}</h2>
<p><strong>{escape(s.title)}.</strong> {_html_text(s.description)}</p>
{_html_rows(s.parameters)}
{f"<p>Body: {_html_type_link(s.body)}</p>" if s.body else ""}
{f"<p>Response: {_html_type_link(s.response)}</p>" if s.response else ""}
<table>{statuses}</table>
"""


def _html_route(s: Section) -> str:
    return f'<span class="method">{s.method}</span> <code>{escape(s.path)}</code>'


def _html_type(name: str, schema: Document) -> str:
    description = escape(_description(schema))
    return f'<h3 id="{name}">{name}</h3><p>{description}</p>{_html_rows(members(schema))}'


def _html_rows(rows: list[Row]) -> str:
    if not rows:
        return ""
    cells = "".join(
        f"<tr><td><code>{escape(row.name)}</code></td><td>{_html_type_link(row.type)}</td>"
        f'<td class="soft">{escape(row.note)}</td><td>{_html_text(row.description)}</td></tr>'
        for row in rows
    )
    return f"<table>{cells}</table>"


def _html_text(text: str) -> str:
    """Render backquotes as code and blank lines as breaks."""
    parts = escape(text).replace("\n\n", "<br>").split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def _html_type_link(name: str) -> str:
    before, _, last = name.rpartition(" ")
    if last[:1].isupper():
        return f'{escape(before)} <a href="#{last}">{last}</a>'
    return escape(name)


# --- Markdown -----------------------------------------------------------------------------------


def markdown(document: Document) -> str:
    """Return the content of docs/reference.md."""
    lines = [
        "# Reference",
        "",
        "`make reference` generates this page from the operation table. A running service shows",
        "the same at `/docs`, and as an OpenAPI document at `/openapi.json`.",
        "",
        "Every `/v1` route except those of signed links requires",
        "`Authorization: Bearer <token>`. Every route with GET also supports HEAD. Dates are",
        "`YYYY-MM-DDTHH:MM:SSZ`. The body of every error is an `ErrorBody`.",
        "",
    ]
    for s in sections(document):
        lines += [f"## {s.method} {s.path}", "", f"**{s.title}.** {s.description}", ""]
        lines += _markdown_rows("parameter", s.parameters)
        lines += [f"Body: `{s.body}`", ""] if s.body else []
        statuses = ", ".join(code for code, _ in s.statuses)
        response = f"Response: `{s.response}`. " if s.response else ""
        lines += [f"{response}Statuses: {statuses}.", ""]
    lines += ["## Types", ""]
    for name, schema in document["components"]["schemas"].items():
        lines += [f"### {name}", "", _description(schema), ""]
        lines += _markdown_rows("member", members(schema))
    return "\n".join(lines).rstrip() + "\n"


def _markdown_rows(what: str, rows: list[Row]) -> list[str]:
    if not rows:
        return []
    table = [f"| {what} | type | | meaning |", "|---|---|---|---|"]
    table += [f"| `{row.name}` | {row.type} | {row.note} | {row.description} |" for row in rows]
    return [*table, ""]


if __name__ == "__main__":
    print(markdown(openapi.document(OPERATIONS, Settings())), end="")
