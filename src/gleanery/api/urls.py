"""Addresses of the service's own pages: where a list goes on."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from gleanery.api.context import AnyContext


def address(base: str, *steps: str, query: Mapping[str, object]) -> str:
    """The address of a path below the service's own, given step by step, with a query."""
    path = "/".join(quote(step, safe="") for step in steps)
    return f"{base}/v1/{path}?{urlencode(query)}"


def next_page(
    context: AnyContext, *steps: str, query: Mapping[str, object]
) -> tuple[tuple[bytes, bytes], ...]:
    """The header that says where an array goes on, which has no room for it itself."""
    target = address(context.services.address, *steps, query=query)
    return ((b"link", f'<{target}>; rel="next"'.encode("ascii")),)
