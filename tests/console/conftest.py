"""Fixtures of the browser tests: one service, one Chromium."""

from __future__ import annotations

from tests.support.browser import browser as browser
from tests.support.browser import service as service
