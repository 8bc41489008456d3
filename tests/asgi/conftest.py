"""Fixtures: a service behind uvicorn's own HTTP server, through the ASGI adapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gleanery.settings import Settings
from tests.support.settings import fresh_settings

HERE = Path(__file__).parent


@pytest.fixture(scope="session", params=["sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    """One engine: the adapter does not depend on it."""
    return str(request.param)


@pytest.fixture(scope="session")
def settings(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    folder = tmp_path_factory.mktemp("asgi")
    return replace(fresh_settings(engine, request, folder), server="asgi")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests repeat those of tests/api, so ``make quick`` leaves them out."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.thorough)
