"""URLs of the service itself, such as the URL of the next page."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from gleanery.api.context import AnyContext


def address(base: str, *segments: str, query: Mapping[str, object]) -> str:
    """Return the URL of a path below ``/v1``, given as segments, with a query."""
    path = "/".join(quote(segment, safe="") for segment in segments)
    return f"{base}/v1/{path}?{urlencode(query)}"


def next_page(
    context: AnyContext, *segments: str, query: Mapping[str, object]
) -> tuple[tuple[bytes, bytes], ...]:
    """Return the Link header with the URL of the next page, for responses that are arrays."""
    target = address(context.services.settings.address, *segments, query=query)
    return ((b"link", f'<{target}>; rel="next"'.encode("ascii")),)
