"""The handlers of the console's page and files."""

from __future__ import annotations

from urllib.parse import urlsplit

from gleanery.service.api.context import AnyContext
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


async def console_page(context: AnyContext) -> Response:
    content_type = b"text/html; charset=utf-8"
    return Response(assets.load().page, content_type=content_type, headers=_PAGE_HEADERS)


async def console_without_slash(context: AnyContext) -> Response:
    path = urlsplit(context.services.settings.address).path  # a proxy may serve us below a path
    headers = ((b"location", f"{path}/console".encode("ascii")),)
    return Response(b"", 307, b"text/plain; charset=utf-8", headers)


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
