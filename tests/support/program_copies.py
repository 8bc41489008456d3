"""Copies of the program with another migration: the next version."""

from __future__ import annotations

import shutil
from pathlib import Path

import gleanery
from gleanery.service.storage import migrations


def this_program() -> Path:
    """Returns the folder that contains the program's package."""
    return Path(gleanery.__file__).parent.parent


def with_migration(folder: Path, sql: str, is_compatible: bool = False) -> Path:
    """Copies the program into the folder with one more migration on both engines.

    A compatible migration says that this program can go on.
    """
    copied, this = _copy(folder), migrations.newest("sqlite")
    declaration = f"-- compatible from schema {this if is_compatible else this + 1}\n"
    for engine in ("sqlite", "postgres"):
        (copied / engine / f"{this + 1:04}_next.sql").write_text(declaration + sql)
    return folder


def _copy(folder: Path) -> Path:
    """Returns the folder of the migrations in a copy of the program."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(this_program() / "gleanery", folder / "gleanery", ignore=ignored)
    return folder / "gleanery" / "service" / "storage" / "migrations"
