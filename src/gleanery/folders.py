"""Creation of folders that only their owner can use."""

from __future__ import annotations

from pathlib import Path


def create_private(folder: Path) -> None:
    """Create a folder and its missing parents. Existing folders keep their permissions.

    ``Path.mkdir`` gives the permissions to the last folder only, and the umask decides the others.
    """
    for path in (*reversed(folder.parents), folder):
        path.mkdir(mode=0o700, exist_ok=True)
