"""The reference as one HTML page, with its style, its script and its security policy.

The page has an introduction, groups of operations, and types. An operation has texts, parameters,
examples and status codes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from html import escape
from importlib.resources import files
from typing import NamedTuple

from gleanery.common.settings import Settings
from gleanery.service.api.openapi import Document, document, encoded
from gleanery.service.api.operation import SERVICE_URL, Resource
from gleanery.service.api.reference.content import (
    Content,
    Group,
    Row,
    Section,
    Status,
    common_statuses,
    description,
    groups,
    members,
)
from gleanery.service.api.reference.try_it import curl, form, json_text, python
from gleanery.service.foundation.security import tokens

_POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_WORD = re.compile(r'"[^"]*"|\w+')  # a text in quotes is a value


class ReferencePage(NamedTuple):
    """The page, and the Content-Security-Policy that allows its style and script and no other."""

    html: bytes
    policy: bytes


def build_page(document: Document) -> ReferencePage:
    """Build the page of a document. It loads nothing, and is readable without its script."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = _POLICY.format(script=_source_hash(script), style=_source_hash(style))
    return ReferencePage(_html(document, style, script).encode(), policy.encode("ascii"))


class Description:
    """The API for clients: as an OpenAPI document and as a page, both made on first use."""

    def __init__(self, resources: Sequence[Resource], settings: Settings) -> None:
        self._resources = resources
        self._settings = settings

    @cached_property
    def _document(self) -> Document:
        return document(self._resources, self._settings)

    @cached_property
    def openapi_json(self) -> bytes:
        return encoded(self._document)

    @cached_property
    def reference_page(self) -> ReferencePage:
        return build_page(self._document)


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _source_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _html(document: Document, style: str, script: str) -> str:
    found, info = groups(document), document["info"]
    base_url, common = document["servers"][0]["url"], common_statuses(found)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])} API reference</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>{style}</style></head>
<body data-base="{escape(base_url)}"><a class="skip" href="#main">Skip to the reference</a>
<header>
<a class="name" href="#main">{escape(info["title"])} <small>API reference</small></a>
<div class="search" role="search" hidden>
<input id="search" type="search" aria-label="Search operations, parameters and types"
 placeholder="Search" aria-keyshortcuts="/" autocomplete="off" spellcheck="false">
<button type="button" aria-pressed="true" aria-label="Key / moves to the search">/</button></div>
{_navigation(found, document)}
</header>
<main id="main" tabindex="-1">
<h1>{escape(info["title"])} API <small>{escape(info["version"])}</small></h1>
<p id="matches" role="status"></p>
{_introduction(document, base_url, common)}
{"".join(_group(group, base_url, common) for group in found)}
{_types(document)}
</main>
<script type="module">{script}</script>
</body></html>
"""


def _navigation(found: list[Group], document: Document) -> str:
    lists = "".join(
        f'<li><a href="#group-{group.tag}">{group.title}</a><ul>{_links(group)}</ul></li>'
        for group in found
    )
    types = "".join(
        f'<li><a href="#{name}">{name}</a></li>' for name in document["components"]["schemas"]
    )
    return f"""<details class="menu" open><summary>Menu</summary>
<nav aria-label="Reference"><ul>
<li><ul><li><a href="#introduction">Introduction</a></li></ul></li>{lists}
<li><details class="types"><summary>Types</summary><ul>{types}</ul></details></li></ul></nav>
</details>"""


def _links(group: Group) -> str:
    return "".join(
        f'<li><a href="#{s.id}"><span>{escape(s.title)}</span> {method_label(s.method)}</a></li>'
        for s in group.sections
    )


def _introduction(document: Document, base_url: str, common: list[Status]) -> str:
    statuses = [Row(status.code, "", "", status.meaning) for status in common]
    scopes = [Row(name, "", "", text) for name, text in tokens.SCOPES.items()]
    first = code(
        f"export TOKEN=…\ncurl '{base_url}/v1/groups' \\\n  -H \"Authorization: Bearer $TOKEN\""
    )
    invalid = document["components"]["responses"]["Error422"]["content"]["application/json"]
    error = code(json_text(invalid["example"]), "json")
    subject, _, rules_of_json = document["info"]["description"].partition("\n\n")
    return f"""<section id="introduction" aria-label="Introduction">
<div class="text">
<p class="lead">{inline(subject)}</p>
<p>Paths are below <code>{escape(base_url, quote=False)}</code>.
<a href="openapi.json">openapi.json</a> is the same as an OpenAPI document, for generators and
other tools.</p>
<p>Every <code>/v1</code> route except those of signed links requires the header
<code>Authorization: Bearer &lt;token&gt;</code>. <code>gleanery token create</code> creates a
token. Its scopes limit what it allows:</p>
<div class="pairs">{rows(scopes)}</div>
<p>Every route with GET also supports HEAD. Dates are <code>YYYY-MM-DDTHH:MM:SSZ</code>. The body
of every error is an <a href="#ErrorBody">ErrorBody</a>.</p>
<p>{inline(rules_of_json)}</p>
<p id="statuses">Most operations have these status codes, and some of their own:</p>
<div class="pairs">{rows(statuses)}</div>
<p>Responses are compressed with zstd or gzip if <code>Accept-Encoding</code> allows it, in curl
with <code>--compressed</code>. Every body except a file can be compressed, too, with
<code>Content-Encoding: gzip</code> or <code>zstd</code>.</p>
</div>
<div class="examples"><div class="code"><div class="bar"><span>First request</span></div>{first}
</div>
<div class="code"><div class="bar"><span>Body of an error</span></div>{error}</div></div>
</section>"""


def _group(group: Group, base_url: str, common: list[Status]) -> str:
    articles = "".join(_article(one, base_url, common) for one in group.sections)
    return f"""<section id="group-{group.tag}" class="group" aria-labelledby="title-{group.tag}">
