"""Upper limit of a Python server: an ASGI application that sends a prepared response."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_BODY = Path(os.environ["BENCH_BODY"]).read_bytes() if "BENCH_BODY" in os.environ else b""
_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(_BODY)).encode()),
]


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})
