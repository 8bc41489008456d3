"""Imports of the client: it loads only what it needs, and has its documented paths."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from types import ModuleType

import gleanery.client
import gleanery.sessions
from tests.support.process import environment

_SLOW = {
    "asyncio",
    "click",
    "dataclasses",
    "email",
    "httpx2",
    "inspect",
    "json",
    "logging",
    "msgspec",
    "pathlib",
    "ssl",
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


def test_sessions_are_a_part_of_the_client() -> None:
    from gleanery.client import sessions

    assert sessions is gleanery.sessions
    assert gleanery.client.sessions is sessions
    assert "sessions" in dir(gleanery.client)


def names_for_type_checkers(module: ModuleType) -> set[str]:
    """They do not run ``__getattr__``, so an import has to name what it returns."""
    tree = ast.parse(inspect.getsource(module))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def test_type_checkers_see_every_name_of_the_client() -> None:
    assert names_for_type_checkers(gleanery.client) == {*gleanery.client.__all__, "sessions"}
    assert names_for_type_checkers(gleanery) == {*gleanery.__all__} - {"__version__"}


def test_every_error_of_the_client_can_be_imported_from_the_package() -> None:
    members = {name: getattr(gleanery.client, name) for name in gleanery.client.__all__}
    errors = {
        name
        for name, value in members.items()
        if isinstance(value, type) and issubclass(value, gleanery.client.ClientError)
    }
    assert {*gleanery.__all__} == errors | {"AsyncClient", "Client", "ErrorDetail", "__version__"}
