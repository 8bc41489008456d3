"""Programs that a fault needs and that are not a part of a Python package."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_SYSTEM_PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
_DEBIAN = Path("/usr/lib/postgresql")
_FOLDERS_VARIABLE = "GLEANERY_TEST_POSTGRES"
NEEDS_PGBOUNCER = "needs PgBouncer 1.21 or newer: apt-get install pgbouncer"
NEEDS_CITUS = (
    f"needs PostgreSQL with Citus 13, below {_DEBIAN} or in a folder that {_FOLDERS_VARIABLE} names"
)


class MissingProgram(RuntimeError):
    """A fault needs a program that is not installed."""


def pgbouncer() -> str | None:
    """Return the path of PgBouncer; None if it is not installed."""
    return shutil.which("pgbouncer", path=_SYSTEM_PATH)


def citus() -> Path | None:
    """Return the folder of the programs of a PostgreSQL with Citus; None if there is none."""
    named = os.environ.get(_FOLDERS_VARIABLE, "").split(":")
    folders = [*(Path(name) for name in named if name), *sorted(_DEBIAN.glob("*/bin"))]
    return next((folder for folder in folders if _has_citus(folder)), None)


def _has_citus(folder: Path) -> bool:
    program = folder / "pg_config"
    if not program.exists():
        return False
    run = subprocess.run([program, "--pkglibdir"], capture_output=True, text=True, check=True)
    return Path(run.stdout.strip(), "citus.so").exists()
