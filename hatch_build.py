"""Build hook: puts the files of the console into one archive, which takes a quarter of the space.

An editable install uses the folder itself.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FOLDER = Path("src/gleanery/service/console/browser")
_ARCHIVE = "gleanery/service/console/browser.zip"


class ConsoleArchive(BuildHookInterface[Any]):
    """Adds the archive to a wheel. ``pyproject.toml`` leaves the folder out."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        folder = Path(self.root) / _FOLDER
        self._temporary = tempfile.TemporaryDirectory()
        archive = Path(self._temporary.name) / "browser.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as files:
            for file in sorted(folder.rglob("*")):
                if file.is_file():
                    # Without the date of the file: two builds are the same.
                    name = zipfile.ZipInfo(file.relative_to(folder).as_posix())
                    files.writestr(name, file.read_bytes(), zipfile.ZIP_DEFLATED)
        build_data["force_include"][str(archive)] = _ARCHIVE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._temporary.cleanup()
