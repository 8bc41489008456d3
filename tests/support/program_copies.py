"""Copies of the program with another migration: the next version."""

from __future__ import annotations

import shutil
from pathlib import Path

import gleanery
from gleanery.storage import migrations


def this_program() -> Path:
    """Returns the folder that contains the program's package."""
    return Path(gleanery.__file__).parent.parent


def with_migration(folder: Path, sql: str) -> Path:
    """Copies the program into the folder with one more migration on both engines."""
    copied, number = _copy(folder), migrations.newest("sqlite") + 1
    for engine in ("sqlite", "postgres"):
        (copied / engine / f"{number:04}_next.sql").write_text(sql)
    return folder


def _copy(folder: Path) -> Path:
    """Returns the folder of the migrations in a copy of the program."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(this_program() / "gleanery", folder / "gleanery", ignore=ignored)
    return folder / "gleanery" / "storage" / "migrations"
