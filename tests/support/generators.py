"""The generators and linters of OpenAPI documents that ``make generators`` installs."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NODE_MODULES = ROOT / ".generators" / "node_modules"
PYTHON_PROGRAMS = ROOT / ".venv-generators" / "bin"
GENERATORS = pytest.mark.skipif(
    not (NODE_MODULES / ".bin" / "tsc").exists()
    or not (PYTHON_PROGRAMS / "openapi-python-client").exists(),
    reason="the generators are not installed: run make generators",
)
