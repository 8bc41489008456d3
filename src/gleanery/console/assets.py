"""The files of the console: their bytes, their media types and the version of all together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
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


class Asset(NamedTuple):
    """One file, with its media type."""

    content: bytes
    media_type: str


class Assets(NamedTuple):
    """All files by their path below the folder of the console."""

    files: dict[str, Asset]
    version: str
    """Part of every URL of a file. So a browser can cache the file for ever."""
    page: bytes
    """The page that loads the files, by URLs relative to ``/console``."""


@cache
def load() -> Assets:
    """Read the files of the package once."""
    found = dict(sorted(_read(files(__package__).joinpath("browser"), "")))
    digest = hashlib.sha256()
    for path, asset in found.items():
        digest.update(b"%s\0%d\0%s" % (path.encode(), len(asset.content), asset.content))
    version = digest.hexdigest()[:16]
    return Assets(found, version, _page(version, found))


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    for entry in folder.iterdir():
        path = prefix + entry.name
        if entry.is_dir():
            yield from _read(entry, f"{path}/")
        elif (media_type := _MEDIA_TYPES.get(f".{entry.name.rpartition('.')[2]}")) is not None:
            yield path, Asset(entry.read_bytes(), media_type)


def _page(version: str, found: dict[str, Asset]) -> bytes:
    def url(path: str) -> str:
        return escape(f"console/assets/{version}/{path}")

    styles = (f'<link rel="stylesheet" href="{url(path)}">' for path in _of_type(found, ".css"))
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
{newline.join(styles)}
{newline.join(modules)}
<script type="module" src="{url("main.js")}"></script>
</head>
<body>
<div id="app"></div>
<noscript>The console needs JavaScript.</noscript>
</body>
</html>
""".encode()


def _of_type(found: dict[str, Asset], extension: str) -> list[str]:
    return [path for path in found if path.endswith(extension)]
