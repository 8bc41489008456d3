"""Fixtures: the Python client, against a real service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gleanery import Client
from tests.support.service import Service


@pytest.fixture
def gleanery(service: Service) -> Iterator[Client]:
    """A client of a new organization, with every scope. It does not retry for long."""
    with Client(service.url, service.token(), max_retries=1) as made:
        yield made
