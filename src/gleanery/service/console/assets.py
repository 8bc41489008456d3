"""The files of the console: their bytes, their media types and the version of all together."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from io import BytesIO
from typing import NamedTuple

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_STYLES = "console.css"
_STYLE_ORDER = ("base.css", "shell.css", "ui/", "screens/")
"""A later style sheet can change what an earlier one says."""
_STYLE_COMMENTS = re.compile(r"/\*[\s\S]*?\*/")
_STYLE_SPACES = re.compile(r"\s*([{};,>])\s*|(?<=:)\s+")
_MARKUP_SPACES = re.compile(r"(?<=\n)[ \t]+|[ \t]+(?=/>)")
_EMPTY_LINES = re.compile(r"\n{2,}")
# The parts of a module: code without literals and braces, a comment, a text, or a sign.
_PART = re.compile(
    r"""(?P<code>[^"'`{}/]+) | (?P<comment>//[^\n]*|/\*[\s\S]*?\*/)
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | [\s\S]""",
    re.VERBOSE,
)
_REGEX = re.compile(r"/(?![/*])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
_BEFORE_REGEX = (*"(,=:[!&|?{};>", "return")
_LITERAL = re.compile(r"(?:[^`\\$]|\\[\s\S]|\$(?!\{))*(?:`|\$\{)")
# Spaces that are not between two words, or between two signs that would become one.
_CODE_SPACES = re.compile(
    r"""(?<![\w$#+-])[ \t]+ | [ \t]+(?![\w$#+-])
    | (?<=[\w$#])[ \t]+(?=[+-]) | (?<=[+-])[ \t]+(?=[\w$#])""",
    re.VERBOSE,
)


class Asset(NamedTuple):
    """One file, with its media type."""

    content: bytes
    media_type: str


class Assets(NamedTuple):
    """All files by their path below the folder of the console. The style sheets are one file."""

    files: dict[str, Asset]
    version: str
    """Part of every URL of a file. So a browser can cache the file for ever."""
    page: bytes
    """The page that loads the files, by URLs relative to ``/console``."""


@cache
def load() -> Assets:
    """Read the files of the package once."""
    found = _with_one_style_sheet(dict(sorted(read_sources())))
    digest = hashlib.sha256()
    for path, asset in found.items():
        digest.update(b"%s\0%d\0%s" % (path.encode(), len(asset.content), asset.content))
    version = digest.hexdigest()[:16]
    return Assets(found, version, _page(version, found))


def read_sources() -> Iterator[tuple[str, bytes]]:
    """Yield the path and the text of each file, as people write it.

    A wheel has them in one archive, which takes a quarter of the space.
    """
    package = files(__package__)
    folder = package.joinpath("browser")
    if folder.is_dir():
        return _read(folder, "")
    return _read(zipfile.Path(BytesIO(package.joinpath("browser.zip").read_bytes())), "")


def _read(folder: Traversable | zipfile.Path, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        path = prefix + entry.name
        if entry.is_dir():
            yield from _read(entry, f"{path}/")
        elif _extension(path) in _MEDIA_TYPES:
            yield path, entry.read_bytes()


def _extension(path: str) -> str:
    return f".{path.rpartition('.')[2]}"


def _with_one_style_sheet(sources: dict[str, bytes]) -> dict[str, Asset]:
    def place(path: str) -> int:
        return next(at for at, start in enumerate(_STYLE_ORDER) if path.startswith(start))

    styles = sorted(_of_type(sources, ".css"), key=lambda path: (place(path), path))
    served = {path: shorten(path, text) for path, text in sources.items() if path not in styles}
    served[_STYLES] = b"".join(shorten(path, sources[path]) for path in styles)
    return {
        path: Asset(content, _MEDIA_TYPES[_extension(path)])
        for path, content in sorted(served.items())
    }


def shorten(path: str, content: bytes) -> bytes:
    """Leave out comments, empty lines, and spaces that mean nothing."""
    if path.endswith(".css"):
        text = _STYLE_COMMENTS.sub("", content.decode())
        return _STYLE_SPACES.sub(r"\1", text.strip()).encode()
    if path.endswith(".js") and not path.startswith("vendor/"):  # the hash of that one is known
        return _EMPTY_LINES.sub("\n", "".join(_shorten_module(content.decode())).lstrip()).encode()
    return content


def _shorten_module(text: str) -> Iterator[str]:
    """Yield the parts of a module without comments and spaces that mean nothing."""
    at, last = 0, "{"
    goes_on: list[bool] = []  # of each open brace: a template literal goes on after it
    while at < len(text):
        part = (last.endswith(_BEFORE_REGEX) and _REGEX.match(text, at)) or _PART.match(text, at)
        assert part is not None
        at, piece = part.end(), part[0]
        if part.lastgroup == "code":
            piece = _CODE_SPACES.sub("", piece)
        elif part.lastgroup == "comment":
            piece = "\n" * piece.count("\n")
        yield piece
        last = piece.strip() or last
        if piece == "{":
            goes_on.append(False)
        elif piece == "`" or (piece == "}" and goes_on.pop()):
            literal = _LITERAL.match(text, at)
            assert literal is not None
            yield _MARKUP_SPACES.sub("", literal[0])
            at, last = literal.end(), literal[0]
            if last.endswith("{"):
                goes_on.append(True)


def _page(version: str, found: dict[str, Asset]) -> bytes:
    def url(path: str) -> str:
        return escape(f"console/assets/{version}/{path}")

    # Otherwise the browser finds a module only after it has loaded the ones that import it.
    modules = (f'<link rel="modulepreload" href="{url(path)}">' for path in _of_type(found, ".js"))
    newline = "\n"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Gleanery</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="{url("icon.svg")}">
<link rel="stylesheet" href="{url(_STYLES)}">
{newline.join(modules)}
<script type="module" src="{url("main.js")}"></script>
</head>
<body>
<div id="app"></div>
<noscript>The console needs JavaScript.</noscript>
</body>
</html>
""".encode()


def _of_type(paths: Iterable[str], extension: str) -> list[str]:
    return [path for path in paths if path.endswith(extension)]
