"""Checks the vendored libraries of the console: their pinned hash, and, with npm, a new build.

``--write`` builds the file and prints its hash. The versions are those of
``checks/console_vendor/package-lock.json``.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_ROOT = Path(__file__).parent.parent
_SOURCE = _ROOT / "checks/console_vendor"
_BUNDLE = _ROOT / "src/gleanery/service/console/browser/vendor/preact.js"
_SHA256 = "27d8a0bda0f174b37f9cc7a5f794ad72f5ba75ba1463fe87e9b412a17c331fd2"
_BANNER = "/* Preact 10.29.8 (MIT), htm 3.1.1 (Apache-2.0); built by checks/console_vendor. */"
_OPTIONS = ("--bundle", "--format=esm", "--minify", "--target=es2022", "--legal-comments=none")


def main() -> int:
    """Compare the file, or write it. Return the exit status."""
    npm = shutil.which("npm")
    if "--write" in sys.argv[1:]:
        assert npm is not None, "npm is needed to build the libraries of the console"
        _BUNDLE.write_bytes(_build(npm))
        print(f"Set _SHA256 in {Path(__file__).name} to {_hash(_BUNDLE.read_bytes())}")
        return 0
    content = _BUNDLE.read_bytes()
    if _hash(content) != _SHA256:
        print(f"{_BUNDLE.relative_to(_ROOT)} does not have its pinned hash", file=sys.stderr)
        return 1
    if npm is None:
        print("npm is not installed: the libraries of the console have their pinned hash, and were")
        print("not built again")
        return 0
    if _build(npm) != content:
        print(f"A new build of {_BUNDLE.relative_to(_ROOT)} differs from it", file=sys.stderr)
        return 1
    return 0


def _build(npm: str) -> bytes:
    with TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(_SOURCE, folder, dirs_exist_ok=True)
        subprocess.run([npm, "ci", "--no-progress"], cwd=folder, check=True, capture_output=True)
        # npm may not run the script that puts the program here, so it is called at its own place.
        program = next(folder.glob("node_modules/@esbuild/*/bin/esbuild"))
        command = [program, "entry.js", *_OPTIONS, f"--banner:js={_BANNER}"]
        built = subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return built.stdout


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
