"""Generates the synchronous client from the asynchronous one; with ``--check`` only compares.

The asynchronous code is the source. ``background.py`` and ``concurrency.py`` are written by hand in
both packages.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent / "src/gleanery/client"
_BY_HAND = {"__init__.py", "background.py", "concurrency.py"}
_REPLACEMENTS = (
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b_async\b", "_sync"),
    (r"\b__a(iter|next|enter|exit)__\b", r"__\1__"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\ba(close|read|iter_bytes|iter_raw)\b", r"\1"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"^(from collections\.abc import .*?)\bAwaitable, ", r"\1"),
)
_HEADER = (
    "# Generated from _async by checks/sync_client.py: edit that package, and run make client.\n"
)


def main() -> int:
    """Write the generated modules, or compare them. Return the exit status."""
    expected = {path.name: _generate(path) for path in sorted((_PACKAGE / "_async").glob("*.py"))}
    expected = {name: text for name, text in expected.items() if name not in _BY_HAND}
    if "--check" in sys.argv[1:]:
        return _compare(expected)
    for path in _generated_files():
        if path.name not in expected:
            path.unlink()
    for name, text in expected.items():
        (_PACKAGE / "_sync" / name).write_text(text)
    return 0


def _generate(source: Path) -> str:
    """Return the synchronous form of a module, formatted."""
    text = source.read_text()
    for pattern, replacement in _REPLACEMENTS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    for arguments in (
        ["check", "--fix", "--quiet", "--select", "I,F401,UP028", "--unsafe-fixes"],
        ["format"],
    ):
        text = _run_ruff(arguments, text)
    return _HEADER + text


def _run_ruff(arguments: list[str], text: str) -> str:
    ruff = Path(sys.executable).parent / "ruff"
    name = _PACKAGE / "_sync" / "generated.py"
    command = [str(ruff), *arguments, "--stdin-filename", str(name), "-"]
    return subprocess.run(command, input=text, text=True, check=True, capture_output=True).stdout


def _generated_files() -> list[Path]:
    return [path for path in (_PACKAGE / "_sync").glob("*.py") if path.name not in _BY_HAND]


def _compare(expected: dict[str, str]) -> int:
    found = {path.name: path.read_text() for path in _generated_files()}
    differing = sorted(
        name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    )
    for name in differing:
        print(f"client/_sync/{name} differs from client/_async/{name}: run make client")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
