"""A spider scrapes the example shop on two days, also with scrapy-playwright."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.shop import PRODUCTS, product, running_shop
from tests.support.browser import CHROMIUM
from tests.support.scrapy_runs import Project
from tests.support.service import Client, Service

pytestmark = pytest.mark.thorough

_EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "scrapy_shop.py"
_CHANGED = 12
