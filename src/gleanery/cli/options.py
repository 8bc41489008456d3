"""The options that several commands share, each also an environment variable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from gleanery.settings import Settings

DEFAULT = Settings()


def option(name: str, words: str) -> Any:
    return typer.Option(
        f"--{name}", envvar=f"GLEANERY_{name.upper().replace('-', '_')}", help=words
    )


Data = Annotated[Path, option("data", "Folder of the embedded database and its secret key.")]
DatabaseUrl = Annotated[
    str | None, option("database", "postgresql://… to use PostgreSQL instead of the embedded one.")
]
Blobs = Annotated[
    str | None,
    option("blobs", "Folder, or s3://bucket/prefix, for files; a folder under --data else."),
]
Host = Annotated[str, option("host", "Address to listen on.")]
Port = Annotated[int, option("port", "Port to listen on; 0 takes a free one.")]


def secret_key() -> str | None:
    """A variable and no flag: a flag would show it to everyone who lists processes."""
    return os.environ.get("GLEANERY_SECRET_KEY") or None
