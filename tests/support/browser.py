"""Chromium for tests, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

_COMMANDS = ("chromium", "google-chrome")


def chromium_path() -> str:
    """Returns the path of Chromium. Skips the test where it is not installed."""
    path = next(filter(None, map(shutil.which, _COMMANDS)), None)
    if path is None:
        pytest.skip("needs chromium: as root, make test installs it where there is apt-get")
    return path


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Runs Chromium until the end of the block. Skips the test where it is not installed."""
    path = chromium_path()
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # its sandbox refuses to run as root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()
