"""Fixtures: a service behind uvicorn's own HTTP server, through the ASGI adapter."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import uvicorn

from gleanery.common.settings import Settings
from gleanery.service.application import App
from gleanery.service.processes.asgi import AsgiApp
from tests.support.service import Service

SHUTDOWN_SECONDS = 1  # a long poll that waits then does not end by itself


class UvicornServer:
    """uvicorn with h11: its faster parser drops the body of a request that offers an upgrade."""

    def __init__(self, app: App, listener: socket.socket) -> None:
        config = uvicorn.Config(
            AsgiApp(app),
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._listener = listener

    async def run(self) -> None:
        await self._server.serve([self._listener])

    def stop(self) -> None:
        self._server.should_exit = True


class AsgiService(Service):
    """The application on uvicorn."""

    def create_server(self, app: App, listener: socket.socket) -> UvicornServer:
        return UvicornServer(app, listener)


@pytest.fixture(scope="session", params=["sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    """One engine: the adapter does not depend on it."""
    return str(request.param)


@pytest.fixture(scope="session")
def service(settings: Settings) -> Iterator[Service]:
    running = AsgiService(settings)
    yield running
    running.stop()
