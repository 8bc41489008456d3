"""Imports of the client: it loads only what it needs."""

from __future__ import annotations

import subprocess
import sys

from tests.support.process import environment

_SLOW = {
    "asyncio",
    "dataclasses",
    "email",
    "httpx2",
    "inspect",
    "json",
    "logging",
    "msgspec",
    "pathlib",
    "rich",
    "ssl",
    "typer",
}


def test_importing_the_client_loads_no_slow_module() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "from gleanery import Client; Client('http://a', 'token')\n"
        "print(*(set(sys.modules) - before))"
    )
    printed = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env=environment(PYTHONPATH=":".join(sys.path)),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "gleanery.client._sync.client" in printed
    assert set(printed.split()) & _SLOW == set()
