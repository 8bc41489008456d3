"""Splits command lines of bash and of Windows' cmd into commands and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain

from gleanery.client.sessions.errors import InvalidSession

_BASH = re.compile(
    r"""
      (?P<space>[ \t]+|\\\r?\n)
    | (?P<end>[\r\n;&|<>()]+)
    | '(?P<single>[^']*)'
    | \$'(?P<ansi_c>[^'\\]*(?:\\.[^'\\]*)*)'
    | \$?"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"
    | \\(?P<escaped>.)
    | (?P<plain>[^\s'"\\;&|<>()$]+|\$(?!['"])|[\f\v])
    """,
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_CMD = re.compile(
    r"""
      (?P<space>[ \t]+)
    | (?P<end>[\r\n&|<>]+)
    | "(?P<windows>[^"\\]*(?:(?:\\.|"")[^"\\]*)*)"
    | (?P<plain>[^\s"&|<>]+|[\f\v])
    """,
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_CARET = re.compile(r"\^(?:\r?\n(\r?\n)?|(.))")
_CARET_LINE_END = re.compile(r"\^\r?\n")
_ESCAPED_QUOTE = '^"'
_IS_CMD = re.compile(r"\S+[ \t]+(?:-[^\s\"']*[ \t]+)*\^\"|[^\n]* \^\r?\n")
_DOUBLE_ESCAPE = re.compile(r'\\(?:\r?\n|([$`"\\]))')
_WINDOWS_ESCAPE = re.compile(r'\\([\\"])|""')
_ANSI_C_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
_ANSI_C = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_MAX_CODE_POINT = 0x10FFFF


def split(text: str) -> Iterator[list[str]]:
    """Yield the words of each command. Raise InvalidSession if a quote has no end."""
    start = text.lstrip()
    is_cmd = _IS_CMD.match(start)
    tokens = _tokens(_CMD, _without_carets(start)) if is_cmd else _tokens(_BASH, start)
    words: list[str] = []
    parts: list[str] = []
    for kind, content in chain(tokens, [("end", "")]):
        if kind not in ("space", "end"):
            parts.append(_UNESCAPE[kind](content))
            continue
        if parts:
            words.append("".join(parts))
            parts = []
        if kind == "end" and words:
            yield words
            words = []


def _tokens(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise InvalidSession("The command is incomplete: a quote or an escape has no end")
        kind = str(match.lastgroup)
        yield kind, match[kind]
        position = match.end()


def _without_carets(text: str) -> str:
    """Remove the escape character of cmd, which has no effect between unescaped quotes."""
    if _ESCAPED_QUOTE in text:
        return _CARET.sub(lambda match: match[1] or match[2] or "", text)
    return _CARET_LINE_END.sub("", text)


def _unescape_double(text: str) -> str:
    return _DOUBLE_ESCAPE.sub(lambda match: match[1] or "", text)


def _unescape_windows(text: str) -> str:
    return _WINDOWS_ESCAPE.sub(lambda match: match[1] or '"', text)


def _unescape_ansi_c(text: str) -> str:
    unescaped = _ANSI_C_ESCAPE.sub(_ansi_c_character, text)
    # Browsers write a character outside the basic plane as a pair of surrogates.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _ansi_c_character(match: re.Match[str]) -> str:
    *hexadecimal, octal, letter = match.groups()
    if letter is not None:
        return _ANSI_C.get(letter, f"\\{letter}")
    digits = next((one for one in hexadecimal if one), None)
    code = int(digits, 16) if digits else int(octal, 8)
    return chr(code) if code <= _MAX_CODE_POINT else "\ufffd"


def _unchanged(text: str) -> str:
    return text


_UNESCAPE: dict[str, Callable[[str], str]] = {
    "single": _unchanged,
    "plain": _unchanged,
    "escaped": _unchanged,
    "ansi_c": _unescape_ansi_c,
    "double": _unescape_double,
    "windows": _unescape_windows,
}
