"""Fixtures of the browser tests: one service, one Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.browser import running_chromium
from tests.support.service import Service
from tests.support.settings import fresh_settings


@pytest.fixture(scope="session")
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """One engine: the browser does not notice it, and the API tests run on both."""
    running = Service(fresh_settings("sqlite", request, tmp_path_factory.mktemp("service")))
    running.token()  # creates tokens for all tests, which needs an event loop too
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser(service: Service) -> Iterator[Browser]:
    """Starts after the service, whose start needs an event loop: Playwright occupies that."""
    with running_chromium() as running:
        yield running
