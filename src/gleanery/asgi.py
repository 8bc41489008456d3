"""The service as ``gleanery.asgi:app``, for any ASGI server: ``uvicorn gleanery.asgi:app``.

The settings come from the ``GLEANERY_…`` variables.
"""

from __future__ import annotations

from gleanery.api.app import build_app
from gleanery.api.asgi import AsgiApp, Message, Receive, Send
from gleanery.observability import logs
from gleanery.serve import prepare
from gleanery.settings import Settings


class _App:
    """Reads the settings when the server starts, not when it imports this module."""

    def __init__(self) -> None:
        self._started: AsgiApp | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            settings = Settings.from_environment()
            logs.configure(settings)
            await prepare(settings)
            self._started = AsgiApp(build_app(settings))
        if self._started is None:
            raise RuntimeError("the service is not started: enable the server's lifespan events")
        await self._started(scope, receive, send)


app = _App()
