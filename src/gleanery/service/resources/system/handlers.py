"""The handlers that describe the service: health, metrics, API description and reference page."""

from __future__ import annotations

from urllib.parse import urlsplit

import orjson

from gleanery.service.api.context import AnyContext
from gleanery.service.api.reference.page import Description
from gleanery.service.api.response import Response


async def root(context: AnyContext) -> Response:
    path = urlsplit(context.services.settings.address).path  # a proxy may serve us below a path
    location = f"{path}/console".encode("ascii")
    return Response(b"", 307, b"text/plain; charset=utf-8", ((b"location", location),))


async def server_options(context: AnyContext) -> Response:
    return Response(b"", 204, headers=((b"allow", b"DELETE, GET, HEAD, OPTIONS, POST, PUT"),))


async def healthz(context: AnyContext) -> Response:
    return Response(b'{"status":"ok"}')


async def readyz(context: AnyContext) -> Response:
    readiness = context.services.readiness
    await readiness.require()
    if readiness.warning is not None:
        return Response(orjson.dumps({"status": "ready", "warning": readiness.warning}))
    return Response(b'{"status":"ready"}')


async def metrics(context: AnyContext) -> Response:
    return Response(
        context.services.telemetry.exposition(),
        content_type=b"text/plain; version=0.0.4; charset=utf-8",
    )


async def openapi(context: AnyContext) -> Response:
    return Response(context.services[Description].openapi_json)


async def docs(context: AnyContext) -> Response:
    page = context.services[Description].reference_page
    return Response(
        page.html,
        content_type=b"text/html; charset=utf-8",
        headers=((b"content-security-policy", page.policy), (b"referrer-policy", b"no-referrer")),
    )
