"""Tokens of JavaScript, as far as the modules of the console use the language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_PARTS = re.compile(
    r"""
    (?P<space>\s+) | (?P<comment>//[^\n]*|/\*[\s\S]*?\*/)
    | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<word>[\w$#]+) | (?P<sign>=>|[\s\S])
    """,
    re.VERBOSE,
)
_REGEX = re.compile(r"/(?![/*])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
_LITERAL = re.compile(r"(?:[^`\\$]|\\[\s\S]|\$(?!\{))*")
_BEFORE_REGEX = {"", "return", "=>", *"(,=:[!&|?{};"}


class JsToken(NamedTuple):
    """A word, a sign or a literal. The text of a template literal has the tag of the literal."""

    kind: str
    value: str
    tag: str = ""


def tokens_of(text: str) -> Iterator[JsToken]:
    """Yield the tokens of a program without its comments and spaces."""
    at, before = 0, ""
    open_braces: list[str] = []  # a brace, or the tag of the literal that goes on after it
    while at < len(text):
        if before in _BEFORE_REGEX and (regex := _REGEX.match(text, at)):
            at, before = regex.end(), "regex"
            yield JsToken("regex", regex[0])
            continue
        part = _PARTS.match(text, at)
        assert part is not None
        assert part.lastgroup is not None
        at = part.end()
        if part.lastgroup in ("space", "comment"):
            continue
        tag = None
        if part[0] == "{":
            open_braces.append("{")
        elif part[0] == "}":
            tag = open_braces.pop().removeprefix("{") or None
        elif part[0] == "`":
            tag = before if re.fullmatch(r"\w+", before) else "no tag"
        yield JsToken(part.lastgroup, part[0])
        before = part[0]
        if tag is not None:
            literal = _LITERAL.match(text, at)
            assert literal is not None
            yield JsToken("literal", literal[0], tag)
            ends = text[literal.end()] == "`"
            at = literal.end() + (1 if ends else 2)
            before = "`" if ends else "{"
            if not ends:
                open_braces.append("{" + tag)
    assert open_braces == [], open_braces
