"""Folders that only their owner may read. It loads no library: small processes use it as well."""

from __future__ import annotations

from pathlib import Path


def create_private_folder(folder: Path) -> list[Path]:
    """Create a folder and its missing parents, and return those that are new.

    Existing folders keep their permissions.

    ``Path.mkdir`` gives the permissions to the last folder only, and the umask decides the others.
    """
    missing = [path for path in (*reversed(folder.parents), folder) if not path.is_dir()]
    for path in missing:
        path.mkdir(mode=0o700, exist_ok=True)
    return missing
