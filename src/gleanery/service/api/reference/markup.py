"""Parts of the page that several sections use: texts, links to types, rows, code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from gleanery.service.api.reference.schemas import Row

_WORD = re.compile(r'"[^"]*"|\w+')  # a text in quotes is a value


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
