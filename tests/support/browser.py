"""Chromium for tests, driven by Playwright, and a service for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.console_webhooks import ALLOWED
from tests.support.service import Service
from tests.support.settings import fresh_settings

# The headless shell has no window of its own, whose toolbar costs as much time as the page.
_COMMANDS = ("chromium-headless-shell", "chromium", "google-chrome")


def chromium_path() -> str:
    """Returns the path of Chromium. Skips the test where it is not installed."""
    path = next(filter(None, map(shutil.which, _COMMANDS)), None)
    if path is None:
        pytest.skip("needs chromium: as root, make test installs it where there is apt-get")
    return path


def chromium_options() -> dict[str, Any]:
    """Return what Playwright needs to start Chromium."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # its sandbox refuses to run as root
    return {"executable_path": chromium_path(), "args": arguments}


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Runs Chromium until the end of the block. Skips the test where it is not installed."""
    options = chromium_options()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**options)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """One engine: the browser does not notice it, and the API tests run on both."""
    fresh = fresh_settings("sqlite", request, tmp_path_factory.mktemp("service"))
    running = Service(replace(fresh, webhook_allow=ALLOWED))
    running.token()  # creates tokens for all tests, which needs an event loop too
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser(service: Service) -> Iterator[Browser]:
    """Starts after the service, whose start needs an event loop: Playwright occupies that."""
    with running_chromium() as running:
        yield running
