"""The service as ``gleanery.asgi:app``, for any ASGI server: ``uvicorn gleanery.asgi:app``.

The settings come from the ``GLEANERY_…`` variables.
"""

from __future__ import annotations

import logging
import os

from gleanery.common.settings import Settings, environment_warnings
from gleanery.service.application import build_app
from gleanery.service.foundation.observability import logs
from gleanery.service.processes.asgi import AsgiApp, Message, Receive, Send
from gleanery.service.processes.start import prepare

_log = logging.getLogger("gleanery")


async def _create_app() -> AsgiApp:
    settings = Settings.from_environment()
    logs.configure(settings)
    for warning in environment_warnings(os.environ):
        _log.warning(warning)
    await prepare(settings)
    return AsgiApp(build_app(settings))


class _App:
    """Reads the settings when the server starts, not when it imports this module."""

    def __init__(self) -> None:
        self._started: AsgiApp | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                self._started = await _create_app()
            except Exception as error:  # a server may go on after an exception, but not after this
                await receive()
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
        if self._started is None:
            raise RuntimeError("the service is not started: enable the server's lifespan events")
        await self._started(scope, receive, send)


app = _App()
