"""Marks the tests of integrations that take long: whole scrapes, outages, and the second engine."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
LONG_MODULES = {
    "test_scrapy_cookies",
    "test_scrapy_outages",
    "test_schedulers",
    "test_shop_scenario",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let ``make test`` use each tool on SQLite, and ``make extended`` run the rest."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("thorough") and is_long(item):
            item.add_marker(pytest.mark.extended)


def is_long(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    is_second_engine = parameters is not None and parameters.params.get("engine") == "postgres"
    return is_second_engine or item.path.stem in LONG_MODULES or "two_days" in item.name
