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


# Number of bytes to send in pieces, each of which is the prepared body; 0: the body once.
_STREAM_BYTES = int(os.environ.get("BENCH_STREAM_BYTES", "0"))


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if _STREAM_BYTES:
        await _stream(send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})


async def _stream(send: Any) -> None:
    """Send a body of unknown length, so that the server sends it in chunks."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS[:1]})
    for _ in range(_STREAM_BYTES // len(_BODY)):
        await send({"type": "http.response.body", "body": _BODY, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
