"""Fixtures of the tests of gleanery.service.http."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.server import Client, Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with the usual limits."""
    with serving() as running:
        yield running
        assert not running.errors


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server) as connected:
        yield connected
