"""Generates the synchronous client from the asynchronous one; with ``--check`` only compares.

The asynchronous code is the source. ``concurrency.py`` is written by hand in both packages. Modules
of integrations are generated in the same way.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_SOURCE = Path(__file__).parent.parent / "src/gleanery"
_PACKAGE = _SOURCE / "client"
_MODULES = {
    _SOURCE / "integrations/logins/async_login.py": "sync_login.py",
    _SOURCE / "integrations/playwright/async_api.py": "sync_api.py",
}
_BY_HAND = {"__init__.py", "concurrency.py"}
_REPLACEMENTS = (
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b_async\b", "_sync"),
    (r"\b__a(iter|next|enter|exit)__\b", r"__\1__"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\basync_(api|login)\b", r"sync_\1"),
    (r"\benter_async_context\b", "enter_context"),
    (r"\bpush_async_callback\b", "callback"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\ba(close|read|iter_bytes|iter_raw)\b", r"\1"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"^(from collections\.abc import .*?)\bAwaitable, ", r"\1"),
)
_HEADER = "# Generated from {} by checks/sync_client.py: edit that {}, and run make client.\n"


def main() -> int:
    """Write the generated modules, or compare them. Return the exit status."""
    expected = {target: _generate(source) for source, target in _sources().items()}
    if "--check" in sys.argv[1:]:
        return _compare(expected)
    for path in _generated_files():
        if path not in expected:
            path.unlink()
    for path, text in expected.items():
        path.write_text(text)
    return 0


def _sources() -> dict[Path, Path]:
    """Return the generated file of each source."""
    client = {path: _PACKAGE / "_sync" / path.name for path in (_PACKAGE / "_async").glob("*.py")}
    client = {path: target for path, target in client.items() if path.name not in _BY_HAND}
    return client | {path: path.with_name(name) for path, name in _MODULES.items()}


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
    if source.parent.name == "_async":
        return _HEADER.format("_async", "package") + text
    return _HEADER.format(source.name, "module") + text


def _run_ruff(arguments: list[str], text: str) -> str:
    ruff = Path(sys.executable).parent / "ruff"
    name = _PACKAGE / "_sync" / "generated.py"
    command = [str(ruff), *arguments, "--stdin-filename", str(name), "-"]
    return subprocess.run(command, input=text, text=True, check=True, capture_output=True).stdout


def _generated_files() -> list[Path]:
    client = [path for path in (_PACKAGE / "_sync").glob("*.py") if path.name not in _BY_HAND]
    modules = [path.with_name(name) for path, name in _MODULES.items()]
    return client + [path for path in modules if path.exists()]


def _compare(expected: dict[Path, str]) -> int:
    found = {path: path.read_text() for path in _generated_files()}
    differing = sorted(
        path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path)
    )
    for path in differing:
        print(f"{path.relative_to(_SOURCE)} differs from its source: run make client")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
