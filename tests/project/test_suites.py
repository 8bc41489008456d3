"""The suites: every resource has its contract on PostgreSQL, and every rule names what exists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service import Service
from tests.support.suites import ASGI_ITSELF, CONTRACTS, LONG, TESTS, WITH_OTHER_PROGRAMS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True, scope="session")
def test_every_resource_has_a_contract_on_postgresql(service: Service) -> None:
    with service.stranger() as client:
        paths = client.get("/openapi.json").json()["paths"]
    resources = {path.split("/")[2] for path in paths if path.startswith("/v1/")}
    assert resources <= CONTRACTS.keys()


def test_every_rule_names_a_file_that_exists() -> None:
    modules = [module for modules in CONTRACTS.values() for module in modules]
    for name in (*modules, *LONG, *WITH_OTHER_PROGRAMS, ASGI_ITSELF):
        assert (TESTS / name).exists(), name


@pytest.mark.thorough
def test_the_contract_of_a_resource_is_collected_on_postgresql() -> None:
    """One process collects them all, as ``make test`` does."""
    modules = sorted({f"tests/{module}" for modules in CONTRACTS.values() for module in modules})
    collect = ("--collect-only", "-q", "-m", "not extended", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *collect, *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    collected = {line.partition("::")[0] for line in done.stdout.splitlines() if "postgres" in line}
    assert collected == set(modules)
