"""The handlers that describe the service: health, metrics, API description, reference, console."""

from __future__ import annotations

from urllib.parse import urlsplit

import orjson

from gleanery.service.api.context import AnyContext
from gleanery.service.api.reference.page import Description
from gleanery.service.api.response import Response
from gleanery.service.console import assets
from gleanery.service.foundation.errors import NotFound

_FOR_EVER = b"public, max-age=31536000, immutable"
_PAGE_HEADERS = (
    (b"content-security-policy", assets.POLICY.encode("ascii")),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


async def root(context: AnyContext) -> Response:
    return _redirect_to_console(context)


def _redirect_to_console(context: AnyContext) -> Response:
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


# --- the page and the files of the console ------------------------------------------------------


async def console_page(context: AnyContext) -> Response:
    content_type = b"text/html; charset=utf-8"
    return Response(assets.load().page, content_type=content_type, headers=_PAGE_HEADERS)


async def console_without_slash(context: AnyContext) -> Response:
    return _redirect_to_console(context)


async def console_asset(context: AnyContext) -> Response:
    loaded, path = assets.load(), context.path
    name = "/".join(filter(None, (path["name"], path.get("file"))))
    asset = loaded.files.get(name)
    if asset is None or path["version"] != loaded.version:
        raise NotFound(msg="This version of the console has no such file: reload the page")
    return Response(
        asset.content,
        content_type=asset.media_type.encode("ascii"),
        headers=((b"cross-origin-resource-policy", b"same-origin"),),
        cache_control=_FOR_EVER,
    )