<h2 id="title-{group.tag}">{group.title}</h2>
{paragraphs(group.description)}
{articles}</section>
"""


def _types(document: Document) -> str:
    schemas = document["components"]["schemas"].items()
    return f"""<section id="types" class="group" aria-labelledby="title-types">
<h2 id="title-types">Types</h2>
{"".join(_type(name, schema) for name, schema in schemas)}</section>"""


def _type(name: str, schema: Document) -> str:
    return (
        f'<article id="{name}" class="type" aria-labelledby="{name}-title"><div class="find">'
        f'<h3 id="{name}-title"><a href="#{name}">{name}</a></h3>'
        f"{paragraphs(description(schema))}{rows(members(schema))}</div></article>\n"
    )


# --- one operation ------------------------------------------------------------------------------


def _article(s: Section, base_url: str, common: list[Status]) -> str:
    """Render one operation: the texts on one side, the examples on the other.

    The introduction explains the common status codes.
    """
    return f"""<article id="{s.id}" aria-labelledby="{s.id}-title">
<h3 id="{s.id}-title"><a href="#{s.id}">{escape(s.title)}</a></h3>
<p class="route">{route(s.method, s.path)}</p>
<div class="text">
<div class="find">{paragraphs(s.description)}
{_parameters(s)}{_contents("Body", s.bodies)}{_contents("Response", s.responses)}</div>
{_statuses(s, common)}
{form(s)}
</div>
<div class="examples">
{_programs(s, base_url)}
{_response(s, base_url)}
</div>
</article>
"""


def _parameters(s: Section) -> str:
    if not s.parameters:
        return ""
    return f"<h4>Parameters</h4>{rows(p.row for p in s.parameters)}"


def _contents(title: str, contents: list[Content]) -> str:
    if not contents:
        return ""
    links = " or ".join(_content(content) for content in contents)
    return f"<h4>{title}</h4><p>{links}</p>"


def _content(content: Content) -> str:
    media_type = f"<code>{content.media_type}</code>"
    if content.type[0].isupper() or " " in content.type:
        limits = f"{content.limits}, " if content.limits else ""
        return f"{type_link(content.type)} <small>{limits}as {media_type}</small>"
    return media_type


def _statuses(s: Section, common: list[Status]) -> str:
    listed = "".join(
        f"<div><dt><code>{status.code}</code></dt><dd>{inline(status.meaning)}</dd></div>"
        for status in s.statuses
        if status not in common
    )
    codes = " ".join(status.code for status in s.statuses)
    return (
        f'<details class="statuses"><summary>Status codes <small>{codes}</small></summary>'
        f'<dl>{listed}<div><dt><a href="#statuses">Others</a></dt></div></dl></details>'
    )


def _programs(s: Section, base_url: str) -> str:
    """Render the example request in both languages. Radio buttons choose one without a script."""
    choices = "".join(
        f'<label><input type="radio" name="{s.id}-language" value="{language}"{checked}>'
        f"{title}</label>"
        for language, title, checked in (("curl", "curl", " checked"), ("python", "Python", ""))
    )
    as_curl, as_python = code(curl(s, base_url)), code(python(s, base_url))
    return f"""<div class="code request">
<div class="bar" role="radiogroup" aria-label="Language of the example">{choices}</div>
<div class="curl">{as_curl}</div>
<div class="python">{as_python}</div>
</div>"""


def _response(s: Section, base_url: str) -> str:
    response = s.responses[0]
    example = json_text(response.example).replace(SERVICE_URL, base_url)
    return f"""<div class="code">
<div class="bar"><span>Response <b>{s.success}</b> <small>{response.media_type}</small></span></div>
{code(example, "json")}
</div>"""


# --- texts, links to types, rows, code ----------------------------------------------------------


def paragraphs(text: str) -> str:
    """Render blank lines as paragraphs, and backquotes as code."""
    return "".join(f"<p>{inline(part)}</p>" for part in text.split("\n\n") if part)


def inline(text: str) -> str:
    """Render backquotes as code, and keep line breaks."""
    parts = escape(text, quote=False).replace("\n", "<br>").split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def type_link(name: str) -> str:
    """Link the names of types, which start with a capital letter."""
    return _WORD.sub(_link_of, escape(name, quote=False))


def _link_of(word: re.Match[str]) -> str:
    name = word[0]
    return f'<a href="#{name}">{name}</a>' if name[0].isupper() else name


def rows(found: Iterable[Row]) -> str:
    """Render parameters or members as a list of terms with descriptions."""
    terms = "".join(map(_row, found))
    return f'<dl class="rows">{terms}</dl>' if terms else ""


def _row(row: Row) -> str:
    note = f" <i>{escape(row.note, quote=False)}</i>" if row.note else ""
    description = f"<dd>{inline(row.description)}</dd>" if row.description else "<dd></dd>"
    name = escape(row.name, quote=False)
    return f"<div><dt><code>{name}</code> {type_link(row.type)}{note}</dt>{description}</div>"


def route(method: str, path: str) -> str:
    """Render a method and a path, which may break after each slash."""
    segments = escape(path, quote=False).replace("/", "/<wbr>")
    return f"{method_label(method)} <code>{segments}</code>"


def method_label(method: str) -> str:
    return f'<b class="method {method.lower()}">{method}</b>'


def code(text: str, language: str = "") -> str:
    """Render a code block. The page's script replaces the address of the service in it."""
    css_class = f' class="{language}"' if language else ""
    return f"<pre{css_class}><code>{escape(text, quote=False)}</code></pre>"
